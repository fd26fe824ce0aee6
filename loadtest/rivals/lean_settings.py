"""The shop's settings with the rivals' addresses instead of its own, and without what would slow them.
Never used by the shop; refused in production.
"""

from django.core.exceptions import ImproperlyConfigured

from shop.settings import *  # noqa: F403 - a settings module takes over every name of the other
from shop.settings import DATABASES, INSTALLED_APPS, PRODUCTION

if PRODUCTION:
    raise ImproperlyConfigured("FAIRDROP_ENV=production refuses the rivals: they are for comparisons only")

INSTALLED_APPS = [*INSTALLED_APPS, "loadtest.rivals"]
ROOT_URLCONF = "loadtest.rivals.urls"
# The one that is left writes the content-length.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
# The admin, which would need more of them, has no address here.
SILENCED_SYSTEM_CHECKS = ["admin.E408", "admin.E409", "admin.E410", "axes.W002"]
DATABASES["default"] |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}
