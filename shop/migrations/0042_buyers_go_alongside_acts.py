"""shop_forget_buyers locks its sale as a change of it does, no longer as its deletion would. That made an act of staff
wait which names the sale, while the function waited for an order that the act had locked: PostgreSQL ended one of them.
Only the lock changes; who may call the function stays.
"""

from django.db import migrations

LOCKS = ("FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE SKIP LOCKED")
REPLACE = """
DO $$ DECLARE definition text := pg_get_functiondef('shop_forget_buyers(bigint, int, text, int)'::regprocedure);
BEGIN
    IF position('{0}' IN definition) = 0 THEN
        RAISE EXCEPTION 'shop_forget_buyers has not the lock that it was made with: %', '{0}';
    END IF;
    EXECUTE replace(definition, '{0}', '{1}');
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0041_retired_sales_keep_no_uses")]
    operations = [migrations.RunSQL(REPLACE.format(*LOCKS), REPLACE.format(*reversed(LOCKS)))]
