"""An order's buyer may be replaced by an id that stands for one who was forgotten, and by nothing else."""

from django.db import migrations

# As migration 0005 made it, but for what was agreed. A change of state must stand in ALLOWED there.
CHANGES = """
CREATE OR REPLACE FUNCTION shop_order_changes() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_seqscan = on SET enable_nestloop = off AS $$
DECLARE wrong record;
BEGIN
    SELECT o.request_id, o.state AS was, n.state INTO wrong FROM old_rows o LEFT JOIN new_rows n USING (id)
    WHERE (n.state IS DISTINCT FROM o.state AND (o.state, n.state) NOT IN (
              ('held', 'paid'), ('held', 'expired'), ('held', 'cancelled'), ('expired', 'paid'),
              ('expired', 'refunded'), ('cancelled', 'refunded'), ('paid', 'refunded')))
       OR (n.request_id, n.sale_id, n.quantity, n.seq, n.unit_price, n.currency)
          IS DISTINCT FROM (o.request_id, o.sale_id, o.quantity, o.seq, o.unit_price, o.currency)
       OR n.buyer IS DISTINCT FROM o.buyer{forgotten}
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'order % cannot go from % to %, nor change what was agreed', wrong.request_id, wrong.was,
            wrong.state USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason)
    SELECT n.id, o.state, n.state, n.changed_at, n.actor, n.reason FROM new_rows n JOIN old_rows o USING (id)
    WHERE n.state <> o.state ORDER BY n.id;
    RETURN NULL;
END $$;
"""
FORGOTTEN = " AND n.buyer NOT LIKE 'gone-%'"


class Migration(migrations.Migration):
    dependencies = [("shop", "0024_templates_of_terms")]
    operations = [
        migrations.RunSQL(CHANGES.replace("{forgotten}", FORGOTTEN), CHANGES.replace("{forgotten}", "")),
    ]
