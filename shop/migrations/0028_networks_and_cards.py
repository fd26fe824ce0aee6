"""Marks of networks with orders, fingerprints of cards with payments, revoked networks with sales; and the rights."""

from django.db import migrations, models
from django.db.models import Q

RIGHTS = [
    ("order", "void_order", "Can void orders before shipping, and look for what belongs together"),
    ("sale", "revoke_network", "Can revoke the tokens of a network in a sale"),
]
# Written as the owner of the tables: a process that deletes marks may write nothing else of an order.
FORGET = """
CREATE FUNCTION shop_forget_networks(of_sale bigint, most int) RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE done int;
BEGIN
    UPDATE shop_order SET network = '' WHERE id IN (
        SELECT id FROM shop_order WHERE sale_id = of_sale AND network <> '' LIMIT most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END $$;
"""
NO_FORGET = "DROP FUNCTION shop_forget_networks(bigint, int);"


def let_managers_judge(apps, schema_editor):
    """Give the group of managers the rights. Nothing to do where the group was removed."""
    alias = schema_editor.connection.alias
    content_types = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    rights = apps.get_model("auth", "Permission").objects.using(alias)
    group = apps.get_model("auth", "Group").objects.using(alias).filter(name="manager").first()
    for model, code, name in RIGHTS:
        kind, _ = content_types.get_or_create(app_label="shop", model=model)
        # Django makes rights after all migrations; those that are there by then are left as they are.
        right, _ = rights.get_or_create(content_type=kind, codename=code, defaults={"name": name})
        if group is not None:
            group.permissions.add(right)


class Migration(migrations.Migration):
    dependencies = [("shop", "0027_access_codes")]
    operations = [
        migrations.AddField("order", "network", models.CharField(blank=True, db_default="", default="", max_length=12)),
        migrations.AddField("payment", "card", models.CharField(blank=True, db_default="", default="", max_length=64)),
        migrations.AddField(
            "sale", "revoked_networks", models.TextField(blank=True, db_default="", default="", editable=False)
        ),
        migrations.AddIndex(
            "order",
            models.Index(fields=["sale", "network"], condition=~Q(network=""), name="order_with_network_by_sale"),
        ),
        migrations.AddIndex(
            "payment", models.Index(fields=["created_at"], condition=~Q(card=""), name="payment_with_card")
        ),
        migrations.AlterModelOptions(
            "order",
            options={
                "ordering": ["-id"],
                "permissions": [
                    ("cancel_order", "Can cancel a held order"),
                    ("refund_order", "Can refund a paid order"),
                    ("void_order", "Can void orders before shipping, and look for what belongs together"),
                    ("mail_order", "Can send an order's link to its buyer, and delete their address"),
                ],
            },
        ),
        migrations.AlterModelOptions(
            "sale",
            options={
                "ordering": ["opens_at", "slug"],
                "permissions": [
                    ("open_sale", "Can open a sale before its time"),
                    ("pause_sale", "Can pause and resume a sale"),
                    ("close_sale", "Can close a sale for good"),
                    ("revoke_network", "Can revoke the tokens of a network in a sale"),
                    ("change_stock", "Can restock and adjust the stock of a sale"),
                    ("retry_dead_letter", "Can put dead letters back in line"),
                    ("discard_dead_letter", "Can discard dead letters"),
                    ("reconcile_sale", "Can have a sale's stores compared and mended"),
                    ("retire_sale", "Can retire a sale that is over"),
                    ("make_codes", "Can make access codes for a sale"),
                ],
            },
        ),
        migrations.RunSQL(FORGET, NO_FORGET),
        migrations.RunPython(let_managers_judge, migrations.RunPython.noop),
    ]
