"""The knee, twice and four times the knee, and the knee again (--rate). Then: how soon is it well?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/overload.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class Overload(ArrivalShape):
    """The knee, twice and four times the knee, and the knee again (--rate)."""

    plan = "overload"
