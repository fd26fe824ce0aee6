"""Holds every order to the table of allowed changes, writes the history of each, and keeps the terms of the past.

A statement is checked as a whole: one look for 500 orders costs what one order's costs.
"""

from django.db import migrations

FIRST_STATES = "'held', 'sold_out', 'refused', 'cancelled'"
ALLOWED = """
    ('held', 'paid'), ('held', 'expired'), ('held', 'cancelled'), ('expired', 'paid'), ('expired', 'refunded'),
    ('cancelled', 'refunded'), ('paid', 'refunded')
"""
# The function's own settings: a worker's connection plans without hash joins, which two sets of 500 rows need; and
# LIMIT 1 tempts the planner into a nested loop, which takes 25 s for 15,000 rows.
LIFE = f"""
CREATE FUNCTION shop_order_begins() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wrong record;
BEGIN
    SELECT request_id, state INTO wrong FROM new_rows WHERE state NOT IN ({FIRST_STATES}) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'order % cannot begin as %', wrong.request_id, wrong.state USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason)
    SELECT id, 'queued', state, decided_at, actor, reason FROM new_rows ORDER BY id;
    RETURN NULL;
END $$;
CREATE FUNCTION shop_order_changes() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_seqscan = on SET enable_nestloop = off AS $$
DECLARE wrong record;
BEGIN
    SELECT o.request_id, o.state AS was, n.state INTO wrong FROM old_rows o LEFT JOIN new_rows n USING (id)
    WHERE (n.state IS DISTINCT FROM o.state AND (o.state, n.state) NOT IN ({ALLOWED}))
       OR (n.request_id, n.sale_id, n.buyer, n.quantity, n.seq, n.unit_price, n.currency)
          IS DISTINCT FROM (o.request_id, o.sale_id, o.buyer, o.quantity, o.seq, o.unit_price, o.currency)
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
CREATE TRIGGER order_begins AFTER INSERT ON shop_order
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION shop_order_begins();
CREATE TRIGGER order_changes AFTER UPDATE ON shop_order
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION shop_order_changes();

CREATE FUNCTION shop_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never taken back: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER order_rows_never_go BEFORE DELETE ON shop_order
    FOR EACH ROW EXECUTE FUNCTION shop_refuse_change();
CREATE TRIGGER event_rows_never_change BEFORE UPDATE OR DELETE ON shop_orderevent
    FOR EACH ROW EXECUTE FUNCTION shop_refuse_change();
CREATE TRIGGER event_table_never_emptied BEFORE TRUNCATE ON shop_orderevent
    FOR EACH STATEMENT EXECUTE FUNCTION shop_refuse_change();
CREATE TRIGGER act_rows_never_change BEFORE UPDATE OR DELETE ON shop_staffact
    FOR EACH ROW EXECUTE FUNCTION shop_refuse_change();
DO $$ BEGIN
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON shop_orderevent, shop_staffact FROM %I', current_user);
END $$;
"""
UNLIFE = """
DO $$ BEGIN
    EXECUTE format('GRANT UPDATE, DELETE, TRUNCATE ON shop_orderevent, shop_staffact TO %I', current_user);
END $$;
DROP TRIGGER act_rows_never_change ON shop_staffact;
DROP TRIGGER event_table_never_emptied ON shop_orderevent;
DROP TRIGGER event_rows_never_change ON shop_orderevent;
DROP TRIGGER order_rows_never_go ON shop_order;
DROP TRIGGER order_changes ON shop_order;
DROP TRIGGER order_begins ON shop_order;
DROP FUNCTION shop_refuse_change();
DROP FUNCTION shop_order_changes();
DROP FUNCTION shop_order_begins();
"""

PAST_TERMS = """
CREATE OR REPLACE FUNCTION shop_next_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.terms_version := OLD.terms_version + 1;
    IF (NEW.price, NEW.currency, NEW.per_buyer_limit, NEW.hold_seconds)
       IS DISTINCT FROM (OLD.price, OLD.currency, OLD.per_buyer_limit, OLD.hold_seconds) THEN
        -- Until the line has heard of the new terms it lets people in under the old ones: it says when that ended.
        INSERT INTO shop_pastterms (sale_id, version, until_us, price, currency, per_buyer_limit, hold_seconds)
        VALUES (OLD.id, OLD.terms_version, 9223372036854775807, OLD.price, OLD.currency, OLD.per_buyer_limit,
                OLD.hold_seconds);
    END IF;
    RETURN NEW;
END $$;
"""
ONLY_VERSION = """
CREATE OR REPLACE FUNCTION shop_next_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.terms_version := OLD.terms_version + 1;
    RETURN NEW;
END $$;
"""

# in_turn: decided when its place in line came, so seq must rise (I8); not so one that left the line by itself, was
# refused as a dead letter, or was brought back by its ticket after Redis had lost it.
VIEW = """
CREATE OR REPLACE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND o.state <> 'refused' AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id;
CREATE VIEW inventory_change AS
SELECT e.id AS change_no, o.request_id, s.stock_id, o.sale_id, o.quantity, e.from_state, e.to_state, e.at, e.actor
FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id;
CREATE VIEW inventory_payment AS
SELECT p.reference, p.state, p.amount, p.currency, p.changed_at, o.request_id, o.state AS order_state,
       o.quantity * o.unit_price AS due, o.currency AS due_currency, s.stock_id, o.sale_id
FROM shop_payment p JOIN shop_order o ON o.id = p.order_id JOIN shop_sale s ON s.id = o.sale_id;
"""
OLD_VIEW = """
DROP VIEW inventory_payment;
DROP VIEW inventory_change;
DROP VIEW inventory_decision;
CREATE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0004_from_hold_to_sold"), ("inventory", "0003_retake_and_return")]
    operations = [
        migrations.RunSQL(LIFE, UNLIFE),
        migrations.RunSQL(PAST_TERMS, ONLY_VERSION),
        migrations.RunSQL(VIEW, OLD_VIEW),
    ]
