"""The texts of goods in Chinese as well: an old process that knows nothing of them leaves them empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0020_orders_on_standby")]
    operations = [
        migrations.AddField(
            "product",
            "tagline_zh",
            models.CharField("tagline in Chinese", max_length=120, blank=True, default="", db_default=""),
        ),
        migrations.AddField(
            "product",
            "description_zh",
            models.TextField("description in Chinese", blank=True, default="", db_default=""),
        ),
        migrations.AddField(
            "sale",
            "title_zh",
            models.CharField("title in Chinese", max_length=80, blank=True, default="", db_default=""),
        ),
    ]
