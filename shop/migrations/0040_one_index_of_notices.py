"""Drops the index of declined cards by payment: that of every notice by payment finds them, and each notice cost both."""

from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    # Providers go on telling of money meanwhile.
    atomic = False
    dependencies = [("shop", "0039_orders_in_the_audit_s_views")]
    operations = [RemoveIndexConcurrently("paymentnotice", "payment_notice_declined")]
