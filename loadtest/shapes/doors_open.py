"""Many wait for the opening and come in one instant, the others ebb away. The question: is the opening survived?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/doors_open.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class DoorsOpen(ArrivalShape):
    """Many wait for the opening and come in one instant, the others ebb away."""

    plan = "doors_open"
