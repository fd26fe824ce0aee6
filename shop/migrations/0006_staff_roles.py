"""Rights for each act of staff, and three roles with the least of them: viewer, operator, manager."""

from django.db import migrations

SALE_RIGHTS = [
    ("open_sale", "Can open a sale before its time"),
    ("pause_sale", "Can pause and resume a sale"),
    ("close_sale", "Can close a sale for good"),
    ("change_stock", "Can restock and adjust the stock of a sale"),
    ("retry_dead_letter", "Can put dead letters back in line"),
    ("discard_dead_letter", "Can discard dead letters"),
    ("reconcile_sale", "Can have a sale's stores compared and mended"),
]
ORDER_RIGHTS = [("cancel_order", "Can cancel a held order"), ("refund_order", "Can refund a paid order")]
LOCK_RIGHT = [("force_release_lock", "Can take a lock away from its holder")]

SEEN = [
    ("inventory", "stock"), ("inventory", "stockmovement"), ("shop", "product"), ("shop", "sale"), ("shop", "order"),
    ("shop", "orderevent"), ("shop", "payment"), ("shop", "paymentnotice"), ("shop", "staffact"),
]  # fmt: skip
VIEWER = [(app, model, f"view_{model}", f"Can view {model}") for app, model in SEEN]
OPERATOR = [
    *VIEWER,
    *(("shop", "sale", code, name) for code, name in SALE_RIGHTS
      if code in ("pause_sale", "retry_dead_letter", "reconcile_sale")),
    *(("shop", "order", code, name) for code, name in ORDER_RIGHTS if code == "cancel_order"),
]  # fmt: skip
MANAGER = [
    *VIEWER,
    *(("shop", "sale", code, name) for code, name in SALE_RIGHTS),
    *(("shop", "order", code, name) for code, name in ORDER_RIGHTS),
    *(("inventory", "stock", code, name) for code, name in LOCK_RIGHT),
    *(("shop", model, f"{verb}_{model}", f"Can {verb} {model}") for model in ("product", "sale")
      for verb in ("add", "change")),
]  # fmt: skip
ROLES = {"viewer": VIEWER, "operator": OPERATOR, "manager": MANAGER}
VERBOSE = {"stockmovement": "stock movement", "orderevent": "order event", "paymentnotice": "payment notice",
           "staffact": "staff act"}  # fmt: skip


def make_roles(apps, schema_editor):
    """Make the groups. A group of that name that is there already gets the rights too, and keeps what it had."""
    alias = schema_editor.connection.alias
    content_types = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    rights = apps.get_model("auth", "Permission").objects.using(alias)
    groups = apps.get_model("auth", "Group").objects.using(alias)
    for role, wanted in ROLES.items():
        group, _ = groups.get_or_create(name=role)
        for app, model, code, name in wanted:
            # Django makes rights after all migrations; those that are there by then are left as they are.
            kind, _ = content_types.get_or_create(app_label=app, model=model)
            told = name.replace(model, VERBOSE.get(model, model))
            right, _ = rights.get_or_create(content_type=kind, codename=code, defaults={"name": told})
            group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0005_order_life"),
        ("inventory", "0004_lock_right"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.AlterModelOptions(
            name="sale", options={"ordering": ["opens_at", "slug"], "permissions": SALE_RIGHTS}
        ),
        migrations.AlterModelOptions(name="order", options={"ordering": ["-id"], "permissions": ORDER_RIGHTS}),
        # Backwards the groups stay: people are in them.
        migrations.RunPython(make_roles, migrations.RunPython.noop),
    ]
