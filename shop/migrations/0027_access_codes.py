"""Access codes: which sales ask for one, the codes as their HMACs, and what each was shown for."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Now

RIGHT = ("make_codes", "Can make access codes for a sale")
SALE_RIGHTS = [
    ("open_sale", "Can open a sale before its time"),
    ("pause_sale", "Can pause and resume a sale"),
    ("close_sale", "Can close a sale for good"),
    ("change_stock", "Can restock and adjust the stock of a sale"),
    ("retry_dead_letter", "Can put dead letters back in line"),
    ("discard_dead_letter", "Can discard dead letters"),
    ("reconcile_sale", "Can have a sale's stores compared and mended"),
    ("retire_sale", "Can retire a sale that is over"),
    RIGHT,
]


def let_managers(apps, schema_editor):
    """Give managers the right; a role that was deleted is not made again."""
    alias = schema_editor.connection.alias
    kinds = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    kind, _ = kinds.get_or_create(app_label="shop", model="sale")
    rights = apps.get_model("auth", "Permission").objects.using(alias)
    right, _ = rights.get_or_create(content_type=kind, codename=RIGHT[0], defaults={"name": RIGHT[1]})
    for group in apps.get_model("auth", "Group").objects.using(alias).filter(name="manager"):
        group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [("shop", "0026_passes"), ("contenttypes", "0002_remove_content_type_name")]

    operations = [
        migrations.AlterModelOptions("sale", options={"ordering": ["opens_at", "slug"], "permissions": SALE_RIGHTS}),
        migrations.AddField(
            "sale",
            "codes_required",
            models.BooleanField("an access code is needed", default=False, db_default=False),
        ),
        migrations.CreateModel(
            name="AccessCode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                ("counts_units", models.BooleanField(default=False)),
                ("uses", models.PositiveIntegerField()),
                ("left", models.PositiveIntegerField()),
                ("batch", models.CharField(max_length=60)),
                ("made_at", models.DateTimeField(db_default=Now())),
                (
                    "sale",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="access_codes", to="shop.sale"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["sale", "digest"], name="code_once_per_sale"),
                    models.CheckConstraint(condition=Q(left__lte=F("uses")), name="code_left_at_most_its_uses"),
                ],
            },
        ),
        migrations.CreateModel(
            name="CodeUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("request_id", models.CharField(max_length=40)),
                ("uses", models.PositiveIntegerField()),
                ("at", models.DateTimeField(db_default=Now())),
                (
                    "code",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="shown_for", to="shop.accesscode"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["request_id"], name="one_code_per_request")],
            },
        ),
        migrations.RunPython(let_managers, migrations.RunPython.noop),
    ]
