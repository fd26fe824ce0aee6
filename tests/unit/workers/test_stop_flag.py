"""A worker's stop flag may be set by a signal at any instruction of the thread that waits for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from workers.process_loop import StopFlag


class Hung(BaseException):
    """The handler waits for a lock that its own thread has."""


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Raise Hung in a handler that does not return; put everybody's handlers back."""

    def hang(*_: object) -> None:
        raise Hung

    numbers = (signal.SIGALRM, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGALRM, hang)
    signal.alarm(5)
    yield
    signal.alarm(0)
    for number, handler in before.items():
        signal.signal(number, handler)


def signal_inside_a_wait(flag: threading.Event) -> None:
    """Let SIGTERM come while this thread has the lock that wait() takes when it begins and when it ends."""
    with flag._cond:  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_at_the_beginning_of_a_wait_sets_the_flag() -> None:
    flag = StopFlag()
    flag.install()
    signal_inside_a_wait(flag)
    assert flag.wait(60)


def test_without_a_lock_that_its_thread_may_take_again_the_handler_hangs() -> None:
    """The control: an ordinary event, set by the same handler."""
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: event.set())
    with pytest.raises(Hung):
        signal_inside_a_wait(event)
