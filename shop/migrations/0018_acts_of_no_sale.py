"""The log of acts also has acts that are of no sale: logins, codes, forms of the admin."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0017_payments_to_end")]
    operations = [
        migrations.AlterField(
            model_name="staffact",
            name="sale",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="acts", to="shop.sale"
            ),
        ),
    ]
