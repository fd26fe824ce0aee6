"""The page's own replay of a log agrees with verify_sale.py, fault by fault, on every tampering and on leaves that are
none; its tree and notes with the published vectors. Runs the page's modules in Playwright's own Node; opens no port.
"""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import playwright
import pytest

from loadtest.verify.__main__ import later_than, recorded
from loadtest.verify.signed_log import KEY, ORIGIN, OTHER_KEY, SLUG, SignedLog, checkpoint_of, root_of, write
from loadtest.verify.tamperings import TAMPERINGS, copy_of
from loadtest.verify.verify_sale import RULES, Replay, Verifier
from tests.rules.sources import ROOT

NODE = Path(playwright.__file__).parent / "driver" / "node"
MODULES = ROOT / "shop" / "static" / "shop" / "log"
PATIENCE_SECONDS = 120
PUBLIC = KEY.public_key().public_bytes_raw()
KEYS = [{"key": sha256(PUBLIC).hexdigest()[:8], "public": urlsafe_b64encode(PUBLIC).rstrip(b"=").decode()}]
VECTORS: dict[str, Any] = json.loads((ROOT / "docs" / "checkable-line.json").read_text())
NOW_US = later_than(recorded())
BAD_VALUES = ("true", '"1"', "1.0", "1e0", "0", "-5", "0.5", "NaN", "null", "[1]", "{}", str(2**53), "-0")
BAD_LEAVES = (
    b"", b"{", b"[]", b"{}", b"null", b"\xff", b'"x"', b'{"kind":"what","n":0,"at":0}',
    b'{"at":0,"kind":"opened","n":0}', b'{"at": 0,"kind":"closed","n":0}', b'{"n":0,"at":0,"kind":"closed"}',
)  # fmt: skip


