"""The shop's settings with one guard switched off, the one that FAIRDROP_MUTANT names, to see that the verdict sees it.
Refuses every FAIRDROP_ENV but test. Never used by the shop.
"""

from django.core.exceptions import ImproperlyConfigured

from shop.settings import *  # noqa: F403 - a settings module takes over every name of the other
from shop.settings import ENVIRONMENT, INSTALLED_APPS

if ENVIRONMENT != "test":
    raise ImproperlyConfigured(
        f"these settings switch a guard of the shop off: FAIRDROP_ENV={ENVIRONMENT} refuses it, only test accepts it"
    )

INSTALLED_APPS = [*INSTALLED_APPS, "loadtest.mutants"]
