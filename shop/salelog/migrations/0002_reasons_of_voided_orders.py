"""Publishes the code of the reason for which an order was voided before shipping; other reasons stay private."""

from django.db import migrations, models

CODES = (
    "buyer_asked",
    "faulty",
    "not_deliverable",
    "sale_called_off",
    "suspected_fraud",
    "our_mistake",
)
GIVEN = "CASE NEW.reason WHEN '' THEN 'none' ELSE 'given' END"
WITH_CODES = f"""CASE WHEN NEW.reason = '' THEN 'none'
                WHEN NEW.act = 'void_order' AND split_part(NEW.reason, ':', 1) IN {CODES}
                THEN split_part(NEW.reason, ':', 1) ELSE 'given' END"""
NUMBER_ACT = """
CREATE OR REPLACE FUNCTION salelog_number_act() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '8s' AS $$
DECLARE line record;
BEGIN
    SELECT stock_id INTO line FROM shop_sale WHERE id = NEW.sale_id;
    PERFORM FROM inventory_stock WHERE id = line.stock_id FOR UPDATE;
    INSERT INTO salelog_lineevent (number, stock_id, sale_id, kind, change, act, role, reason, terms_version, at)
    SELECT nextval('shop_orderevent_id_seq'), stock_id, id, 'act', 0, NEW.act,
           CASE NEW.actor WHEN 'reconciler' THEN 'shop' ELSE 'staff' END,
           {reason}, terms_version, clock_timestamp()
    FROM shop_sale WHERE id = NEW.sale_id;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("salelog", "0001_logs_and_numbered_events")]
    operations = [
        migrations.AlterField("lineevent", "reason", models.CharField(blank=True, max_length=32)),
        migrations.RunSQL(NUMBER_ACT.format(reason=WITH_CODES), NUMBER_ACT.format(reason=GIVEN)),
    ]
