"""A few buyers for a short time. The question: does everything work at all?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/smoke.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class Smoke(ArrivalShape):
    """A few buyers for a short time."""

    plan = "smoke"
