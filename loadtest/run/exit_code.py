"""Ends Locust's process with the code of the verdict, once all is written. Never before Locust has closed its files."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Any


def leave_with_code(events: Any) -> None:
    """Let the process end at once, as the last of what is called at its end. events: Locust's.

    gevent may abort an interpreter that takes itself apart, and a green flood would end as if it were broken. What is
    registered first is called last, so this comes before whatever Locust registers.
    """
    codes: list[int] = []

    def note(exit_code: int, **_: Any) -> None:
        codes.append(exit_code)

    def leave() -> None:
        if codes:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(codes[-1])

    events.quit.add_listener(note)
    atexit.register(leave)
