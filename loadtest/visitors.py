"""`python -m loadtest.visitors`: some people come to every sale that opens; some pay, some forget, some give it back.
Never more than one call at a time, so that they cannot crowd a shop.
"""

from __future__ import annotations

import argparse
import heapq
import http.client
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from loadtest.plan.population import CANCELS, LAPSES, PAYS
from loadtest.users.addresses import coming_from

MAX_PEOPLE = 1_000
LOOK_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
# They come within this long after the opening, most of them soon.
MAX_SECONDS, USUAL_SECONDS = 20.0, 1.5
MIN_POLL_SECONDS = 2.0
PATIENCE_SECONDS = 300.0
WAITING = ("queued", "waitlisted", "standby")
# What they do with a unit: many do not pay, so that units come back and the line moves.
WITH_A_UNIT = (*[PAYS] * 4, *[LAPSES] * 4, *[CANCELS] * 2)
SHARE_THAT_LEAVES = 0.2


@dataclass
class VisitedShop:
    """One connection to the shop at `root`."""

    root: str
    connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, *, token: str = "", body: str | None = None, person: str = "") -> Any:
        """Send one call and return its answer as JSON says it; {} when it was refused or there was none.

        person: who calls when there is no token, so that each comes from an address of their own.
        """
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        headers |= coming_from(token or person) if token or person else {}
        try:
            if self.connection is None:
                parts = urlsplit(self.root)
                self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
            self.connection.request(method, path, body=body, headers=headers)
            answer = self.connection.getresponse()
            text = answer.read()
            return json.loads(text) if answer.status < 400 else {}
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            return {}


def visit(shop: VisitedShop, slug: str, *, dice: random.Random) -> Iterator[float]:
    """Live through one person's visit to a sale; yield how many seconds to wait before going on."""
    token = shop.call("POST", "/api/v1/buyers", body="{}", person=token_hex(8)).get("token", "")
    asked = shop.call("POST", f"/api/v1/sales/{slug}/requests", token=token, body='{"quantity": 1}') if token else {}
    path, state, waited = f"/api/v1/requests/{asked.get('request_id')}", asked.get("state"), 0.0
    leaves_after = dice.uniform(20, 90) if dice.random() < SHARE_THAT_LEAVES else PATIENCE_SECONDS
    while state in WAITING:
        pause = max(MIN_POLL_SECONDS, asked.get("poll_after_ms", 0) / 1000)
        yield pause
        waited += pause
        if waited > leaves_after:
            shop.call("POST", f"{path}/cancel", token=token, body="{}")
            return
        asked = shop.call("GET", path, token=token)
        state = asked.get("state", state)
    choice = dice.choice(WITH_A_UNIT)
    if state == "held" and choice != LAPSES:
        yield dice.uniform(2, 12)
        shop.call("POST", f"{path}/{'payment' if choice == PAYS else 'cancel'}", token=token, body="{}")


@dataclass
class Visitors:
    """All of them. people: how many come to each sale whose slug begins with `prefix`."""

    shop: VisitedShop
    people: int
    prefix: str
    dice: random.Random
    _known: set[str] = field(default_factory=set)
    _next: list[tuple[float, int, Iterator[float]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> None:
        """Look for sales and live through the visits, for ever."""
        look_at = 0.0
        while True:
            now = time.monotonic()
            if now >= look_at:
                self.look(now)
                look_at = now + LOOK_SECONDS
            wait = self.step(now)
            time.sleep(min(wait, max(0.0, look_at - time.monotonic())))

    def look(self, now: float) -> None:
        """Plan visits to every sale that is open or coming and was not seen before. now: monotonic seconds."""
        for sale in self.shop.call("GET", "/api/v1/sales"):
            slug = sale["slug"]
            if not slug.startswith(self.prefix) or slug in self._known or sale["state"] not in ("scheduled", "open"):
                continue
            self._known.add(slug)
            opens, server = (datetime.fromisoformat(sale[name]).timestamp() for name in ("opens_at", "server_time"))
            for _ in range(self.people):
                comes = max(0.0, opens - server) + self.dice.triangular(0.2, MAX_SECONDS, USUAL_SECONDS)
                heapq.heappush(self._next, (now + comes, next(self._numbers), self._visit(slug)))

    def _visit(self, slug: str) -> Iterator[float]:
        # Dice of their own: what each does depends on the seed, and not on whose turn came first.
        return visit(self.shop, slug, dice=random.Random(self.dice.getrandbits(64)))

    def step(self, now: float) -> float:
        """Let the one whose turn it is go on; return how many seconds until the next one's turn."""
        if not self._next:
            return LOOK_SECONDS
        at, number, person = self._next[0]
        if at > now:
            return at - now
        heapq.heappop(self._next)
        pause = next(person, None)
        if pause is not None:
            heapq.heappush(self._next, (time.monotonic() + pause, number, person))
        return 0.0


def main() -> int:
    """Run until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="Let some people come to every sale that opens.")
    parser.add_argument("--host", required=True, help="the shop, e.g. http://127.0.0.1:8000; this machine only")
    parser.add_argument("--people", type=int, default=40, help=f"for each sale, {MAX_PEOPLE} at most")
    parser.add_argument("--prefix", default="", help="only sales whose slug begins so")
    parser.add_argument("--seed", type=int, help="what each of them does; without it, something else each time")
    options = parser.parse_args()
    if urlsplit(options.host).hostname not in ("127.0.0.1", "localhost", "::1"):
        parser.error("only a shop on this machine")
    if not 0 <= options.people <= MAX_PEOPLE:
        parser.error(f"--people must be from 0 to {MAX_PEOPLE}")
    dice = random.Random(options.seed)
    visitors = Visitors(VisitedShop(options.host), people=options.people, prefix=options.prefix, dice=dice)
    try:
        visitors.run()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
