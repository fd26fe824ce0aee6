"""The job that does nothing, so that only the queue is measured."""

from __future__ import annotations


def noop(task: str) -> None:
    """Do nothing with `task`."""


async def noop_async(_context: object, *, task: str) -> None:
    """Do nothing with `task`."""
