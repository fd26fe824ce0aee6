"""The view of decisions compares how long a hold lasts with the terms of its version, as it compares the other terms."""

from django.db import migrations

# As migration 0020 made it, but for {hold}: a decision and the end of its hold come from one moment.
VIEW = """
CREATE OR REPLACE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND NOT o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn,
       o.terms_version, coalesce(o.ordinal > s.ordinal_base, false) AS in_order,
       o.terms_version IS NOT NULL AND ((t.price, t.currency, t.per_buyer_limit)
                                        IS DISTINCT FROM (o.unit_price, o.currency, o.buyer_limit){hold}) AS terms_broken,
       NOT o.restored AND o.standby AND o.state <> 'refused'
           AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS stood_by
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id
LEFT JOIN shop_saleterms t ON t.sale_id = o.sale_id AND t.version = o.terms_version;
"""
HOLD = """
           OR coalesce(o.hold_expires_at <> o.decided_at + make_interval(secs => t.hold_seconds), false)"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0036_acts_have_their_own_lock")]
    operations = [migrations.RunSQL(VIEW.format(hold=HOLD), VIEW.format(hold=""))]
