"""Movements are written once: a trigger refuses a change by anyone, and the app's own role loses the right to try."""

from django.db import migrations

GUARD = """
CREATE FUNCTION inventory_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'stock movements are append-only: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER movement_rows_never_change BEFORE UPDATE OR DELETE ON inventory_stockmovement
    FOR EACH ROW EXECUTE FUNCTION inventory_refuse_change();
CREATE TRIGGER movement_table_never_emptied BEFORE TRUNCATE ON inventory_stockmovement
    FOR EACH STATEMENT EXECUTE FUNCTION inventory_refuse_change();
DO $$ BEGIN
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON inventory_stockmovement FROM %I', current_user);
END $$;
"""
UNGUARD = """
DO $$ BEGIN EXECUTE format('GRANT UPDATE, DELETE, TRUNCATE ON inventory_stockmovement TO %I', current_user); END $$;
DROP TRIGGER movement_table_never_emptied ON inventory_stockmovement;
DROP TRIGGER movement_rows_never_change ON inventory_stockmovement;
DROP FUNCTION inventory_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("inventory", "0001_initial")]
    operations = [migrations.RunSQL(GUARD, UNGUARD)]
