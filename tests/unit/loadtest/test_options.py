"""The flood's own arguments: shown in Locust's page with their choices, secrets kept out of it, checked when read."""

from __future__ import annotations

import argparse
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loadtest import run_flood
from loadtest.plan import options as arguments
from loadtest.plan.population import BUILT_IN, EVERYBODY, EVERYBODY_MIX, SHOPPER
from loadtest.shop_api import ShopError

LOCUSTS_OWN = ("include_in_web_ui", "is_secret", "env_var")


class Page(argparse.ArgumentParser):
    """Takes arguments as Locust's parser does, and notes what its page would show of each."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, dict[str, Any]] = {}

    def add_argument(self, *names: str, **how: Any) -> argparse.Action:
        """Note what is Locust's own, pass the rest on."""
        own = {name: how.pop(name) for name in LOCUSTS_OWN if name in how}
        action = super().add_argument(*names, **how)
        if own.get("include_in_web_ui", True) and action.dest != "help":
            self.shown[action.dest] = own | {"choices": action.choices, "default": action.default, "help": action.help}
        return action


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """The arguments, declared where a token stands in the environment."""
    monkeypatch.setenv(arguments.AUDIT_TOKEN_VARIABLE, "a-secret")
    page = Page()
    arguments.declare(page)
    return page


def wanted(page: Page, *words: str) -> arguments.Wanted:
    """Return what these words mean."""
    return arguments.wanted_from(page.parse_args(words))


def test_the_page_offers_every_argument_but_the_leave_to_flood_others(page: Page) -> None:
    own = {"sales", "buyers", "attempts", "audit_token", "history", "seed", "expects"}
    own |= {"mix", "rate", "seconds"}
    assert set(page.shown) == own
    assert all(shown["help"] for shown in page.shown.values())
    assert EVERYBODY_MIX in page.shown["mix"]["choices"]


def test_the_token_of_the_environment_is_used_and_never_shown(page: Page) -> None:
    assert page.shown["audit_token"]["is_secret"] is True
    assert "env_var" not in page.shown["audit_token"]
    assert "a-secret" not in repr(page.shown)
    assert wanted(page).audit_token == "a-secret"
    assert wanted(page, "--audit-token", "other").audit_token == "other"


def test_who_comes_follows_from_whether_arrivals_are_planned(page: Page) -> None:
    closed, planned = wanted(page).population(("a",)), wanted(page).population(("a",), planned=70)
    assert (closed.kinds, closed.buyers, closed.attempts) == ({SHOPPER: BUILT_IN[SHOPPER]}, 3000, 20_000)
    assert (planned.kinds, planned.buyers) == (EVERYBODY, 70)
    assert set(wanted(page, "--mix", "bot").population(("a",)).kinds) == {"bot"}


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("buyers", "many", "whole numbers"),
        ("attempts", 5, "at least one attempt for each"),
        ("rate", "fast", "must be numbers"),
        ("rate", -1, "below zero"),
        ("seconds", float("nan"), "below zero"),
        ("mix", "nobody", "There is no mix 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(page: Page, field: str, value: object, sentence: str) -> None:
    options = page.parse_args([])
    setattr(options, field, value)  # as the page would
    with pytest.raises(ShopError, match=sentence):
        arguments.wanted_from(options)


def test_a_run_is_kept_in_the_one_folder_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_flood.parse(["--history", str(tmp_path), "--artefacts", str(tmp_path)])
    assert "not allowed with argument" in capsys.readouterr().err
    monkeypatch.setattr(run_flood, "check", lambda _: ["drop"])
    monkeypatch.setattr(run_flood.signal, "signal", lambda *_: None)
    file = tmp_path / "a-file"
    file.touch()
    assert run_flood.main(["--history", str(file)]) == 2
    assert capsys.readouterr().err == f"[Errno 17] File exists: '{file}'\n"


def test_a_host_that_is_not_here_wants_a_flag(page: Page) -> None:
    assert [wanted(page, *words).remote for words in ((), ("--allow-remote",))] == [False, True]


class SlowToEnd:
    """A process that lives through every bounded wait."""

    pid = 0

    def poll(self) -> None:
        """Say that it is running."""

    terminate = poll

    def wait(self, timeout: float | None = None) -> int:
        """End only when there is no bound."""
        if timeout is not None:
            raise subprocess.TimeoutExpired("locust", timeout)
        return -signal.SIGKILL


def test_a_killed_flood_is_waited_for_however_long_its_end_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take seconds over it: then the verdict is printed all the same."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(run_flood.os, "killpg", lambda *group: killed.append(group))
    run_flood._end(SlowToEnd())
    assert killed == [(0, signal.SIGKILL)]
