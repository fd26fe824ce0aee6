"""The view of changes looks up orders only for what is asked of them: the audit has read its orders already."""

from django.db import migrations

# As migration 0039 made it, with outer joins: the planner leaves out those of which no column is read.
CHANGES = """
CREATE OR REPLACE VIEW inventory_change AS
SELECT e.id AS change_no, o.request_id, s.stock_id, o.sale_id, o.quantity, e.from_state, e.to_state, e.at,
       e.actor, e.order_id
FROM shop_orderevent e {join} shop_order o ON o.id = e.order_id {join} shop_sale s ON s.id = o.sale_id;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0043_sales_by_their_end")]
    operations = [migrations.RunSQL(CHANGES.format(join="LEFT JOIN"), CHANGES.format(join="JOIN"))]
