"""Steps up to one and a half times the rate. The question: where does the shop fall behind?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/knee.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class Knee(ArrivalShape):
    """Steps up to one and a half times the rate."""

    plan = "knee"
