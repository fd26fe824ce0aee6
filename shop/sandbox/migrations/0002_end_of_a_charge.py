"""The payment page shows the time that is left."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sandbox", "0001_charges_and_events")]
    operations = [migrations.AddField("charge", "ends_at", models.DateTimeField(null=True))]
