"""shop_forget_acts takes a lock of its own: the one it had was the notary's, so old acts were left for an hour whenever
a log was being published. Only the number changes; who may call the function stays.
"""

from django.db import migrations

# As AdvisoryLock.NOTARY and AdvisoryLock.OLD_ACTS of inventory/postgres.py.
NUMBERS = ("7305118", "7305119")
REPLACE = """
DO $$ DECLARE definition text := pg_get_functiondef('shop_forget_acts(int, int)'::regprocedure);
BEGIN
    IF position('{0}' IN definition) = 0 THEN
        RAISE EXCEPTION 'shop_forget_acts has not the lock % that it was made with', '{0}';
    END IF;
    EXECUTE replace(definition, '{0}', '{1}');
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0035_fields_named_as_their_words")]
    operations = [migrations.RunSQL(REPLACE.format(*NUMBERS), REPLACE.format(*reversed(NUMBERS)))]
