"""The right to take a lock away from its holder."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("inventory", "0003_retake_and_return")]
    operations = [
        migrations.AlterModelOptions(
            name="stock",
            options={
                "permissions": [("force_release_lock", "Can take a lock away from its holder")],
                "verbose_name_plural": "stock",
            },
        ),
    ]
