"""Buyers of past sales and acts of staff go with their time: by functions that one kind of process may call."""

from django.db import migrations, models

# Written as the owner of the tables: the process that calls it may change no order by itself. All orders of a buyer in
# a sale get the same id, so the audit goes on to see who had more than the limit.
BUYERS = """
CREATE FUNCTION shop_forget_buyers(of_sale bigint, days int, after_buyer text, most int, OUT done int, OUT last text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE buyers text[]; stand_ins text[];
BEGIN
    done := 0;
    PERFORM FROM shop_sale WHERE id = of_sale AND retired_at IS NOT NULL AND buyers_forgotten_at IS NULL
        AND closes_at < now() - make_interval(days => shop_forget_buyers.days) FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Made before the update, which may look at its source once an order.
    SELECT array_agg(b.buyer ORDER BY b.buyer),
           array_agg('gone-' || replace(gen_random_uuid()::text, '-', '') ORDER BY b.buyer)
    INTO buyers, stand_ins FROM (
        SELECT DISTINCT o.buyer FROM shop_order o WHERE o.sale_id = of_sale AND o.buyer > after_buyer
        ORDER BY o.buyer LIMIT most) b;
    IF buyers IS NULL THEN
        UPDATE shop_sale SET buyers_forgotten_at = now() WHERE id = of_sale;
        done := 1;
        RETURN;
    END IF;
    UPDATE shop_order o SET buyer = n.stand_in FROM unnest(buyers, stand_ins) AS n (buyer, stand_in)
    WHERE o.sale_id = of_sale AND o.buyer = n.buyer AND n.buyer NOT LIKE 'gone-%';
    done := cardinality(buyers);
    last := buyers[done];
END $$;
"""
NO_BUYERS = "DROP FUNCTION shop_forget_buyers(bigint, int, text, int);"
# Nobody has the right to delete acts, not even the owner of the table (the audit checks that): it is granted for the
# length of this transaction, which no other sees. The setting tells the trigger below.
ACTS = """
CREATE FUNCTION shop_forget_acts(days int, most int) RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE due bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(7305118) THEN
        RETURN 0;
    END IF;
    SELECT array_agg(id) INTO due FROM (
        SELECT a.id FROM shop_staffact a LEFT JOIN shop_sale s ON s.id = a.sale_id
        WHERE a.at < now() - make_interval(days => greatest(shop_forget_acts.days, 30))
          AND (a.sale_id IS NULL OR s.retired_at IS NOT NULL)
        ORDER BY a.id LIMIT most) oldest;
    IF due IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('GRANT DELETE ON shop_staffact TO %I', current_user);
    PERFORM set_config('fairdrop.retention', 'on', true);
    DELETE FROM shop_staffact WHERE id = ANY(due);
    PERFORM set_config('fairdrop.retention', '', true);
    EXECUTE format('REVOKE DELETE ON shop_staffact FROM %I', current_user);
    RETURN cardinality(due);
END $$;
"""
NO_ACTS = "DROP FUNCTION shop_forget_acts(int, int);"
# As migration 0005 made it, but for old acts. The rows of other tables have no such column, so it is asked for inside.
REFUSAL = """
CREATE OR REPLACE FUNCTION shop_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN{old_acts}
    RAISE EXCEPTION 'rows of % are never taken back: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
"""
OLD_ACTS = """
    IF TG_TABLE_NAME = 'shop_staffact' AND TG_OP = 'DELETE' AND current_setting('fairdrop.retention', true) = 'on' THEN
        IF OLD.at < now() - interval '30 days' THEN
            RETURN OLD;
        END IF;
    END IF;"""
# Afterwards workers/database_rights.py grants them to the role of the reconciler.
OWN = """
REVOKE EXECUTE ON FUNCTION shop_forget_buyers(bigint, int, text, int) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shop_forget_acts(int, int) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shop_forget_networks(bigint, int) FROM PUBLIC;
"""
OTHERS = "GRANT EXECUTE ON FUNCTION shop_forget_networks(bigint, int) TO PUBLIC;"


class Migration(migrations.Migration):
    dependencies = [("shop", "0030_lists_and_presales")]
    operations = [
        migrations.AddField("sale", "buyers_forgotten_at", models.DateTimeField(blank=True, editable=False, null=True)),
        migrations.RunSQL(BUYERS, NO_BUYERS),
        migrations.RunSQL(ACTS, NO_ACTS),
        migrations.RunSQL(REFUSAL.replace("{old_acts}", OLD_ACTS), REFUSAL.replace("{old_acts}", "")),
        migrations.RunSQL(OWN, OTHERS),
    ]
