"""A guard can be switched off under the tests' settings only, and a mutant that would change nothing is an error.
Needs no server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test.utils import override_settings

from inventory import ledger
from inventory.redis import scripts
from loadtest.mutants import processes, trouble
from loadtest.mutants.defences import DEFENCES
from loadtest.mutants.guards import GUARDS, switch_off, switch_off_in_tables
from loadtest.mutants.layers import Function, MutantUnmade, Script, Text, instead
from loadtest.mutants.one_run import log_faults
from loadtest.mutants.results import Outcome, green_in_a_row, report_of
from loadtest.record.log_sentences import HOLDS_BUT, LOGS_FILE
from tests.rules.sources import ROOT
from tests.unit.shop.test_settings import SAFE

SEE_THE_FENCE = "import django; django.setup(); from inventory import ledger; print('fence <=' in ledger.CLAIM)"
EVERYTHING = {**GUARDS, **DEFENCES}
EVERY_MUTANT = pytest.mark.parametrize("name", EVERYTHING)


def start(folder: Path, *, environment: str, mutant: str) -> subprocess.CompletedProcess[str]:
    """Set Django up in a new process, as every process of a mutated shop does, and say whether the fence is on."""
    variables = {"PATH": os.environ["PATH"], **SAFE, "DJANGO_SETTINGS_MODULE": "loadtest.mutants.settings"}
    variables |= {"FAIRDROP_STATE_DIR": str(folder), "FAIRDROP_ENV": environment, "FAIRDROP_MUTANT": mutant}
    return subprocess.run(
        [sys.executable, "-c", SEE_THE_FENCE], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600
    )


def seen(mutant: str = "fence", **changes: object) -> Outcome:
    """Return a run in which the verdict was red for the right reason, or with `changes`."""
    found = {"mutant": mutant, "green": False, "checks": {"audit broken": ["I16"]}, "invariants": ["I16"], **changes}
    return Outcome(**found)  # type: ignore[arg-type]


# --- who may switch a guard off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ["production", "development"])
def test_no_settings_but_the_tests_start_with_a_mutant(tmp_path: Path, environment: str) -> None:
    started = start(tmp_path, environment=environment, mutant="fence")
    assert started.returncode != 0
    assert f"FAIRDROP_ENV={environment} refuses it" in started.stderr.splitlines()[-1]


@pytest.mark.parametrize(("mutant", "fence"), [("limit", "True"), ("fence", "False")])
def test_a_process_of_the_tests_has_its_mutant_and_no_other(tmp_path: Path, mutant: str, fence: str) -> None:
    started = start(tmp_path, environment="test", mutant=mutant)
    assert (started.returncode, started.stdout.strip()) == (0, fence), started.stderr


def test_a_mutant_nobody_knows_is_refused(tmp_path: Path) -> None:
    started = start(tmp_path, environment="test", mutant="fences")
    assert "FAIRDROP_MUTANT must be one of fence, unique_id" in started.stderr


@pytest.mark.parametrize("environment", ["production", "development"])
def test_nobody_switches_a_guard_off_by_hand_outside_tests(environment: str) -> None:
    refused = partial(pytest.raises, ImproperlyConfigured, match="under the tests' settings only")
    with override_settings(ENVIRONMENT=environment):
        with refused():
            switch_off("fence")
        with refused():
            switch_off_in_tables("unique_id", None)


# --- a mutant is never no mutant --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["no guard here", "a guard and a guard"])
def test_what_is_taken_away_must_be_there_once(text: str) -> None:
    with pytest.raises(MutantUnmade):
        instead(text, "a guard", "")
    assert instead("behind a guard.", " a guard", "") == "behind."


@EVERY_MUTANT
@override_settings(ENVIRONMENT="test")
def test_every_layer_is_found_and_changes_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[object, str]] = []

    def patch(owner: object, attribute: str, value: object) -> None:
        assert getattr(owner, attribute) != value
        changed.append((owner, attribute))
        monkeypatch.setattr(owner, attribute, value)

    switch_off(name, patch=patch)
    assert len(changed) == sum(2 if isinstance(layer, Script) else 1 for layer in EVERYTHING[name].process)


@pytest.mark.parametrize(
    "layer",
    [
        Text(says="", module="inventory.ledger", name="CLAIM", part=" AND fence < %(fence)s"),
        Script(says="", script="admit", part="if live > limit() then"),
    ],
    ids=["text", "script"],
)
def test_a_guard_that_is_written_otherwise_now_is_an_error(layer: Text | Script) -> None:
    before = (ledger.CLAIM, scripts.script_text("admit"))
    with pytest.raises(MutantUnmade):
        layer.take_away(setattr)
    assert (ledger.CLAIM, scripts.script_text("admit")) == before


def test_a_function_that_is_gone_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Function(says="", module="workers.settlement", name="allot", made=lambda real: real).take_away(setattr)


@override_settings(ENVIRONMENT="test")
def test_a_changed_script_has_a_digest_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis keeps scripts by their digest: under the old one it would run the old text."""
    before = scripts.script_digest("admit"), scripts.script_digest("settle")
    switch_off("limit", patch=monkeypatch.setattr)
    after = scripts.script_digest("admit"), scripts.script_digest("settle")
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)


