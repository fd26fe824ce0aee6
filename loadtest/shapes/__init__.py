"""Shapes for Locust, a file each: locust -f loadtest/locustfile.py,loadtest/shapes/smoke.py."""
