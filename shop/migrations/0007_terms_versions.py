"""Makes what a sale promises a row of its own, written once; orders name its version, and their ordinal of admission."""

from django.db import migrations, models

# What was promised before goes on to be found by seq: the first row whose until_us is above it, or has none.
CARRY_OVER = """
ALTER TABLE shop_sale DISABLE TRIGGER sale_counts_its_versions;
UPDATE shop_sale SET terms_version = revision;
ALTER TABLE shop_sale ENABLE TRIGGER sale_counts_its_versions;
INSERT INTO shop_saleterms (sale_id, version, price, currency, per_buyer_limit, hold_seconds)
SELECT id, terms_version, price, currency, per_buyer_limit, hold_seconds FROM shop_sale;
"""
TERMS = """
CREATE OR REPLACE FUNCTION shop_next_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := OLD.revision + 1;
    NEW.terms_version := OLD.terms_version;
    NEW.ordinal_base := greatest(NEW.ordinal_base, OLD.ordinal_base);
    IF (NEW.price, NEW.currency, NEW.per_buyer_limit, NEW.hold_seconds)
       IS DISTINCT FROM (OLD.price, OLD.currency, OLD.per_buyer_limit, OLD.hold_seconds) THEN
        NEW.terms_version := OLD.terms_version + 1;
        INSERT INTO shop_saleterms (sale_id, version, price, currency, per_buyer_limit, hold_seconds)
        VALUES (NEW.id, NEW.terms_version, NEW.price, NEW.currency, NEW.per_buyer_limit, NEW.hold_seconds);
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION shop_first_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop_saleterms (sale_id, version, price, currency, per_buyer_limit, hold_seconds)
    VALUES (NEW.id, NEW.terms_version, NEW.price, NEW.currency, NEW.per_buyer_limit, NEW.hold_seconds);
    RETURN NULL;
END $$;
CREATE TRIGGER sale_has_first_terms AFTER INSERT ON shop_sale FOR EACH ROW EXECUTE FUNCTION shop_first_terms();
CREATE TRIGGER terms_never_change BEFORE UPDATE ON shop_saleterms
    FOR EACH ROW EXECUTE FUNCTION shop_refuse_change();
"""
NO_TERMS = """
DROP TRIGGER terms_never_change ON shop_saleterms;
DROP TRIGGER sale_has_first_terms ON shop_sale;
DROP FUNCTION shop_first_terms();
CREATE OR REPLACE FUNCTION shop_next_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.terms_version := OLD.terms_version + 1;
    IF (NEW.price, NEW.currency, NEW.per_buyer_limit, NEW.hold_seconds)
       IS DISTINCT FROM (OLD.price, OLD.currency, OLD.per_buyer_limit, OLD.hold_seconds) THEN
        INSERT INTO shop_pastterms (sale_id, version, until_us, price, currency, per_buyer_limit, hold_seconds)
        VALUES (OLD.id, OLD.terms_version, 9223372036854775807, OLD.price, OLD.currency, OLD.per_buyer_limit,
                OLD.hold_seconds);
    END IF;
    RETURN NEW;
END $$;
"""
# in_order: its ordinal was given since ordinals last jumped, so the line counts it as well. terms_broken: it has not
# the terms of the version that it names.
VIEWS = """
CREATE OR REPLACE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND o.state <> 'refused' AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn,
       o.terms_version, coalesce(o.ordinal > s.ordinal_base, false) AS in_order,
       o.terms_version IS NOT NULL AND (t.price, t.currency, t.per_buyer_limit)
                                       IS DISTINCT FROM (o.unit_price, o.currency, o.buyer_limit) AS terms_broken
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id
LEFT JOIN shop_saleterms t ON t.sale_id = o.sale_id AND t.version = o.terms_version;
CREATE VIEW inventory_line AS SELECT stock_id, id AS sale_id, ordinal_base FROM shop_sale;
"""
OLD_VIEWS = """
DROP VIEW inventory_line;
DROP VIEW inventory_decision;
CREATE VIEW inventory_decision AS
SELECT o.id AS decided_no, o.request_id, s.stock_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.decided_at,
       o.buyer_limit, o.hold_expires_at, o.changed_at,
       NOT o.restored AND o.state <> 'refused' AND (o.state <> 'cancelled' OR o.hold_expires_at IS NOT NULL) AS in_turn
FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id;
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0006_staff_roles")]
    operations = [
        migrations.RenameField("sale", "terms_version", "revision"),
        migrations.AddField("sale", "terms_version", models.BigIntegerField(default=1, editable=False)),
        migrations.AddField("sale", "ordinal_base", models.BigIntegerField(null=True, editable=False)),
        migrations.RenameModel("PastTerms", "SaleTerms"),
        migrations.AlterModelOptions("saleterms", {"ordering": ["version"], "verbose_name_plural": "sale terms"}),
        migrations.AlterField("saleterms", "until_us", models.BigIntegerField(null=True)),
        migrations.AlterField(
            "saleterms", "sale", models.ForeignKey("shop.Sale", models.CASCADE, related_name="terms")
        ),
        migrations.AddField("order", "terms_version", models.BigIntegerField(null=True)),
        migrations.AddField("order", "ordinal", models.BigIntegerField(null=True)),
        migrations.RunSQL(CARRY_OVER, migrations.RunSQL.noop),
        migrations.RunSQL(TERMS, NO_TERMS),
        migrations.RunSQL(VIEWS, OLD_VIEWS),
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.AddConstraint(
            "saleterms", models.UniqueConstraint(fields=["sale", "version"], name="terms_once_per_version")
        ),
    ]
