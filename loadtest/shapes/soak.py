"""An even rate for long. The question: what grows that should not?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/soak.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class Soak(ArrivalShape):
    """An even rate for long."""

    plan = "soak"
