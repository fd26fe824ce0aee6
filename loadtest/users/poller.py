"""Follows every place of a process to its end, a greenlet each, all over one pool of connections.
Never holds up the buyers who still come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import gevent
from gevent.pool import Group, Pool
from locust.contrib.fasthttp import FastHttpSession

from loadtest.users.calls import Calls
from loadtest.users.conversation import recheck
from loadtest.users.order_life import HELD, WAITING, FollowUp

if TYPE_CHECKING:
    from loadtest.users.crowd import Crowd, KnownRequest

CONNECTIONS = 40
TICK_SECONDS = 0.25
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0


def open_session(host: str, *, request_event: Callable[..., None]) -> FastHttpSession:
    """Return a client for many greenlets: it keeps no cookies, since it speaks for many, and follows no redirect."""
    session = FastHttpSession(
        host,
        request_event,
        None,
        concurrency=CONNECTIONS,
        connection_timeout=CONNECT_SECONDS,
        network_timeout=ANSWER_SECONDS,
    )
    session.client.cookiejar = None
    session.client.redirect_response_codes = frozenset()  # type: ignore[misc]
    return session


class Followers:
    """Everybody of one process who has a place."""

    def __init__(self, session: FastHttpSession, *, crowd: Crowd) -> None:
        self.calls = Calls(session, crowd=crowd)
        self._crowd = crowd
        self._group = Group()

    def follow(self, known: KnownRequest, state: str) -> None:
        """Begin to live a new place to its end."""
        self._group.spawn(FollowUp(self.calls, known, crowd=self._crowd, state=state).run)

    @property
    def at_work(self) -> int:
        """How many places are not at their end yet."""
        return len(self._group)

    def recheck_all(self, *, seconds: float) -> None:
        """Ask for the state of every known request once more; one that is not at rest is asked again for so long."""
        moving = list(self._crowd.known.values())
        with gevent.Timeout(seconds, False):
            while moving:
                states = Pool(CONNECTIONS).map(lambda known: recheck(self.calls, known), moving)
                moving = [known for known, state in zip(moving, states, strict=True) if state in (*WAITING, HELD)]
                gevent.sleep(TICK_SECONDS)

    def stop(self) -> None:
        """Send everybody away; what they were saying is recorded as cut off."""
        self._group.kill()