def run_node(program: str, *arguments: str, told: str = "") -> str:
    """Run a module of tests/support/js in Node, on the page's own modules; return what it writes."""
    command = [str(NODE), str(ROOT / "tests" / "support" / "js" / program), str(MODULES), *arguments]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def case(
    texts: Sequence[bytes], *, checkpoint: str = "", kept: Sequence[bytes] = (), off: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a case for both verifiers. kept: the leaves of which a checkpoint was kept before."""
    root = {"origin": ORIGIN, "keys": {KEYS[0]["key"]: KEYS[0]["public"]}, "size": len(kept)}
    return {
        "slug": SLUG,
        "leaves": [b64encode(text).decode() for text in texts],
        "checkpoint": checkpoint or checkpoint_of(texts),
        "keys": KEYS,
        "kept": {**root, "root": b64encode(root_of(kept)).decode()} if kept else None,
        "off": list(off),
        "now_us": NOW_US,
    }


def standby_and_a_loss(*, decided: str, is_lost: bool, in_line: bool = False, wants: int = 1) -> list[bytes]:
    """Return the log of a sale in which bob is on standby, Redis is lost or is not, and a unit comes for one of two.

    in_line: the later one was let into the line; wants: so many units bob asked for.
    """
    terms = {"version": 1, "price": "5.00", "currency": "EUR", "limit": 2, "hold_seconds": 60}
    place = {"kind": "admitted", "quantity": 1, "terms": 1}
    later = {"ordinal": 12 if is_lost else 2, "seq": 2, "request": "new", "holder": "n"}
    leaves: list[dict[str, Any]] = [
        {"kind": "opened", "units": 0, "mode": "line", "terms": terms},
        {**place, "ordinal": 1, "seq": 1, "request": "bob", "holder": "b", "standby": True, "quantity": wants},
        *([{"kind": "recovered", "lost": [[2, 11]], "restored": []}] if is_lost else []),
        {**place, **later} | ({"standby": True} if decided == "new" and not in_line else {}),
        {"kind": "stock", "change": 1, "reason": "loaded"},
        {"kind": "decided", "request": decided, "outcome": "held"},
    ]
    return write([{**leaf, "at": 1} for leaf in leaves])


def loss_in_parts(*, placed_between: bool) -> list[bytes]:
    """Return a log whose loss stands in two leaves, and of whose places two survived; one of them between the two."""
    terms = {"version": 1, "price": "5.00", "currency": "EUR", "limit": 1, "hold_seconds": 60}
    first, second = (
        {"kind": "admitted", "quantity": 1, "terms": 1, "ordinal": n, "seq": n, "request": f"r{n}", "holder": f"h{n}"}
        for n in (2, 4)
    )
    losses: list[dict[str, Any]] = [
        {"kind": "recovered", "lost": lost, "restored": []} for lost in ([[1, 1], [3, 3]], [[5, 9]])
    ]
    middle = [losses[0], second, losses[1], first] if placed_between else [*losses, first, second]
    opened = {"kind": "opened", "units": 1, "mode": "line", "terms": terms}
    decided = {"kind": "decided", "request": "r2", "outcome": "held"}
    return write([{**leaf, "at": 1} for leaf in [opened, *middle, decided]])


def refused_after_a_friend(reason: str) -> list[bytes]:
    """Return the log of a sale in which the second in line gets a unit, and then the first is refused."""
    terms = {"version": 1, "price": "5.00", "currency": "EUR", "limit": 1, "hold_seconds": 60}
    place = {"kind": "admitted", "quantity": 1, "terms": 1}
    leaves: list[dict[str, Any]] = [
        {"kind": "opened", "units": 1, "mode": "line", "terms": terms},
        {**place, "ordinal": 1, "seq": 1, "request": "bob", "holder": "b"},
        {**place, "ordinal": 2, "seq": 2, "request": "new", "holder": "n"},
        {"kind": "decided", "request": "new", "outcome": "held"},
        {"kind": "decided", "request": "bob", "outcome": "refused", "reason": reason},
    ]
    return write([{**leaf, "at": 1} for leaf in leaves])


def passed_on_standby(is_put_back: bool) -> list[bytes]:
    """Return the log of a sale in which one later on standby gets a unit, and bob one after that."""
    texts = [json.loads(text) for text in standby_and_a_loss(decided="new", is_lost=False)]
    back = [{"kind": "requeued", "request": "bob", "seq": 1, "at": 1}] if is_put_back else []
    unit = {"kind": "stock", "change": 1, "reason": "loaded", "at": 1}
    return write([*texts, *back, unit, {"kind": "decided", "request": "bob", "outcome": "held", "at": 1}])


@cache
def cases() -> dict[str, tuple[dict[str, Any], list[bytes], list[bytes]]]:
    """Return by its name each case, with its leaves and those that were kept."""
    honest = write(recorded())
    found: dict[str, tuple[dict[str, Any], list[bytes], list[bytes]]] = {}

    def put(name: str, texts: list[bytes], *, kept: Sequence[bytes] = (), **terms: Any) -> None:
        found[name] = (case(texts, kept=kept, **terms), texts, list(kept))

    for size in (1, 2, 20, len(honest) - 1, len(honest)):
        put(f"the first {size}", honest[:size], kept=honest[: size // 2])
    for each in TAMPERINGS:
        tampered = write(each.change(copy_of(recorded())))
        put(each.name, tampered)
        put(f"{each.name}, kept", tampered, kept=honest)
        put(f"{each.name}, without its rule", tampered, kept=honest if each.needs_kept else (), off=[each.rule])
    altered = write([*recorded()[:-1], {**recorded()[-1], "at": recorded()[-1]["at"] + 1}])
    put("leaves that nobody signed", altered, checkpoint=checkpoint_of(honest))
    put("a checkpoint of another key", honest, checkpoint=checkpoint_of(honest, key=OTHER_KEY))
    for decided in ("bob", "new"):
        put(f"{decided} on standby", standby_and_a_loss(decided=decided, is_lost=False))
        put(f"{decided} on standby after a loss", standby_and_a_loss(decided=decided, is_lost=True))
    for wants, is_lost in product((1, 2), (False, True)):
        texts = standby_and_a_loss(decided="new", is_lost=is_lost, in_line=True, wants=wants)
        put(f"bob wants {wants} on standby, new in the line{' after a loss' * is_lost}", texts)
    for placed_between in (False, True):
        put(f"a loss in two leaves, {placed_between}", loss_in_parts(placed_between=placed_between))
    for reason in ("refused", "limit_reached", "dead_letter", "discarded_by_staff", "because", ""):
        put(f"who is passed over is refused: {reason}", refused_after_a_friend(reason))
    for is_put_back in (False, True):
        put(f"bob is passed over on standby{', and put back' * is_put_back}", passed_on_standby(is_put_back))
    for value in BAD_VALUES:
        put(f"a quantity of {value}", [*honest[:9], honest[9].replace(b'"quantity":1', f'"quantity":{value}'.encode())])
        put(f"a seq of {value}", [*honest[:9], re.sub(rb'"seq":\d+', f'"seq":{value}'.encode(), honest[9])])
    for bad in BAD_LEAVES:
        put(f"a first leaf of {bad!r}", [bad, *honest[1:]])
        put(f"a tenth leaf of {bad!r}", [*honest[:9], bad, *honest[10:]])
    return found


@cache
def judged_by_the_page() -> dict[str, dict[str, Any]]:
    """Return what the page's modules find in each case."""
    told = "\n".join(json.dumps(each) for each, _, _ in cases().values())
    lines = run_node("judge_logs.mjs", told=told).splitlines()
    return dict(zip(cases(), map(json.loads, lines), strict=True))


def judged_by_the_script(name: str) -> dict[str, list[str]]:
    """Return what verify_sale.py finds in a case."""
    each, texts, kept = cases()[name]
    verifier = Verifier(SignedLog(texts, checkpoint=each["checkpoint"]).get, SLUG, off=each["off"])
    if kept:
        verifier.kept = {len(kept): root_of(kept)}
        verifier.origin, verifier.keys = ORIGIN, dict(each["kept"]["keys"])
    verifier.read_keys()
    verifier.round()
    verifier.replay.finish(NOW_US)
    return verifier.replay.faults


def leaves_named(faults: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return by rule at which leaf each fault was found: the words of the two need not be the same."""
    return {rule: [text.partition(":")[0] for text in found] for rule, found in faults.items()}


@pytest.mark.parametrize("name", cases())
def test_the_page_finds_what_the_script_finds(name: str) -> None:
    found = judged_by_the_page()[name]
    assert found["canVerify"]
    assert leaves_named(found["faults"]) == leaves_named(judged_by_the_script(name))


def test_every_rule_is_broken_by_some_case_and_by_none_without_it() -> None:
    """The control: the cases are such that each rule is needed, and an untampered log breaks none.

    The page is shown no tickets: a ticket's own page checks its place.
    """
    assert {rule for each in judged_by_the_page().values() for rule in each["faults"]} == set(RULES) - {"ticket"}
    assert judged_by_the_page()[f"the first {len(recorded())}"]["faults"] == {}
    for each in TAMPERINGS:
        assert judged_by_the_page()[f"{each.name}, without its rule"]["faults"] == {}


@pytest.mark.parametrize("placed_between", [False, True])
def test_a_loss_may_be_declared_in_several_leaves(placed_between: bool) -> None:
    """The control: a later place between them is one out of its order."""
    faults = judged_by_the_page()[f"a loss in two leaves, {placed_between}"]["faults"]
    assert [*faults] == (["admitted"] if placed_between else [])


@pytest.mark.parametrize("decided", ["bob", "new"])
def test_who_was_on_standby_at_a_loss_passes_over_nobody_and_is_not_passed_over(decided: str) -> None:
    """The control: without a loss it is a fault."""
    assert judged_by_the_page()[f"{decided} on standby after a loss"]["faults"] == {}
    assert [*judged_by_the_page()[f"{decided} on standby"]["faults"]] == ["order"]


def test_who_comes_into_the_line_gets_nothing_that_is_enough_for_one_on_standby() -> None:
    """The controls: they want more than came back, or waited at a loss."""
    faults = {name: [*found["faults"]] for name, found in judged_by_the_page().items()}
    assert faults["bob wants 1 on standby, new in the line"] == ["order"]
    assert faults["bob wants 2 on standby, new in the line"] == []
    assert faults["bob wants 1 on standby, new in the line after a loss"] == []


def test_who_is_passed_over_is_excused_by_a_dead_letter_by_staff_or_when_put_back_alone() -> None:
    faults = {name: {*found["faults"]} for name, found in judged_by_the_page().items()}
    named = "who is passed over is refused: {}".format
    assert [faults[named(each)] for each in ("dead_letter", "discarded_by_staff")] == [set(), set()]
    assert [faults[named(each)] for each in ("refused", "because", "")] == [{"order"}, *[{"format", "order"}] * 2]
    assert faults[named("limit_reached")] == {"order", "limit"}
    assert faults["bob is passed over on standby, and put back"] == set()
    assert faults["bob is passed over on standby"] == {"order"}  # the control


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_number_is_whole_and_not_too_small(value: str) -> None:
    assert "format" in judged_by_the_page()[f"a quantity of {value}"]["faults"]
    assert ("format" in judged_by_the_page()[f"a seq of {value}"]["faults"]) == (value != "0")
    assert judged_by_the_page()["the first 20"]["faults"] == {}  # the control


def test_each_order_that_was_voided_is_counted_by_its_reason() -> None:
    """More of them than the page lists acts. The control is an act that voids nothing, with the same reason."""
    act, told = {"kind": "act", "act": "void_order", "role": "staff", "at": recorded()[-1]["at"]}, recorded()
    told += [{**act, "reason": "suspected_fraud"}] * 600 + [{**act, "reason": "faulty"}] * 2
    texts = write([*told, {**act, "act": "refund_order", "reason": "faulty"}])
    (line,) = run_node("judge_logs.mjs", told=json.dumps(case(texts))).splitlines()
    replay = Replay()
    for text in texts:
        replay.add(text)
    found = json.loads(line)
    assert (found["faults"], found["voided"]) == ({}, {"suspected_fraud": 600, "faulty": 2})
    assert found["voided"] == +replay.voided


def test_a_key_that_was_appended_is_read_and_not_missed_by_another_process() -> None:
    """In the middle of a rotation one process lists the new key, one does not. The control: an old one is missed."""
    old, honest = {**KEYS[0], "from": "2026-01-01T00:00:00Z"}, write(recorded())
    new_public = urlsafe_b64encode(OTHER_KEY.public_key().public_bytes_raw()).rstrip(b"=").decode()
    new = {"key": "new", "public": new_public, "from": "2026-06-01T00:00:00Z"}
    by_new = checkpoint_of(honest, key=OTHER_KEY)
    lists = [([old, new], ""), ([old], ""), ([old, new], by_new), ([new, old], by_new), ([new], by_new)]
    told = [{**case(honest, kept=honest, checkpoint=note), "keys": keys} for keys, note in lists]
    judged = [
        json.loads(line) for line in run_node("judge_logs.mjs", told="\n".join(map(json.dumps, told))).splitlines()
    ]
    assert [list(each["kept"]) for each in judged] == [
        [old["key"]], [old["key"]], [old["key"]], ["new", old["key"]], ["new"]
    ]  # fmt: skip
    assert [list(each["faults"]) for each in judged] == [[], [], [], [], ["kept"]]


def test_tree_notes_and_growth_are_those_of_the_vectors() -> None:
    said = json.loads(run_node("log_vectors.mjs", str(ROOT / "docs" / "checkable-line.json")))
    assert (said["empty"], said["roots"]) == (VECTORS["rfc6962"]["empty_root"], VECTORS["rfc6962"]["roots"])
    assert said["paths"] == [True] * len(VECTORS["rfc6962"]["paths"])
    assert said["growth"] == [[True, True, False]] * len(VECTORS["rfc6962"]["growth"])
    assert (said["tiles"], said["digests"]) == (True, 300)
    assert said["signed"] == [True, False, False]
    assert said["proof"] == [True, False]
    assert (said["grown"], said["forged"]) == (said["pairs"], 0)
