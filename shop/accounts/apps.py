"""Makes the shop's own admin site the default one; decides nothing."""

from django.contrib.admin.apps import AdminConfig


class StaffAdminConfig(AdminConfig):
    """The admin with shop.accounts.site as `admin.site`."""

    default_site = "shop.accounts.site.StaffSite"

    def ready(self) -> None:
        """Translate the names of tables before the admin makes forms of them."""
        from shop.names.fields import translate_names  # here: models cannot be read before

        translate_names()
        super().ready()
