"""The WSGI entry of the rivals' server. Never used by the shop."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "loadtest.rivals.lean_settings"

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
