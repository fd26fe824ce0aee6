"""Knows which shards of a Cluster are away, and keeps a client of its own for each: one that is away delays no other.
Never decides who serves a slot: the servers do, and the library follows them.

The library's client of a Cluster is one thing: a node that fails makes it ask for the topology, perhaps that very node,
and cut the connections to every other one. Here each shard has a client of one server, and the library's is asked when
that server says that a slot has moved. A shard that failed is asked by one thread only, with pauses that grow, until it
answers; everybody else is told at once that it is away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.telemetry.measures import note_store_errors

log = structlog.get_logger(__name__)

# Also between two looks while all is well: a slot that is on its way, or that nobody serves, is met by every call.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 1.0
# Also without a failure: a server that joined must be found.
REFRESH_SECONDS = 30.0


class Topology:
    """The shards of one Cluster as this process knows them, by the names of their primaries.

    open_index: opens a client that is asked for nothing but who serves what; may raise RedisUnavailable.
    answers: says whether the primary of a name, by that client, can be asked for a key.
    """

    def __init__(self, open_index: Callable[[], Any], *, answers: Callable[[Any, str, str], bool]) -> None:
        self._open_index = open_index
        self._answers = answers
        self._index: Any = None
        # A key of each shard that is away: the shard is back when it answers for that key.
        self._away: dict[str, str] = {}
        # The same of those of which a connection broke: that alone keeps nobody from asking.
        self._suspected: dict[str, str] = {}
        self._lock = threading.Lock()
        self._watched = False
        self._refreshed_at = time.monotonic()

    def open(self) -> None:
        """Ask who serves what for the first time. A Cluster that does not answer is asked again in the background."""
        try:
            self._index = self._index or self._open_index()
        except RedisUnavailable:
            self.watch()

    def shard_of(self, key: str) -> str:
        """Return the name of the shard that has `key`. Raises RedisUnavailable when that is not known, or it is away.

        What it says may be old, as long as the shard that it names answers: that one says where a slot has moved.
        """
        try:
            name = str(self._known().get_node_from_key(key).name)
        except RedisUnavailable:
            raise
        except Exception as error:  # nobody serves this slot
            self.watch()
            raise RedisUnavailable from error
        if name in self._away:
            raise RedisUnavailable from ConnectionError(f"the shard {name} is away")  # for the log, not for buyers
        return name

    def owner_of(self, key: str) -> str:
        """Return the name of the shard that had `key` when last looked, also of one that is away; '' when not known."""
        try:
            return str(self._index.get_node_from_key(key).name)
        except Exception:  # no server was ever asked, or nobody serves this slot
            return ""

    def _known(self) -> Any:
        if self._index is None:
            self.watch()
            raise RedisUnavailable
        return self._index

    def shards(self) -> list[str]:
        """Return the name of every shard. Raises RedisUnavailable when none ever answered."""
        names = [str(node.name) for node in self._known().get_primaries()]
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            self.watch()
        return sorted(names)

    def address_of(self, name: str) -> tuple[str, int]:
        """Return host and port of the primary with this name. Raises RedisUnavailable when it is none any more."""
        node = self._known().get_node(node_name=name)
        if node is None:
            raise RedisUnavailable
        return node.host, node.port

    def is_away(self, name: str) -> bool:
        """Say whether this shard did not answer when it was last asked."""
        return name in self._away

    def serves(self, name: str) -> bool:
        """Say whether a primary of this name was there when last asked, and is not away."""
        known = self._index.get_node(node_name=name) if self._index is not None else None
        return known is not None and name not in self._away

    def away(self) -> list[str]:
        """Return the shards that are away, by name."""
        return sorted(self._away)

    def note_failure(self, name: str, *, key: str, is_silent: bool) -> None:
        """Take a silent shard for away from now on, until it answers for `key`; one that hung up when it does so again.

        Who asks a silent one waits long; who asks one that is dead is told at once, and it may only be a connection.
        """
        if is_silent:
            self._note_away(name, key)
        else:
            self._suspected[name] = key
        self.watch()

    def _note_away(self, name: str, key: str) -> None:
        with self._lock:
            is_news = name not in self._away
            self._away[name] = key
        if is_news:
            log.error("a shard of the Cluster is away; the SKUs of the others go on", action="shard_away", shard=name)

    def watch(self) -> None:
        """Ask in the background who serves what, and those that are away whether they are back."""
        with self._lock:
            if self._watched:
                return
            self._watched = True
        threading.Thread(target=self._keep_watching, name="redis-shards", daemon=True).start()

    def _keep_watching(self) -> None:
        """Ask those that are away until all of them are back, or serve nothing any more."""
        pause = MIN_PAUSE_SECONDS
        while True:
            try:
                self._look()
            except Exception as error:
                # Whatever it is: who is away must be asked again, or would be away for ever.
                log.info("shards not looked at", action="shards_retry", error=repr(error.__cause__ or error))
            time.sleep(pause)
            with self._lock:
                if self._index is not None and not self._away and not self._suspected:
                    self._watched = False
                    return
            pause = min(MAX_PAUSE_SECONDS, pause * 2)

    def _look(self) -> None:
        if self._index is None:
            self._index = self._open_index()
        while self._suspected:
            name, key = self._suspected.popitem()
            if not self._answers(self._index, name, key):
                self._note_away(name, key)
        for name, key in list(self._away.items()):
            if self._answers(self._index, name, key):
                self._note_back(name)
        # A replica may have been promoted, or a slot have moved.
        self._refreshed_at = time.monotonic()
        self._index.nodes_manager.initialize(last_failed_node_name=next(iter(self._away), None))
        for name in set(self._away) - set(self.shards()):
            self._note_back(name)

    def _note_back(self, name: str) -> None:
        with self._lock:
            self._away.pop(name, None)
        log.warning("a shard of the Cluster is back, or replaced", action="shard_back", shard=name)


class Shards:
    """The clients of one client of a Cluster, one for each shard. open_one: opens one, of the server at an address."""

    def __init__(self, topology: Topology, *, open_one: Callable[[tuple[str, int]], Any]) -> None:
        self.topology = topology
        self._open_one = open_one
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client_of(self, name: str) -> Any:
        """Return the client of a shard. Raises RedisUnavailable when it is none any more."""
        client = self._clients.get(name)
        if client is None:
            with self._lock:  # two threads must not open two
                client = self._clients.get(name)
                if client is None:
                    client = self._open_one(self.topology.address_of(name))
                    client.fairdrop_shard = name
                    self._clients[name] = client
                    note_store_errors("redis", name, times=0)
        return client

    def clients(self) -> list[Any]:
        """Return every client that was opened."""
        return list(self._clients.values())
