"""Says which settings of a Cluster would let one shard that is away stop all others. Never changes one."""

from __future__ import annotations

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis import Client, as_dict, ask_servers, shards_of

log = structlog.get_logger(__name__)

# It must be "no": with the default every server refuses all SKUs while one slot has no primary.
SETTING = "cluster-require-full-coverage"


def wrong_settings(client: Client) -> list[str]:
    """Say on which servers the setting is wrong, and what it must be; nothing for one server, or a pair.

    What cannot be read, because the server is away or the user may not, is noted in the log and taken for right.
    """
    if shards_of(client) is None:
        return []
    try:
        replies = ask_servers(client, "CONFIG GET", SETTING)
    except RedisUnavailable as error:
        log.warning("settings of the Cluster not checked", action="cluster_unchecked", error=repr(error.__cause__))
        return []
    found = []
    for server, reply in replies.items():
        if isinstance(reply, RedisUnavailable):
            cause = repr(reply.__cause__)
            log.warning("setting not checked", action="cluster_unchecked", setting=SETTING, server=server, error=cause)
        elif (value := as_dict(reply).get(SETTING)) != "no":
            found.append(f"{SETTING} is {value} on {server}: it must be no")
    return found
