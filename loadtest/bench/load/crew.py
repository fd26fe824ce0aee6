"""Forks a crew of processes that work at the same time, and gathers what each returns.
Never forks a process that has connections or threads: each of the crew opens its own. Called within a hand.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from loadtest.bench.load.subprocesses import answer_of, heard


def run_crew(task: Callable[..., Any], members: Sequence[dict[str, Any]], *, side: str) -> list[Any]:
    """Run `task` once for each member's arguments, all at once; return the results in order. Raises LoadFailed."""
    context = multiprocessing.get_context("fork")
    pipes, crew = [], []
    for arguments in members:
        ours, theirs = context.Pipe(duplex=False)
        crew.append(context.Process(target=_member, args=(theirs, task, arguments), daemon=True))
        crew[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        return [heard(pipe, side=side) for pipe in pipes]
    finally:
        for process in crew:
            process.kill()
            process.join()


def _member(pipe: Connection, task: Callable[..., Any], arguments: dict[str, Any]) -> None:
    pipe.send(answer_of(task, arguments))
