"""The one entry of the web process: the gate in front, Django's pages behind it. Never serves a hot call by Django.
Called by granian: `granian --interface asgi shop.asgi:application`.
"""

from shop.wsgi import application as django_application  # first: it sets Django up, which the gate needs

# isort: split
from inventory.memory import settle_in
from shop.gate.pages import Pages
from shop.gate.router import Gate

application = Gate(Pages(django_application))
settle_in()
