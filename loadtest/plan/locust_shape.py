"""What the shapes have in common: Locust keeps an even number of users, and the plan says when buyers come.
Never ties arrivals to answers: users are only the hands that carry them out.
"""

from __future__ import annotations

import time
from typing import ClassVar

from locust import LoadTestShape

from loadtest.plan.arrivals import Arrivals
from loadtest.plan.options import Wanted
from loadtest.plan.shapes import arrivals_of

USERS = 60


class ArrivalShape(LoadTestShape):
    """A shape of planned arrivals; the number of users and the longest run time are Locust's own options."""

    abstract = True
    use_common_options = True
    plan: ClassVar[str] = ""

    def arrivals(self, wanted: Wanted) -> Arrivals:
        """Return who comes when; raises ShopError when nobody would."""
        return arrivals_of(self.plan, rate=wanted.rate, seconds=wanted.seconds, seed=wanted.seed)

    def tick(self) -> tuple[int, float] | None:
        """Return users and how many begin a second: all at once. The run ends by itself when the last has left."""
        options = self.runner.environment.parsed_options if self.runner else None
        users = int(getattr(options, "num_users", 0) or USERS)
        run_time = float(getattr(options, "run_time", 0) or 0)
        return None if run_time and time.perf_counter() - self.start_time > run_time else (users, users)
