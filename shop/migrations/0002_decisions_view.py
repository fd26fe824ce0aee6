"""Shows orders in the words of the inventory floor, so that its audit can read them without knowing the shop."""

from django.db import migrations

VIEW = """
CREATE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial"), ("inventory", "0002_append_only_movements")]
    operations = [migrations.RunSQL(VIEW, "DROP VIEW inventory_decision")]
