"""The views of changes and payments say of which order each is, so that the audit of one sale reads its orders alone."""

from django.db import migrations

# As migration 0005 made it, and one column more.
CHANGES = """
CREATE {replace} VIEW inventory_change AS
SELECT e.id AS change_no, o.request_id, s.stock_id, o.sale_id, o.quantity, e.from_state, e.to_state, e.at,
       e.actor{order_id}
FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id;
"""
# As migration 0015 made it, and one column more.
PAYMENTS = """
CREATE {replace} VIEW inventory_payment AS
SELECT p.reference, p.state, p.amount, p.currency, p.changed_at, o.request_id, o.state AS order_state,
       o.quantity * o.unit_price AS due, o.currency AS due_currency, s.stock_id, o.sale_id, p.created_at,
       p.provider{order_id}
FROM shop_payment p JOIN shop_order o ON o.id = p.order_id JOIN shop_sale s ON s.id = o.sale_id;
"""
VIEWS = CHANGES.format(replace="OR REPLACE", order_id=", e.order_id") + PAYMENTS.format(
    replace="OR REPLACE", order_id=", p.order_id"
)
OLD_VIEWS = (
    "DROP VIEW inventory_change; DROP VIEW inventory_payment;"
    + CHANGES.format(replace="", order_id="")
    + PAYMENTS.format(replace="", order_id="")
)


class Migration(migrations.Migration):
    dependencies = [("shop", "0038_notices_by_payment")]
    operations = [migrations.RunSQL(VIEWS, OLD_VIEWS)]
