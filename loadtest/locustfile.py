"""The users of the flood: hands that play one planned buyer after another, of whatever kind; lookers who only look.
Never judges: the verdict is taken at the end from the clients' record and the shop's audit.
`locust` at the root of the project finds it through locust.conf.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Locust loads this file by its path; the package it belongs to must be found whatever the working directory.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gevent
from locust import FastHttpUser, constant, events, run_single_user, tag, task

from loadtest.run.hooks import FloodRun
from loadtest.users.arrival_gate import IDLE_SECONDS
from loadtest.users.calls import Calls
from loadtest.users.conversation import Conversation

flood_run = FloodRun()
flood_run.listen_to(events)


class Buyer(FastHttpUser):
    """A connection that plays one fresh buyer after another, without a pause: this is the flood."""

    wait_time = constant(0)
    weight = 100
    concurrency = 4  # a double click needs a second connection at the same moment
    connection_timeout = 5.0
    network_timeout = 10.0

    def on_start(self) -> None:
        """Keep no cookies: the next buyer on this connection is somebody else."""
        self.client.client.cookiejar = None

    @tag("buy", "flood")
    @task
    def visit(self) -> None:
        """Play one buyer from arrival to the last click; the places they got are followed to their end."""
        crowd, doors = flood_run.crowd, flood_run.doors
        if crowd is None or doors is None:
            gevent.sleep(IDLE_SECONDS)
            return
        arrival = doors.enter()
        if arrival is None:
            return
        try:
            calls = Calls(self.client, crowd=crowd)
            Conversation(calls, crowd=crowd, visit=arrival.visit, planned_ns=arrival.planned_ns).run()
        finally:
            doors.leave()


class Looker(FastHttpUser):
    """Somebody who reads the list of sales now and then and never buys."""

    wait_time = constant(1)
    fixed_count = 1
    connection_timeout = 5.0
    network_timeout = 10.0

    @tag("browse")
    @task
    def list_sales(self) -> None:
        """Look at what is on sale."""
        self.client.get("/api/v1/sales", name="GET /api/v1/sales")


if __name__ == "__main__":
    run_single_user(Buyer)
