"""The profile sentinel of docker-compose.yml, by its very command lines: a place that a buyer was told of is there
after the primary was killed, and the killed one comes back as a replica. Control: without a majority of the Sentinels
nobody takes over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line.admission import Answer, Ask, Code
from shop.sales.catalogue import SaleCard
from tests.support.road import admit, ask
from tests.support.servers.compose import SENTINELS, SERVERS, ComposeServers, compose_servers
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

# What each server must keep to, whatever it is at the moment.
LASTING = {
    "appendonly": "yes", "appendfsync": "always", "maxmemory": str(3 * 1024**3), "maxmemory-policy": "noeviction",
    "save": "",
}  # fmt: skip


@pytest.fixture
def servers(shop_database: None, tmp_path: Path) -> Iterator[ComposeServers]:
    """Work on the servers of the profile, as the user and by the address that Compose gives to web."""
    with compose_servers(tmp_path) as servers:
        web = servers.environment_of("web")
        assert web["REDIS_URL"].startswith("redis+sentinel://web:")
        with override_settings(REDIS_URL=web["REDIS_URL"], REDIS_REPLICAS=1):
            yield servers


def healthy(servers: ComposeServers) -> bool:
    """Say whether the health check of a worker passes."""
    return servers.health("settler", os.environ["DATABASE_URL"]).returncode == 0


def told(card: SaleCard, wish: Ask) -> list[Answer]:
    """Return the answer to who asks, nothing while there is none."""
    try:
        return admit(card, wish)
    except RedisUnavailable:
        return []


def test_a_place_outlives_the_primary_and_the_killed_one_comes_back_as_a_replica(
    servers: ComposeServers, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=2)
    wish = ask(card, "ann")
    (place,) = wait_until(lambda: told(card, wish), what="a place is told")
    assert place.code in (Code.ADMITTED, Code.KNOWN_BEFORE + ord("q"))
    wait_until(lambda: healthy(servers), what="a worker is healthy")
    killed = servers.primary()
    servers.kill(killed)
    heir = wait_until(lambda: (name := servers.primary()) != killed and name, what="another one is the primary")
    (again,) = wait_until(lambda: told(card, wish), what="the new primary answers")
    assert (again.code, again.seq) == (Code.KNOWN_BEFORE + ord("q"), place.seq)
    wait_until(lambda: healthy(servers), what="a worker is healthy")
    servers.start(killed)
    wait_until(lambda: servers.is_ready() and servers.follows(killed), what="the killed one is a replica")
    assert servers.primary() == heir
    for name in SERVERS:
        assert {key: servers.ask(name, "CONFIG GET", key)[key] for key in LASTING} == LASTING
    # One that was made the primary is no replica when it starts again, also with no Sentinel to correct it.
    servers.kill(*SENTINELS, heir)
    servers.start(heir)
    assert servers.ask(heir, "INFO", "replication")["role"] == "master"


def test_the_control_without_a_majority_of_sentinels_nobody_takes_over(servers: ComposeServers) -> None:
    primary, lonely = servers.primary(), SENTINELS[-1]
    servers.kill(*SENTINELS[:-1])
    wait_until(lambda: healthy(servers), what="a worker is healthy")
    servers.kill(primary)
    # By the Sentinel's own clock: three times as long as would have been enough.
    wait_until(lambda: down_ms(servers, lonely) >= 15_000, what="the Sentinel has missed the primary for long")
    assert "NOQUORUM" in refusal(servers.operator(lonely), "CKQUORUM")
    assert servers.primary() == primary
    assert {servers.ask(name, "INFO", "replication")["role"] for name in SERVERS if name != primary} == {"slave"}
    assert not healthy(servers)


def down_ms(servers: ComposeServers, sentinel: str) -> int:
    """Return for how long a Sentinel has missed the primary."""
    return int(servers.watched(sentinel).get("s-down-time", 0))


def refusal(client: redis.Client, command: str) -> str:
    """Return why a Sentinel refuses a command, nothing when it does not."""
    try:
        client.execute_command("SENTINEL", command, "fairdrop")
    except redis.FAILURES as error:
        return str(error)
    return ""


def test_without_a_password_a_sentinel_says_where_the_primary_is_and_nothing_else(servers: ComposeServers) -> None:
    """The control: the operator may. Who could name another primary would be shown every process's password."""
    anybody = redis.connect_once(f"redis://127.0.0.1:{servers.ports['sentinel-1']}/0", timeout_seconds=60)
    assert anybody.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "fairdrop")
    for command in ("REMOVE", "FAILOVER", "RESET", "REPLICAS", "CKQUORUM"):
        assert "no permissions" in refusal(anybody, command)
    assert refusal(servers.operator("sentinel-1"), "CKQUORUM") == ""
    anybody.close()
