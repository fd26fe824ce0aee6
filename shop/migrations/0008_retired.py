"""A sale that is over and settled is retired: when it was, and the right to do it, which managers get."""

from django.db import migrations, models

SALE_RIGHTS = [
    ("open_sale", "Can open a sale before its time"),
    ("pause_sale", "Can pause and resume a sale"),
    ("close_sale", "Can close a sale for good"),
    ("change_stock", "Can restock and adjust the stock of a sale"),
    ("retry_dead_letter", "Can put dead letters back in line"),
    ("discard_dead_letter", "Can discard dead letters"),
    ("reconcile_sale", "Can have a sale's stores compared and mended"),
    ("retire_sale", "Can retire a sale that is over"),
]


def give_right(apps, schema_editor):
    """Let managers retire sales. Nothing to do where the group was removed."""
    alias = schema_editor.connection.alias
    kind, _ = apps.get_model("contenttypes", "ContentType").objects.using(alias).get_or_create(
        app_label="shop", model="sale"
    )
    code, name = SALE_RIGHTS[-1]
    right, _ = apps.get_model("auth", "Permission").objects.using(alias).get_or_create(
        content_type=kind, codename=code, defaults={"name": name}
    )
    for group in apps.get_model("auth", "Group").objects.using(alias).filter(name="manager"):
        group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0007_terms_versions"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.AlterModelOptions(
            name="sale", options={"ordering": ["opens_at", "slug"], "permissions": SALE_RIGHTS}
        ),
        migrations.AddField("sale", "retired_at", models.DateTimeField(blank=True, editable=False, null=True)),
        migrations.AddIndex(
            "sale",
            models.Index(
                fields=["opens_at", "slug"], condition=models.Q(retired_at__isnull=True), name="sale_not_retired"
            ),
        ),
        # Backwards the right stays: Django takes none away either.
        migrations.RunPython(give_right, migrations.RunPython.noop),
    ]
