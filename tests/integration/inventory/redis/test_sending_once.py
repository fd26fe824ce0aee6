"""What must not run twice is sent once, whichever kind of Redis it is and whatever reply is lost.
A proxy stands before one server, before the primary that a Sentinel names, and before a Cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.locks.lock import Lock
from inventory.redis import keys
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.servers.server_matrix import CLUSTERED, SENTINEL, SERVER, SERVICE, SLOTS, Node, node
from tests.support.waiting import wait_until

TTL_MS, MORE_MS = 60_000, 100_000


@pytest.fixture(params=["one server", "sentinel", "cluster"])
def behind_proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Proxy, Node]]:
    """Work through a proxy that stands before a server of one kind; give the proxy and the server."""
    with ExitStack() as running:
        text = SERVER + (CLUSTERED if request.param == "cluster" else "")
        server = running.enter_context(node(tmp_path / "server", text))
        proxy = running.enter_context(proxy_to(server.port))
        url = f"redis://127.0.0.1:{proxy.port}/0"
        if request.param == "cluster":
            server.run("CONFIG", "SET", "cluster-announce-port", proxy.port)
            server.run("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
            wait_until(lambda: "'ok'" in str(server.client.execute_command("CLUSTER INFO")))
            url = f"redis+cluster://127.0.0.1:{proxy.port}"
        elif request.param == "sentinel":
            values = {"service": SERVICE, "primary": proxy.port, "patience": 60_000}
            text = SENTINEL
            for name, value in values.items():
                text = text.replace(f"{{{name}}}", str(value))
            sentinel = running.enter_context(node(tmp_path / "sentinel", text, options=("--sentinel",)))
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0"
        with override_settings(REDIS_URL=url):
            yield proxy, server


def life_ms(server: Node, lock: Lock) -> int:
    """Return how long a lock lives, as the server itself says."""
    return int(str(server.run("PTTL", keys.lock(lock.name))))


def test_time_is_added_once_though_the_reply_was_lost(
    behind_proxy: tuple[Proxy, Node], new_sku: Callable[[], str]
) -> None:
    """The control is the client that may send again: it adds the time more than once."""
    proxy, server = behind_proxy
    lock = Lock(redis.connect(), new_sku(), ttl_ms=TTL_MS)
    assert lock.acquire()
    assert lock.extend(TTL_MS)  # both clients are connected, and the script is known
    lost = proxy.drop_replies(b"\r\nadd\r\n")
    with pytest.raises(RedisUnavailable):
        lock.extend(MORE_MS, mode="add")
    assert lost.dropped == 1
    assert TTL_MS < life_ms(server, lock) <= TTL_MS + MORE_MS
    lost = proxy.drop_replies(b"\r\nadd\r\n")
    redis.run_script(redis.connect(), "extend", keys=[keys.lock(lock.name)], args=[lock.token, MORE_MS, "add"])
    assert lost.dropped == 1
    assert life_ms(server, lock) > TTL_MS + 2 * MORE_MS
    assert lock.release()
