"""Names every rival, in the order in which they are shown. Decides nothing."""

from __future__ import annotations

from loadtest.rivals.articles import Articles
from loadtest.rivals.batching_writer import BatchingWriter
from loadtest.rivals.counter import CounterAlone
from loadtest.rivals.counter_then_queue import CounterThenQueue
from loadtest.rivals.rival import Rival
from loadtest.rivals.row_stock import ConditionalUpdate, ReadModifyWrite, RedisLock, RowLock
from loadtest.rivals.unit_rows import UnitRows

RIVALS: dict[str, Rival] = {
    rival.name: rival
    for rival in (
        ReadModifyWrite(),
        CounterAlone(),
        RowLock(),
        ConditionalUpdate(),
        UnitRows(),
        RedisLock(),
        Articles(),
        CounterThenQueue(),
        BatchingWriter(),
    )
}
