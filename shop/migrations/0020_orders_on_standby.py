"""Lets an order say that it waited on standby, so that the audit can hold it to the order of those who did."""

from django.db import migrations, models

STATES = (
    "queued", "waitlisted", "standby", "held", "paid", "expired", "cancelled", "sold_out", "refused", "refunded",
)  # fmt: skip
# in_turn: decided when its place in line came, so seq must rise; stood_by: the same, of those on standby.
VIEW = """
CREATE OR REPLACE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND NOT o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn,
       o.terms_version, coalesce(o.ordinal > s.ordinal_base, false) AS in_order,
       o.terms_version IS NOT NULL AND (t.price, t.currency, t.per_buyer_limit)
                                       IS DISTINCT FROM (o.unit_price, o.currency, o.buyer_limit) AS terms_broken,
       NOT o.restored AND o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS stood_by
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id
LEFT JOIN shop_saleterms t ON t.sale_id = o.sale_id AND t.version = o.terms_version;
"""
OLD_VIEW = """
DROP VIEW inventory_decision;
CREATE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND o.state <> 'refused' AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn,
       o.terms_version, coalesce(o.ordinal > s.ordinal_base, false) AS in_order,
       o.terms_version IS NOT NULL AND (t.price, t.currency, t.per_buyer_limit)
                                       IS DISTINCT FROM (o.unit_price, o.currency, o.buyer_limit) AS terms_broken
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id
LEFT JOIN shop_saleterms t ON t.sale_id = o.sale_id AND t.version = o.terms_version;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0019_per_network_limit")]
    operations = [
        migrations.AddField("order", "standby", models.BooleanField(db_default=False)),
        migrations.AlterField(
            "order", "state", models.CharField(choices=[(each, each) for each in STATES], max_length=10)
        ),
        migrations.RunSQL(VIEW, OLD_VIEW),
    ]
