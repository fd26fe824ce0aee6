"""The shop's settings with the rivals mounted and everything taken away that would slow them: sessions, logs, checks.
Never used by the shop.
"""

import os

os.environ["FAIRDROP_RIVALS"] = "1"

from shop.settings import *  # noqa: F403 - a settings module takes over every name of the other
from shop.settings import DATABASES

ROOT_URLCONF = "loadtest.rivals.lean_urls"
# The one that is left writes the content-length.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
DATABASES["default"] |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}
