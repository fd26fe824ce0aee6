"""Sales that ask for a verified e-mail."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0028_networks_and_cards")]
    operations = [
        migrations.AddField(
            "sale",
            "email_mode",
            models.CharField(
                "verified e-mail",
                choices=[
                    ("never", "never"),
                    ("verified", "always"),
                    ("once", "always, and one request for each"),
                ],
                db_default="never",
                default="never",
                max_length=8,
            ),
        ),
    ]
