"""The one entry of the web process: the gate in front, Django's WSGI application behind it in a thread pool.
Never serves a hot call through Django. Called by granian: `granian --interface asgi shop.asgi:application`.
"""

from typing import Any, cast

from a2wsgi import WSGIMiddleware

from shop.wsgi import application as pages  # first: it sets Django up, which the gate needs

# isort: split
from shop.gate.router import Application, Gate

# Django's WSGI handler is several times faster than its ASGI one for ordinary views, and these views block.
DJANGO_THREADS = 8

application = Gate(cast(Application, WSGIMiddleware(cast(Any, pages), workers=DJANGO_THREADS)))
