"""Browsers of staff for the tests of the admin: a role each, as the migration made them; and counters of what a page
costs. Starts nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from inventory import redis
from shop.accounts import sessions

ROLES = ("viewer", "operator", "manager")


def new_user(role: str = "superuser") -> User:
    """Return somebody new of the staff; role: a group, superuser, or none."""
    name = f"{role}-{token_hex(4)}"
    if role == "superuser":
        return User.objects.create_superuser(name)
    user = User.objects.create_user(name, is_staff=True)
    if role != "none":
        user.groups.add(Group.objects.get(name=role))
    return user


def browser_of(role: str = "superuser", *, user: User | None = None) -> Client:
    """Return a signed-in browser of `user`, or of somebody new with `role`, who has just given the password again."""
    client = Client()
    client.force_login(user or new_user(role))
    session = client.session
    # However slow the test is, and no look notes its time meanwhile.
    session[sessions.PASSWORD_AT] = session[sessions.USED_AT] = time.time() + 3600
    session.save()
    return client


def count_queries(call: Callable[[], Any]) -> int:
    """Return how many statements `call` sends to the database."""
    count = 0

    def counter(execute: Callable[..., Any], *args: Any) -> Any:
        nonlocal count
        count += 1
        return execute(*args)

    with connection.execute_wrapper(counter):
        call()
    return count


@contextmanager
def counted_round_trips(monkeypatch: Any) -> Iterator[Callable[[], int]]:
    """Give a function that says how often this thread has written to the line's Redis within the block."""
    kind = redis.connect().connection_pool.connection_class
    sent, here = 0, threading.current_thread()
    real = kind.send_packed_command

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += threading.current_thread() is here  # others count locks, and renew them
        return real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "send_packed_command", counting)
        yield lambda: sent
