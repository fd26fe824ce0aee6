"""Says which settings of a Cluster would let one shard that is away stop all others. Never changes one."""

from __future__ import annotations

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis import Client, as_dict, ask_servers, shards_of

log = structlog.get_logger(__name__)

# setting → the value it must have. With the default every server refuses all SKUs while one slot has no primary.
NEEDED = {"cluster-require-full-coverage": "no"}


def wrong_settings(client: Client) -> list[str]:
    """Return each wrong setting with its server and what it must be; nothing for one server, or a pair.

    What cannot be read, because the server is away or the user may not, is noted in the log and taken for right.
    """
    if shards_of(client) is None:
        return []
    try:
        return [text for name, must in NEEDED.items() for text in _wrong(client, name, must)]
    except RedisUnavailable as error:
        log.warning("settings of the Cluster not checked", action="cluster_unchecked", error=repr(error.__cause__))
        return []


def _wrong(client: Client, name: str, must: str) -> list[str]:
    found = []
    for server, reply in ask_servers(client, "CONFIG GET", name).items():
        if isinstance(reply, RedisUnavailable):
            cause = repr(reply.__cause__)
            log.warning("setting not checked", action="cluster_unchecked", setting=name, server=server, error=cause)
        elif (value := as_dict(reply).get(name)) != must:
            found.append(f"{name} is {value} on {server}: it must be {must}")
    return found
