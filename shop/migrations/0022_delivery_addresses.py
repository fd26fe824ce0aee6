"""Delivery addresses, for sales whose goods are shipped, with the right of staff to see them."""

from django.db import migrations, models
from django.db.models.functions import Now


def let_roles_see(apps, schema_editor):
    """Give operators and managers the right, as 0016_mails does; a role that was deleted is not made again."""
    alias = schema_editor.connection.alias
    kind, _ = (
        apps.get_model("contenttypes", "ContentType")
        .objects.using(alias)
        .get_or_create(app_label="shop", model="deliveryaddress")
    )
    right, _ = (
        apps.get_model("auth", "Permission")
        .objects.using(alias)
        .get_or_create(
            content_type=kind, codename="view_deliveryaddress", defaults={"name": "Can view delivery address"}
        )
    )
    for group in apps.get_model("auth", "Group").objects.using(alias).filter(name__in=["operator", "manager"]):
        group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [("shop", "0021_texts_in_chinese"), ("contenttypes", "0002_remove_content_type_name")]
    operations = [
        migrations.AddField("sale", "ships", models.BooleanField("goods are shipped", default=False, db_default=False)),
        migrations.CreateModel(
            name="DeliveryAddress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("request_id", models.CharField(max_length=40)),
                ("name", models.CharField(max_length=100)),
                ("lines", models.CharField(max_length=300)),
                ("postcode", models.CharField(max_length=20, blank=True)),
                ("city", models.CharField(max_length=100)),
                ("country", models.CharField(max_length=80)),
                ("changed_at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "verbose_name_plural": "delivery addresses",
                "constraints": [models.UniqueConstraint(fields=["request_id"], name="delivery_once_per_request")],
            },
        ),
        migrations.RunPython(let_roles_see, migrations.RunPython.noop),
    ]
