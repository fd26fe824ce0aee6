"""The table of the cache that counts failed logins: bounded, and its rows end by themselves."""

from django.core.management import call_command
from django.db import migrations


def make_table(apps, schema_editor):
    call_command("createcachetable", "shop_failed_logins", database=schema_editor.connection.alias, verbosity=0)


class Migration(migrations.Migration):
    dependencies = [("shop", "0010_payments_asked_about")]
    operations = [migrations.RunPython(make_table, migrations.RunPython.noop)]
