"""A pytest plugin that lets the tests of python-redis-lock wait ten times as long for a process: machines are busy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

process_tests = import_module("process_tests")
wait = process_tests.wait_for_strings


def wait_longer(read: Callable[[], str], seconds: float, *strings: str) -> None:
    """Wait until `read` returns all strings in this order."""
    wait(read, 10 * seconds, *strings)


process_tests.wait_for_strings = wait_longer
