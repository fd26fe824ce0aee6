"""Runs work in processes of its own, so that none disturbs another: the benchmark asks, the process measures.
Never outlives the benchmark: when the pipe closes, it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast

from loadtest.bench.load.loop import LoadFailed

Result = TypeVar("Result")

ANSWER_SECONDS = 60.0
END_SECONDS = 2.0


class Hand:
    """One process. It keeps what a task has made (connections, locks) until it ends.

    answer_seconds: how long a task may take.
    """

    def __init__(self, side: str, *, redis_url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.side = side
        self._answer_seconds = answer_seconds
        self._pipe, other = multiprocessing.Pipe()
        # Spawned, not forked: it begins with nothing of the benchmark's own clients and threads.
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(other, redis_url), name=f"hand of {side}"
        )
        self._process.start()
        other.close()

    def ask(self, task: Callable[..., Result], **arguments: Any) -> Result:
        """Run `task` in the process and return what it returns. Raises LoadFailed with the process's own error."""
        try:
            self._pipe.send((task, arguments))
            return cast(Result, heard(self._pipe, side=self.side, answer_seconds=self._answer_seconds))
        except (EOFError, OSError):
            raise LoadFailed(f"{self.side}: its process ended") from None

    def end(self) -> None:
        """Close the pipe, and kill the process with all it has forked if that does not end it."""
        self._pipe.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive() and self._process.pid is not None:
            with suppress(ProcessLookupError):  # not yet the leader of its group
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()


def heard(pipe: Connection, *, side: str, answer_seconds: float = ANSWER_SECONDS) -> Any:
    """Return what the task at the other end returned. Raises LoadFailed when it failed or is silent, or EOFError."""
    if not pipe.poll(answer_seconds):
        raise LoadFailed(f"{side}: no answer within {answer_seconds:g} s")
    good, value = pipe.recv()
    if not good:
        raise LoadFailed(f"{side}:\n{value}")
    return value


def answer_of(task: Callable[..., Any], arguments: dict[str, Any]) -> tuple[bool, Any]:
    """Run `task`; return (True, its result) or (False, its traceback)."""
    try:
        return True, task(**arguments)
    except Exception:
        return False, traceback.format_exc()


def ask_all(hands: Iterable[Hand], task: Callable[..., Result], arguments: Sequence[dict[str, Any]]) -> list[Result]:
    """Run `task` in all processes at once, each with arguments of its own; return the results in order."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(lambda hand, own: hand.ask(task, **own), hands, arguments))


@contextmanager
def hands_of(
    sides: Iterable[str], *, redis_url: str, load: Callable[..., None], cores: Set[int]
) -> Iterator[dict[str, Hand]]:
    """Run a hand on `cores` for each side for the length of a `with` block; load(side=…) imports its library there."""
    with ExitStack() as stack:
        hands = {}
        for side in sides:
            hands[side] = Hand(side, redis_url=redis_url)
            stack.callback(hands[side].end)
        for side, hand in hands.items():
            hand.ask(load, side=side)  # so that none is still starting while another measures
            hand.ask(_bind, cores=cores)
        yield hands


def _bind(*, cores: Set[int]) -> None:
    os.sched_setaffinity(0, cores)


def _serve(pipe: Connection, redis_url: str) -> None:
    # A group of its own: a Ctrl-C is the benchmark's alone, and what we fork can be ended with us.
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.environ["REDIS_URL"] = redis_url
    # Until the benchmark closes its end, whatever we are doing then.
    with suppress(EOFError, OSError):
        while True:
            task, arguments = pipe.recv()
            pipe.send(answer_of(task, arguments))


def run_crew(task: Callable[..., Any], members: Sequence[dict[str, Any]], *, side: str) -> list[Any]:
    """Fork a process for each member's arguments and run `task` in all at once; return the results in order.

    Never in a process that has connections or threads: each of the crew opens its own. Raises LoadFailed.
    """
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
