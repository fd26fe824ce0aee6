"""Retired sales keep neither which request used which code, nor the networks that staff revoked."""

from django.db import migrations

# As staff and the reconciler do with each sale that they retire from now on.
USES = """
DELETE FROM shop_codeuse u USING shop_accesscode c, shop_sale s
WHERE c.id = u.code_id AND s.id = c.sale_id AND s.retired_at IS NOT NULL
"""
NETWORKS = "UPDATE shop_sale SET revoked_networks = '' WHERE retired_at IS NOT NULL AND revoked_networks <> ''"


class Migration(migrations.Migration):
    dependencies = [("shop", "0040_one_index_of_notices")]
    # What was deleted for good does not come back.
    operations = [migrations.RunSQL(statement, migrations.RunSQL.noop) for statement in (USES, NETWORKS)]
