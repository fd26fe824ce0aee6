"""The audit reads payments without their orders, which it has read already: these say what is due for each."""

from django.db import migrations

# As migration 0037 made it, and what a payment of the order must come to.
DECISIONS = """
CREATE OR REPLACE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND NOT o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn,
       o.terms_version, coalesce(o.ordinal > s.ordinal_base, false) AS in_order,
       o.terms_version IS NOT NULL AND ((t.price, t.currency, t.per_buyer_limit)
                                        IS DISTINCT FROM (o.unit_price, o.currency, o.buyer_limit)
           OR coalesce(o.hold_expires_at <> o.decided_at + make_interval(secs => t.hold_seconds), false)) AS terms_broken,
       NOT o.restored AND o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS stood_by{due}
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id
LEFT JOIN shop_saleterms t ON t.sale_id = o.sale_id AND t.version = o.terms_version;
"""
DUE = ", o.quantity * o.unit_price AS due, o.currency AS due_currency"
# As migration 0039 made it, with outer joins: the planner leaves out those of which no column is read.
PAYMENTS = """
CREATE OR REPLACE VIEW inventory_payment AS
SELECT p.reference, p.state, p.amount, p.currency, p.changed_at, o.request_id, o.state AS order_state,
       o.quantity * o.unit_price AS due, o.currency AS due_currency, s.stock_id, o.sale_id, p.created_at,
       p.provider, p.order_id
FROM shop_payment p {join} shop_order o ON o.id = p.order_id {join} shop_sale s ON s.id = o.sale_id;
"""
OLD_DECISIONS = "DROP VIEW inventory_decision;" + DECISIONS.format(due="")


class Migration(migrations.Migration):
    dependencies = [("shop", "0044_changes_without_their_orders")]
    operations = [
        migrations.RunSQL(DECISIONS.format(due=DUE), OLD_DECISIONS),
        migrations.RunSQL(PAYMENTS.format(join="LEFT JOIN"), PAYMENTS.format(join="JOIN")),
    ]