@pytest.mark.parametrize(
    ("words", "source"),
    [(processes.STARTED, "workers/management/commands/run_worker.py"), (trouble.LOCK_LOST, "workers/settler.py")],
)
def test_what_a_run_waits_for_is_what_the_workers_say(words: str, source: str) -> None:
    assert f'("{words}' in (ROOT / source).read_text()


# --- what a run came to -----------------------------------------------------------------------------------------------


def test_a_mutant_counts_as_seen_only_by_its_own_invariant() -> None:
    assert seen().as_wanted
    assert not seen(green=True, invariants=[]).as_wanted
    assert not seen(invariants=["I7"]).as_wanted
    assert not seen(fault="no result").as_wanted


def test_the_shop_as_it_is_counts_as_green_only_in_all_its_trouble() -> None:
    assert Outcome(mutant="", green=True).as_wanted
    assert not Outcome(mutant="", green=True, missed=["one is frozen"]).as_wanted
    assert not Outcome(mutant="", green=False, checks={"lost": ["one"]}).as_wanted
    assert not Outcome(mutant="", green=True, fault="no result").as_wanted


def test_a_flood_is_green_only_when_the_log_of_every_sale_holds(tmp_path: Path) -> None:
    file = tmp_path / LOGS_FILE
    assert log_faults(tmp_path) == ["0 of 3 public logs were read"]
    # Its sale goes on, as in the real run.
    good = f"An independent script has checked the public log of one: 9 leaves, {HOLDS_BUT.format('answered')}\n"
    file.write_text(good * 2)
    assert log_faults(tmp_path) == ["2 of 3 public logs were read"]
    for bad in ("The public log of one (9 leaves) does not hold: tree: leaf 9", "one has no public log."):
        file.write_text(f"{good}{bad}\n{good}")
        assert log_faults(tmp_path) == [bad]
    file.write_text(good * 3)
    assert log_faults(tmp_path) == []


def test_green_runs_are_counted_in_a_row() -> None:
    good, bad = Outcome(mutant="", green=True), Outcome(mutant="", green=False)
    assert green_in_a_row([seen(), good, good]) == 2
    assert green_in_a_row([good, bad, good, good]) == 1


@pytest.mark.parametrize(
    ("outcomes", "ok"),
    [
        ([seen(), Outcome(mutant="", green=True)], True),
        ([seen(green=True), Outcome(mutant="", green=True)], False),
        ([seen(), Outcome(mutant="", green=False)], False),
        ([seen()], False),
        ([Outcome(mutant="", green=True)], False),
    ],
    ids=["all as wanted", "a mutant was not seen", "the shop was red", "no green run", "no mutant ran"],
)
def test_the_page_is_good_only_when_every_run_was_as_wanted(outcomes: list[Outcome], ok: bool) -> None:
    report = report_of(outcomes, wanted=["fence"], greens=1, date="today", revision="r", facts={})
    assert report.ok is ok
