"""Says when a session of staff is over, and whether the password was given again a moment ago.
Never ends a session for lack of use: Django does, SESSION_COOKIE_AGE seconds after the session was last saved.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django_otp import DEVICE_ID_SESSION_KEY

BEGAN_AT, USED_AT, PASSWORD_AT = "began_at", "used_at", "password_at"
# A session is saved at most so often for being used: not once a page.
MAX_NOTE_SECONDS = 60


def begin(session: SessionBase) -> None:
    """Note that somebody has just logged in: whatever was shown in this session before counts no more."""
    for shown in (DEVICE_ID_SESSION_KEY, PASSWORD_AT):
        session.pop(shown, None)
    session.cycle_key()
    session[BEGAN_AT] = session[USED_AT] = time.time()


def end_all(user: User) -> None:
    """End every session of `user`. Reads all sessions: only staff have one."""
    for session in Session.objects.iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            session.delete()


def is_over(session: SessionBase) -> bool:
    """Say whether the session is older than STAFF_SESSION_SECONDS; one that does not say how old it is, is over."""
    began_at = session.get(BEGAN_AT, 0)
    return bool(time.time() - began_at >= settings.STAFF_SESSION_SECONDS)


def note_use(request: HttpRequest) -> None:
    """Save the session, so that it goes on; not for what a page asks by itself, alone on a desk."""
    by_itself = "application/json" in request.headers.get("Accept", "") or "watch" in request.GET
    every_seconds = min(MAX_NOTE_SECONDS, settings.SESSION_COOKIE_AGE / 4)
    if not by_itself and time.time() - request.session.get(USED_AT, 0) >= every_seconds:
        request.session[USED_AT] = time.time()


def note_password(session: SessionBase) -> None:
    """Note that the right password was given again."""
    session[PASSWORD_AT] = time.time()


def has_fresh_password(session: SessionBase) -> bool:
    """Say whether the password was given again in the last PASSWORD_AGAIN_SECONDS; the login itself does not count."""
    given_at = session.get(PASSWORD_AT, 0)
    return bool(time.time() - given_at < settings.PASSWORD_AGAIN_SECONDS)
