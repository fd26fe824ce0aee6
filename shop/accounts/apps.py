"""Makes the shop's own admin site the default one; decides nothing."""

from django.contrib.admin.apps import AdminConfig


class StaffAdminConfig(AdminConfig):
    """The admin with shop.accounts.site as `admin.site`."""

    default_site = "shop.accounts.site.StaffSite"
