"""A declined payment is asked about for as long as it may still be paid; the audit sees how old each payment is."""

from datetime import timedelta

from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.lookups import LessThan

from shop.models import InUtc

STILL_ASKED_ABOUT = Q(state="pending") | Q(
    LessThan(F("changed_at") - F("created_at"), timedelta(days=2)), state="declined"
)
NEXT_QUESTION = InUtc(F("changed_at")) + (F("changed_at") - F("created_at"))
COLUMNS = """
SELECT p.reference, p.state, p.amount, p.currency, p.changed_at, o.request_id, o.state AS order_state,
       o.quantity * o.unit_price AS due, o.currency AS due_currency, s.stock_id, o.sale_id
"""
TABLES = """
FROM shop_payment p JOIN shop_order o ON o.id = p.order_id JOIN shop_sale s ON s.id = o.sale_id
"""
VIEW = f"CREATE OR REPLACE VIEW inventory_payment AS {COLUMNS}, p.created_at, p.provider {TABLES}"
OLD_VIEW = f"DROP VIEW inventory_payment; CREATE VIEW inventory_payment AS {COLUMNS} {TABLES}"


class Migration(migrations.Migration):
    dependencies = [("shop", "0014_order_with_units_by_buyer")]
    operations = [
        migrations.RemoveIndex("payment", "payment_asked_about"),
        migrations.AddIndex(
            "payment", models.Index(NEXT_QUESTION, condition=STILL_ASKED_ABOUT, name="payment_asked_about")
        ),
        migrations.RunSQL(VIEW, OLD_VIEW),
    ]
