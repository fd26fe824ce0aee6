"""Shows the audit the number of each load and adjustment, in one row with the numbers of changes."""

from django.db import migrations

VIEW = """
CREATE VIEW inventory_load AS SELECT number, stock_id, change FROM salelog_lineevent WHERE kind IN ('load', 'adjust');
"""


class Migration(migrations.Migration):
    dependencies = [("salelog", "0002_reasons_of_voided_orders")]
    operations = [migrations.RunSQL(VIEW, "DROP VIEW inventory_load")]
