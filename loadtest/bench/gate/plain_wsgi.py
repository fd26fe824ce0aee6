"""The WSGI entry of the ordinary Django view. Never used by the shop."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "loadtest.bench.gate.plain_settings"

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
