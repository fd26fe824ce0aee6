"""Tells Python's garbage collector that a long-lived process is ready. Never changes what a program does.
Called once by the web process and by each worker, after everything is loaded.
"""

from __future__ import annotations

import gc

# What is made for a batch dies with it, by reference count; looking for circles every 700 objects, as Python does by
# default, cost the gate a fifth of its time.
OBJECTS_BETWEEN_LOOKS = 50_000


def settle_in() -> None:
    """Keep what is loaded out of all later collections, and collect seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_LOOKS, 20, 50)
