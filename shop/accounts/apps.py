"""Makes the shop's own admin site the default one; decides nothing."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class StaffAdminConfig(SimpleAdminConfig):
    """The admin with shop.accounts.site as `admin.site`.

    Its pages are loaded by shop.urls, not by every process: a worker shows none, and starts a fifth sooner. The mailer,
    which writes addresses of pages, loads them.
    """

    default_site = "shop.accounts.site.StaffSite"

    def ready(self) -> None:
        """Translate the names of tables before the admin makes forms of them."""
        from shop.names.fields import translate_names  # here: models cannot be read before

        translate_names()
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[checks.CheckMessage]:
    """Check the admin as Django does, which finds nothing before its pages are loaded."""
    admin.autodiscover()
    return list(check_admin_app(app_configs, **options))
