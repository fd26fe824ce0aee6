"""Terms that staff keep under a name; managers may keep, change and delete them."""

import django.core.validators
from django.db import migrations, models

VERBS = ("add", "change", "delete", "view")


def let_managers_keep_terms(apps, schema_editor):
    """Give the group of managers the rights. Nothing to do where the group was removed."""
    alias = schema_editor.connection.alias
    content_types = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    rights = apps.get_model("auth", "Permission").objects.using(alias)
    kind, _ = content_types.get_or_create(app_label="shop", model="termstemplate")
    group = apps.get_model("auth", "Group").objects.using(alias).filter(name="manager").first()
    if group is None:
        return
    for verb in VERBS:
        # Django makes rights after all migrations; those that are there by then are left as they are.
        named = {"name": f"Can {verb} template of terms"}
        right, _ = rights.get_or_create(content_type=kind, codename=f"{verb}_termstemplate", defaults=named)
        group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [("shop", "0023_sale_history")]
    operations = [
        migrations.CreateModel(
            name="TermsTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60, unique=True)),
                (
                    "price",
                    models.DecimalField(
                        decimal_places=2, max_digits=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                ("currency", models.CharField(default="EUR", max_length=3)),
                (
                    "per_buyer_limit",
                    models.PositiveSmallIntegerField(
                        default=1, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "hold_seconds",
                    models.PositiveIntegerField(default=600, validators=[django.core.validators.MinValueValidator(1)]),
                ),
                ("room", models.PositiveIntegerField(default=200)),
            ],
            options={
                "verbose_name": "template of terms",
                "verbose_name_plural": "templates of terms",
                "ordering": ["name"],
            },
        ),
        migrations.RunPython(let_managers_keep_terms, migrations.RunPython.noop),
    ]
