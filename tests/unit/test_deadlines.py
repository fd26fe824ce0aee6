"""Proves that a wait that lasts too long ends as TimeoutError, and that nothing else is ended. Called by pytest.
The control is the same wait without a deadline, which goes on.
"""

from __future__ import annotations

import asyncio

import pytest

from shop.gate import deadlines
from shop.gate.deadlines import Deadlines


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "SWEEP_SECONDS", 0.02)


async def wait_for_ever(kept: Deadlines) -> str:
    try:
        with kept.kept():
            await asyncio.Event().wait()
    except TimeoutError:
        return "timed out"
    return "never"


async def end_soon(task: asyncio.Task[str], *, seconds: float) -> bool:
    """Say whether `task` ends by itself within `seconds`."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)


def test_a_wait_that_lasts_too_long_ends_as_a_timeout() -> None:
    async def run() -> list[str]:
        kept = Deadlines(seconds=0.05)
        return await asyncio.wait_for(asyncio.gather(*(wait_for_ever(kept) for _ in range(3))), 60)

    assert asyncio.run(run()) == ["timed out"] * 3


def test_a_wait_within_its_time_goes_on() -> None:
    async def run() -> bool:
        task = asyncio.create_task(wait_for_ever(Deadlines(seconds=60)))
        ended = await end_soon(task, seconds=0.2)
        task.cancel()
        return ended

    assert asyncio.run(run()) is False


def test_a_cancel_by_somebody_else_stays_a_cancel() -> None:
    async def run() -> bool:
        task = asyncio.create_task(wait_for_ever(Deadlines(seconds=60)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(run())


def test_a_task_may_wait_again_after_its_timeout() -> None:
    async def run() -> tuple[str, str]:
        kept = Deadlines(seconds=0.05)
        return await wait_for_ever(kept), await wait_for_ever(kept)

    assert asyncio.run(run()) == ("timed out", "timed out")
