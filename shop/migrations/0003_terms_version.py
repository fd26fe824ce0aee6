"""Counts the versions of a sale's terms in the database, no matter who changes them, and how."""

from django.db import migrations

TRIGGER = """
CREATE FUNCTION shop_next_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.terms_version := OLD.terms_version + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER sale_counts_its_versions BEFORE UPDATE ON shop_sale
    FOR EACH ROW EXECUTE FUNCTION shop_next_terms_version();
"""
UNTRIGGER = """
DROP TRIGGER sale_counts_its_versions ON shop_sale;
DROP FUNCTION shop_next_terms_version();
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_decisions_view")]
    operations = [migrations.RunSQL(TRIGGER, UNTRIGGER)]
