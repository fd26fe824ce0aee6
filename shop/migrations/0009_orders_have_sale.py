"""Checks an order's reference to its sale once a statement, where a foreign key checks it row by row.

It takes the same lock on the sale as a foreign key does, so that a delete at the same moment waits and is refused.
"""

import django.db.models.deletion
from django.db import migrations, models
REFERENCE = """
CREATE FUNCTION shop_orders_have_sale() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    PERFORM FROM shop_sale WHERE id IN (SELECT sale_id FROM new_rows) FOR KEY SHARE;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found <> (SELECT count(DISTINCT sale_id) FROM new_rows) THEN
        RAISE EXCEPTION 'an order names a sale that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER orders_have_sale AFTER INSERT ON shop_order
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION shop_orders_have_sale();
CREATE FUNCTION shop_sale_has_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM shop_order WHERE sale_id = OLD.id) THEN
        RAISE EXCEPTION 'sale % still has orders', OLD.id USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sale_has_orders AFTER DELETE OR UPDATE OF id ON shop_sale
    FOR EACH ROW EXECUTE FUNCTION shop_sale_has_orders();
"""
NO_REFERENCE = """
DROP TRIGGER sale_has_orders ON shop_sale;
DROP FUNCTION shop_sale_has_orders();
DROP TRIGGER orders_have_sale ON shop_order;
DROP FUNCTION shop_orders_have_sale();
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0008_retired")]
    operations = [
        migrations.RunSQL(REFERENCE, NO_REFERENCE),
        migrations.AlterField(
            "order",
            "sale",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="orders",
                to="shop.sale",
            ),
        ),
    ]
