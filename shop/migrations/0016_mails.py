"""Addresses for mails about a request, and the right of staff to send a link again or delete an address."""

import django.db.models.functions.datetime
from django.db import migrations, models

MAIL_ORDER = ("mail_order", "Can send an order's link to its buyer, and delete their address")


def let_roles_mail(apps, schema_editor):
    """Give operators and managers the right, as 0006_staff_roles does; a role that was deleted is not made again."""
    alias = schema_editor.connection.alias
    kind = apps.get_model("contenttypes", "ContentType").objects.using(alias).get(app_label="shop", model="order")
    right, _ = apps.get_model("auth", "Permission").objects.using(alias).get_or_create(
        content_type=kind, codename="mail_order", defaults={"name": MAIL_ORDER[1]}
    )
    for group in apps.get_model("auth", "Group").objects.using(alias).filter(name__in=["operator", "manager"]):
        group.permissions.add(right)


class Migration(migrations.Migration):

    dependencies = [
        ('shop', '0015_payments_until_their_last_capture'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='order',
            options={'ordering': ['-id'], 'permissions': [('cancel_order', 'Can cancel a held order'), ('refund_order', 'Can refund a paid order'), MAIL_ORDER]},
        ),
        migrations.CreateModel(
            name='Contact',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('request_id', models.CharField(max_length=40)),
                ('address', models.EmailField(blank=True, max_length=254)),
                ('language', models.CharField(blank=True, max_length=10)),
                ('root', models.CharField(blank=True, max_length=200)),
                ('told_event', models.BigIntegerField(default=0)),
                ('is_warned', models.BooleanField(default=False)),
                ('is_over', models.BooleanField(default=False)),
                ('link_mails', models.PositiveSmallIntegerField(default=0)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'indexes': [models.Index(fields=['is_over', 'id'], name='contact_to_look_at')],
                'constraints': [models.UniqueConstraint(fields=('request_id',), name='contact_once_per_request')],
            },
        ),
        migrations.RunPython(let_roles_mail, migrations.RunPython.noop),
    ]
