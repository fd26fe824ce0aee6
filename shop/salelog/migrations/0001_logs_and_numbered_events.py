"""Sale logs and their tiles, and events numbered in one row with the history of orders, under the stock's lock."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

# Written as the owner of the tables: no process may write an event by itself. An act of staff locks the stock first,
# so its number cannot fall below one that was read already.
NUMBERS = """
CREATE FUNCTION salelog_number_units() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO salelog_lineevent (number, stock_id, kind, change, act, role, reason, at)
    VALUES (nextval('shop_orderevent_id_seq'), NEW.stock_id, NEW.kind, NEW.delta, '', '', '', clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER movement_is_numbered AFTER INSERT ON inventory_stockmovement
    FOR EACH ROW WHEN (NEW.kind IN ('load', 'adjust')) EXECUTE FUNCTION salelog_number_units();
-- Staff must be able to pause and close a sale whose settler hangs with the row: it waits until the server has ended that.
CREATE FUNCTION salelog_number_act() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '8s' AS $$
DECLARE line record;
BEGIN
    SELECT stock_id INTO line FROM shop_sale WHERE id = NEW.sale_id;
    PERFORM FROM inventory_stock WHERE id = line.stock_id FOR UPDATE;
    INSERT INTO salelog_lineevent (number, stock_id, sale_id, kind, change, act, role, reason, terms_version, at)
    SELECT nextval('shop_orderevent_id_seq'), stock_id, id, 'act', 0, NEW.act,
           CASE NEW.actor WHEN 'reconciler' THEN 'shop' ELSE 'staff' END,
           CASE NEW.reason WHEN '' THEN 'none' ELSE 'given' END, terms_version, clock_timestamp()
    FROM shop_sale WHERE id = NEW.sale_id;
    RETURN NULL;
END $$;
CREATE TRIGGER act_is_numbered AFTER INSERT ON shop_staffact
    FOR EACH ROW WHEN (NEW.sale_id IS NOT NULL) EXECUTE FUNCTION salelog_number_act();
CREATE TRIGGER line_events_never_change BEFORE UPDATE OR DELETE ON salelog_lineevent
    FOR EACH ROW EXECUTE FUNCTION shop_refuse_change();
"""
NO_NUMBERS = """
DROP TRIGGER line_events_never_change ON salelog_lineevent;
DROP TRIGGER act_is_numbered ON shop_staffact;
DROP FUNCTION salelog_number_act();
DROP TRIGGER movement_is_numbered ON inventory_stockmovement;
DROP FUNCTION salelog_number_units();
"""
STAYS = """
CREATE FUNCTION salelog_tile_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (NEW.sale_id, NEW.level, NEW.number) IS DISTINCT FROM (OLD.sale_id, OLD.level, OLD.number)
       OR substr(NEW.data, 1, length(OLD.data)) IS DISTINCT FROM OLD.data THEN
        RAISE EXCEPTION 'what a sale''s log has published is never changed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tile_stays BEFORE UPDATE OR DELETE ON salelog_tile
    FOR EACH ROW EXECUTE FUNCTION salelog_tile_stays();
CREATE FUNCTION salelog_log_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.size < OLD.size OR NEW.at_us < OLD.at_us OR NEW.cursor < OLD.cursor
       OR (OLD.size > 0 AND NEW.origin <> OLD.origin) THEN
        RAISE EXCEPTION 'a sale''s log only grows' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER log_grows BEFORE UPDATE ON salelog_salelog FOR EACH ROW EXECUTE FUNCTION salelog_log_grows();
"""
GOES = """
DROP TRIGGER log_grows ON salelog_salelog;
DROP FUNCTION salelog_log_grows();
DROP TRIGGER tile_stays ON salelog_tile;
DROP FUNCTION salelog_tile_stays();
"""
FIRST_ROWS = """
INSERT INTO salelog_reading (id, read_to) VALUES (1, 0);
INSERT INTO salelog_salelog (sale_id, is_kept, versions, lost, restored)
SELECT id, false, '[]', '[]', '{}' FROM shop_sale s WHERE EXISTS (SELECT FROM shop_order o WHERE o.sale_id = s.id);
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = [("shop", "0018_acts_of_no_sale"), ("inventory", "0005_movements_have_stock")]
    operations = [
        migrations.CreateModel(
            name="SaleLog",
            fields=[
                (
                    "sale",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="log",
                        serialize=False,
                        to="shop.sale",
                    ),
                ),
                ("is_kept", models.BooleanField(db_default=True)),
                ("origin", models.CharField(db_default="", max_length=300)),
                ("size", models.BigIntegerField(db_default=0)),
                ("checkpoint", models.TextField(blank=True, db_default="")),
                ("at_us", models.BigIntegerField(db_default=0)),
                ("cursor", models.BigIntegerField(db_default=0)),
                ("is_open", models.BooleanField(db_default=False)),
                ("is_closed", models.BooleanField(db_default=False)),
                ("units", models.IntegerField(db_default=0)),
                ("ordinal", models.BigIntegerField(db_default=0)),
                ("seq", models.BigIntegerField(db_default=0)),
                ("versions", models.JSONField(blank=True, default=list)),
                ("lost", models.JSONField(blank=True, default=list)),
                ("restored", models.JSONField(blank=True, default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="Tile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("level", models.SmallIntegerField()),
                ("number", models.BigIntegerField()),
                ("width", models.SmallIntegerField()),
                ("data", models.BinaryField()),
                ("ordinal", models.BigIntegerField(db_default=0)),
                (
                    "sale",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="shop.sale",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("sale", "level", "number"), name="tile_once"),
                    models.CheckConstraint(condition=Q(width__gte=1, width__lte=256), name="tile_of_at_most_256"),
                ],
            },
        ),
        migrations.CreateModel(
            name="LineEvent",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=8)),
                ("change", models.IntegerField()),
                ("act", models.CharField(blank=True, max_length=20)),
                ("role", models.CharField(blank=True, max_length=8)),
                ("reason", models.CharField(blank=True, max_length=8)),
                ("terms_version", models.BigIntegerField(null=True)),
                ("at", models.DateTimeField(db_default=Now())),
                (
                    "sale",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="shop.sale",
                    ),
                ),
                (
                    "stock",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="inventory.stock",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Reading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("read_to", models.BigIntegerField(db_default=0)),
            ],
        ),
        migrations.RunSQL(NUMBERS, NO_NUMBERS),
        migrations.RunSQL(STAYS, GOES),
        migrations.RunSQL(FIRST_ROWS, migrations.RunSQL.noop),
    ]
