"""Two waves with a lull between. The question: is the second one served like the first?
Usage: locust -f loadtest/locustfile.py,loadtest/shapes/double_wave.py
"""

from __future__ import annotations

from loadtest.plan.locust_shape import ArrivalShape


class DoubleWave(ArrivalShape):
    """Two waves with a lull between."""

    plan = "double_wave"
