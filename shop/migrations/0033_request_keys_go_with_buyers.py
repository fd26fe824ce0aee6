"""The request key of a past sale is destroyed with its buyers, so that nobody can link the pseudonyms of its log."""

from django.db import migrations

# As migration 0031 made it, but for the key: a random one takes its place, never none, for which anybody could make
# the pseudonym of any buyer.
BUYERS = """
CREATE OR REPLACE FUNCTION shop_forget_buyers(
    of_sale bigint, days int, after_buyer text, most int, OUT done int, OUT last text)
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
        UPDATE shop_sale SET buyers_forgotten_at = now(){key} WHERE id = of_sale;
        done := 1;
        RETURN;
    END IF;
    UPDATE shop_order o SET buyer = n.stand_in FROM unnest(buyers, stand_ins) AS n (buyer, stand_in)
    WHERE o.sale_id = of_sale AND o.buyer = n.buyer AND n.buyer NOT LIKE 'gone-%';
    done := cardinality(buyers);
    last := buyers[done];
END $$;
"""
NEW_KEY = "request_key = replace(gen_random_uuid()::text, '-', '')"
# Those whose buyers went before this migration.
PAST = f"UPDATE shop_sale SET {NEW_KEY} WHERE buyers_forgotten_at IS NOT NULL;"  # noqa: S608 - no value of anybody's


class Migration(migrations.Migration):
    dependencies = [("shop", "0032_closed_sales_free_their_window")]
    operations = [
        migrations.RunSQL(BUYERS.replace("{key}", f", {NEW_KEY}"), BUYERS.replace("{key}", "")),
        # A key that is destroyed does not come back.
        migrations.RunSQL(PAST, migrations.RunSQL.noop),
    ]
