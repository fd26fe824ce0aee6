"""What runs alongside a process's crowd: one notes how busy the process is, one ends it when run_flood is gone.
Never touches the crowd or its record. Each runs in a greenlet of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import gevent

from loadtest.checker.load_generator import LoadMeter
from loadtest.plan.options import PARENT_VARIABLE

METER_SECONDS = 0.5
TICK_SECONDS = 0.25


def measure_load(meter: LoadMeter, *, goes_on: Callable[[], bool]) -> None:
    """Note now and then how busy this process is, as long as its run goes on."""
    while goes_on():
        meter.sample()
        gevent.sleep(METER_SECONDS)


def end_with_parent() -> None:
    """Started by run_flood: end with it, also when it was killed and could not say so; nobody else would end us."""
    parent = int(os.environ.get(PARENT_VARIABLE, "0"))
    while parent and os.getppid() == parent:
        gevent.sleep(TICK_SECONDS)
    if parent and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
