"""A sale, and a Redis client whose replies can be lost, held or swallowed. Never touches another test's keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.test.utils import override_settings

from inventory import redis
from inventory.redis import scripts
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import port_of
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.shopkeeping import make_sale


@dataclass(frozen=True)
class Road:
    """A sale, and a Redis client whose replies can be lost."""

    card: SaleCard
    client: redis.Client
    proxy: Proxy
    url: str


@contextmanager
def through_proxy() -> Iterator[tuple[Proxy, str]]:
    """Run a proxy in front of the tests' Redis; give its address."""
    address = urlsplit(settings.REDIS_URL)
    with proxy_to(port_of(settings.REDIS_URL)) as proxy:
        yield proxy, address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()


@contextmanager
def lossy_road(sku: str) -> Iterator[Road]:
    """Make a sale, and teach Redis every script, so that what is lost is never its word that it does not know one."""
    card = make_sale(sku, units=100)
    teach_scripts(redis.connect())
    with through_proxy() as (proxy, url), override_settings(REDIS_URL=url):
        client = redis.connect()
        client.ping()
        yield Road(card, client, proxy, url)
        proxy.calm_down()
        client.close()


def teach_scripts(client: redis.Client) -> None:
    """Load every script into a server."""
    for name in scripts.script_paths():
        client.script_load(scripts.script_text(name))


def digest(name: str) -> bytes:
    """Return what a call of the script `name` contains."""
    return scripts.script_digest(name).encode()
