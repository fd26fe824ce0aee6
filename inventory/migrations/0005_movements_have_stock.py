"""Checks a movement's reference to its stock once a statement, where a foreign key checks it row by row.

It takes the same lock on the stock row as a foreign key does, so that a delete at the same moment waits and is refused.
"""

import django.db.models.deletion
from django.db import migrations, models

REFERENCE = """
CREATE FUNCTION inventory_movements_have_stock() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    PERFORM FROM inventory_stock WHERE id IN (SELECT stock_id FROM new_rows) FOR KEY SHARE;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found <> (SELECT count(DISTINCT stock_id) FROM new_rows) THEN
        RAISE EXCEPTION 'a movement names a stock that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER movements_have_stock AFTER INSERT ON inventory_stockmovement
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION inventory_movements_have_stock();
CREATE FUNCTION inventory_stock_has_movements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM inventory_stockmovement WHERE stock_id = OLD.id) THEN
        RAISE EXCEPTION 'stock % still has movements', OLD.id USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER stock_has_movements AFTER DELETE OR UPDATE OF id ON inventory_stock
    FOR EACH ROW EXECUTE FUNCTION inventory_stock_has_movements();
"""
NO_REFERENCE = """
DROP TRIGGER stock_has_movements ON inventory_stock;
DROP FUNCTION inventory_stock_has_movements();
DROP TRIGGER movements_have_stock ON inventory_stockmovement;
DROP FUNCTION inventory_movements_have_stock();
"""


class Migration(migrations.Migration):
    dependencies = [("inventory", "0004_lock_right")]
    operations = [
        migrations.RunSQL(REFERENCE, NO_REFERENCE),
        migrations.AlterField(
            "stockmovement",
            "stock",
            models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="movements",
                to="inventory.stock",
            ),
        ),
    ]
