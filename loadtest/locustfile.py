"""The locustfile of the flood: its user classes, a run that plans, feeds and judges them. Holds no logic of its own.
`locust` at the root of the project finds it through locust.conf.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Locust loads this file by its path; the package it belongs to must be found whatever the working directory.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from locust import events, run_single_user

from loadtest.run.hooks import FloodRun
from loadtest.users.buyers import (
    Bot,
    Buyer,
    Hoarder,
    Honest,
    Impatient,
    LatePayer,
    Looker,
    Restorer,
    Shopper,
    Watcher,
)

__all__ = ["Bot", "Hoarder", "Honest", "Impatient", "LatePayer", "Looker", "Restorer", "Shopper", "Watcher"]

flood_run = FloodRun()
flood_run.listen_to(events)
Buyer.party = flood_run

if __name__ == "__main__":
    run_single_user(Shopper)
