"""Runs the servers of a Redlock, each behind a proxy, and looks at each of them past its proxy.
Never speaks of a name that two tests share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from inventory import redis
from inventory.locks.redlock import Redlock
from inventory.locks.report import report_locks
from inventory.redis import keys
from tests.support.crashes.extra_shop import port_of
from tests.support.crashes.lossy_road import teach_scripts
from tests.support.servers.proxy import Proxy, Rule, proxy_to
from workers.embedded.server import Server
from workers.embedded.valkey import start_valkey

# A server that has not voted by then votes no; its answer may still come until the socket's timeout.
NODE_TIMEOUT_SECONDS = 3.0
SOCKET_TIMEOUT_SECONDS = 60.0


@dataclass
class Nodes:
    """Servers that know nothing of each other. clients: through the proxies; views: past them."""

    servers: list[Server]
    proxies: list[Proxy]
    clients: list[redis.Client]
    views: list[redis.Client]
    name: str = ""

    def lock(self, *, ttl_ms: int = 600_000, past_proxies: bool = False) -> Redlock:
        """Return one more candidate for the name of this test; it lives longer than any test waits."""
        clients = self.views if past_proxies else self.clients
        return Redlock(clients, self.name, ttl_ms=ttl_ms, node_timeout_seconds=NODE_TIMEOUT_SECONDS)

    def holders(self) -> list[str | None]:
        """Return the token on each server."""
        return [report_locks(view, [self.name])[0].token for view in self.views]

    def lives(self) -> list[int]:
        """Return how long the lock lives on each server, in ms."""
        return [report_locks(view, [self.name])[0].left_ms for view in self.views]

    def empty(self, number: int) -> None:
        """Let one server lose the lock."""
        redis.run_commands(self.views[number], [("DEL", keys.lock(self.name))])

    def lose_next(self, *numbers: int) -> list[Rule]:
        """Lose the replies of some servers to the next call about the lock."""
        return [self.proxies[number].drop_replies(self.word) for number in numbers]

    def calm_down(self) -> None:
        """Let every proxy do nothing any more."""
        for proxy in self.proxies:
            proxy.calm_down()

    def let_live(self, number: int) -> None:
        """Let what one server has of the lock live on, so that only who gives it back can end it."""
        redis.run_commands(self.views[number], [("PEXPIRE", keys.lock(self.name), 600_000)])

    def has_heard(self, number: int) -> bool:
        """Say whether a server has given the lock since forget_fence."""
        return report_locks(self.views[number], [self.name])[0].fence > 0

    def forget_fence(self, number: int) -> None:
        """Let has_heard say no."""
        redis.run_commands(self.views[number], [("DEL", keys.fence(self.name))])

    @property
    def word(self) -> bytes:
        """What every call about the lock contains."""
        return keys.lock(self.name).encode()


@contextmanager
def redlock_nodes(count: int, folder: Path) -> Iterator[Nodes]:
    """Run `count` servers for the length of a block."""
    with ExitStack() as running:
        nodes = Nodes([], [], [], [])
        for number in range(count):
            (folder / str(number)).mkdir()
            server = running.enter_context(start_valkey(folder / str(number), append_fsync="no"))
            proxy = running.enter_context(proxy_to(port_of(server.url)))
            address = urlsplit(server.url)
            url = address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()
            nodes.servers.append(server)
            nodes.proxies.append(proxy)
            for clients, target in ((nodes.clients, url), (nodes.views, server.url)):
                clients.append(redis.connect_once(target, timeout_seconds=SOCKET_TIMEOUT_SECONDS))
                running.callback(clients[-1].close)
            teach_scripts(nodes.views[-1])
        yield nodes
