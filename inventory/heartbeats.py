"""Lets each worker process say once a second that it lives and what it does, and reads what they all say.
Never holds a worker up for long, never raises into its work. Written by workers/process_loop.py, read by the shop.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from typing import Literal

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis import Argument, Client, keys, run_commands, run_script

log = structlog.get_logger(__name__)

BEAT_SECONDS = 1.0
# While Redis is away a worker that needs none of it (the expirer) must not wait for each beat.
REST_SECONDS = 5.0
# Silent for longer than this: it hangs in a long step, or is dead.
SILENT_SECONDS = 5.0
FORGOTTEN_SECONDS = 600
KEY_TTL_MS = 3_600_000

Away = Literal["line away", "database away"]
Doing = Literal["working", "waiting"] | Away


@dataclass(frozen=True, slots=True)
class Worker:
    """One process as it last spoke. since_seconds: in this state; silent_seconds: since it last spoke; done: steps'
    results added up since it started; rate: results a second, lately.
    """

    who: str
    name: str
    doing: str
    since_seconds: float
    silent_seconds: float
    done: int
    rate: float

    @property
    def alive(self) -> bool:
        """Say whether it spoke lately."""
        return self.silent_seconds <= SILENT_SECONDS


class Heartbeat:
    """What one process says of itself. name: of its kind, e.g. settler. client: one with a short timeout."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._who = f"{socket.gethostname()}:{os.getpid()}"
        self._done = self._done_before = 0
        self._doing: Doing = "waiting"
        self._away: Away | None = None
        self._rate, self._step_ended = 0.0, False
        self._since = self._counted_at = time.monotonic()
        self._speak_at = float("-inf")

    def note(self, *, done: int = 0, away: Away | None = None, busy: bool = False) -> None:
        """Note what a step did (done: as it counts), which store is away, or that a long step goes on (busy); say so
        if a second has passed. A store that was away since it last spoke is told of.
        """
        self._done += done
        self._step_ended |= not busy
        self._away = away or self._away
        now = time.monotonic()
        if now < self._speak_at:
            return
        new = self._done - self._done_before
        doing: Doing = self._away or ("working" if new or busy else "waiting")
        self._away = None
        if doing != self._doing:
            self._doing, self._since = doing, now
        if new or self._step_ended:  # a step that goes on is counted at its end, over all the time that it took
            self._rate = new / max(now - self._counted_at, BEAT_SECONDS)
            self._counted_at, self._done_before, self._step_ended = now, self._done, False
        self._say(rate=self._rate, since_seconds=now - self._since)

    def _say(self, *, rate: float, since_seconds: float) -> None:
        text = json.dumps(
            {
                "name": self._name,
                "doing": self._doing,
                "done": self._done,
                "rate": round(rate, 1),
                "since": round(since_seconds, 1),
            }
        )
        self._speak_at = time.monotonic() + BEAT_SECONDS
        try:
            args: list[Argument] = [self._who, text, FORGOTTEN_SECONDS, KEY_TTL_MS]
            run_script(self._client, "beat", keys=[keys.workers()], args=args)
        except RedisUnavailable as error:
            self._speak_at = time.monotonic() + REST_SECONDS
            log.debug("no sign of life", action="beat_failed", error=repr(error.__cause__))

    def end(self) -> None:
        """Take the note away after an orderly stop; one that is killed stays listed for ten minutes."""
        try:
            run_commands(self._client, [("HDEL", keys.workers(), self._who)])
        except RedisUnavailable as error:
            log.debug("still noted as alive", action="beat_failed", error=repr(error.__cause__))


def workers(client: Client) -> list[Worker]:
    """Return every worker that spoke in the last ten minutes, by kind and place. Raises RedisUnavailable."""
    now, *flat = run_script(client, "beat", keys=[keys.workers()], args=["", "", FORGOTTEN_SECONDS, KEY_TTL_MS])
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return sorted(
        (_worker(who, json.loads(text), now=float(now)) for who, text in pairs),
        key=lambda each: (each.name, each.who),
    )


def _worker(who: str, said: dict[str, object], *, now: float) -> Worker:
    def number(name: str) -> float:
        return float(str(said.get(name) or 0))

    silent = max(0.0, now - number("last"))
    return Worker(
        who=who,
        name=str(said.get("name", "")),
        doing=str(said.get("doing", "")),
        since_seconds=number("since") + silent,
        silent_seconds=silent,
        done=int(number("done")),
        rate=number("rate"),
    )
