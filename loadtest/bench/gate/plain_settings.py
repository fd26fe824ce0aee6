"""The shop's settings with one address instead of the shop's: the ordinary Django view that the gate is compared with.
Never used by the shop.
"""

from shop.settings import *  # noqa: F403 - a settings module takes over every name of the other

ROOT_URLCONF = "loadtest.bench.gate.plain_view"
