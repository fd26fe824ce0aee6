"""manage.py with one client for a whole Cluster, as the library has it: `-m tests.support.crashes.one_client COMMAND`.
Never runs outside the control of tests/crashes/test_shard_away.py.
"""

from __future__ import annotations

import sys

import django

django.setup()

from django.core.management import execute_from_command_line  # noqa: E402 - needs Django set up

from inventory.redis import client  # noqa: E402


def take_shards_away() -> None:
    """Let every command to a Cluster go through one client, and every error of it be one of the whole Cluster."""
    open_any = client._open

    def open_without(*args: object, **named: object) -> object:
        opened = open_any(*args, **named)  # type: ignore[arg-type]
        if hasattr(opened, "fairdrop_shards"):
            del opened.fairdrop_shards
        return opened

    client._open = open_without


if __name__ == "__main__":
    take_shards_away()
    execute_from_command_line(sys.argv)
