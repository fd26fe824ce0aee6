"""The one entry of the web process: the gate in front, Django's pages behind it. Never serves a hot call by Django.
`manage.py run_web` serves it.
"""

import sys

from shop.wsgi import application as django_application  # first: it sets Django up, which the gate needs

# isort: split
import shop.urls  # noqa: F401 - or the first page loads it, while others wait
from inventory.gc_tuning import settle_in
from shop.gate.pages import Pages
from shop.gate.router import Gate

# A thread that has its answer from PostgreSQL waits this long for the one that runs, not ten times as long: with the
# default, 200 payments a second alongside a flood waited a quarter of a second each.
sys.setswitchinterval(0.0005)
application = Gate(Pages(django_application))
settle_in()
