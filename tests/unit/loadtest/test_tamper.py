"""The adversary's lab: each tampering is named by its rule, and by none without it. Needs no server."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from types import SimpleNamespace

import pytest

from loadtest.verify.__main__ import all_tickets, judge, main, recorded, running, try_all, try_out, try_signatures
from loadtest.verify.signed_log import ORIGIN, OTHER_KEY, SLUG, SignedLog, checkpoint_of, tickets_of, write
from loadtest.verify.tamperings import TAMPERINGS, Tampering, publish_version_again
from loadtest.verify.verify_sale import RULES, Verifier, run
from loadtest.verify.verify_sale import main as verify
from tests.rules.sources import ROOT


def test_an_untampered_log_is_green_at_every_length() -> None:
    texts = write(recorded())
    for size in range(1, len(texts) + 1):
        # While the sale runs some wait; a second after its end not everybody is answered.
        assert judge(SignedLog(texts[:size])) <= {"answered"}, size
    assert judge(SignedLog(texts), kept=texts[:30]) == set()


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.name)
def test_each_tampering_is_named_by_its_rule_and_passes_without_it(tampering: Tampering) -> None:
    assert try_out(tampering, recorded())[1] == []


def test_all_but_what_needs_its_end_are_named_while_the_sale_runs() -> None:
    named, wrong = try_all(running(recorded()))
    assert wrong == []
    assert [name for name, by in named.items() if by == "only when it is over"] == [
        "somebody is refused for a reason that is none", "somebody is never answered, and the end is dated ahead",
        "somebody is never answered, and said to be put back", "a friend is let in half an hour after the end",
        "somebody is never answered",
    ]  # fmt: skip


def test_the_document_has_the_table_of_the_lab() -> None:
    named, _ = try_all(recorded())
    document = (ROOT / "docs" / "checkable-line.md").read_text()
    missing = [name for name, by in named.items() if f"| {name} | {by.replace('✓ ', '')} |" not in document]
    assert missing == []


def test_every_rule_has_a_tampering() -> None:
    assert {each.rule for each in TAMPERINGS} | {"tree", "signed"} == {*RULES, ""}
    assert try_signatures(recorded()) == []


def test_a_checkpoint_that_was_kept_is_compared_the_next_time(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, keep = write(recorded()), tmp_path_factory.mktemp("kept") / "folder"
    for served, code in ((texts[:30], 0), (texts, 0), (texts[:30], 1), (texts, 0)):
        assert run(Verifier(SignedLog(served).get, SLUG), keep=keep) == code
    assert "✗ the log has grown from every checkpoint" in capsys.readouterr().out
    assert sorted(file.name for file in keep.iterdir()) == ["30", str(len(texts))]


def test_who_follows_a_log_through_a_rotation_reads_the_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is appended, then signs: the verifier began before either."""
    texts = write(recorded())
    old, new = SignedLog(texts), SignedLog(texts, checkpoint=checkpoint_of(texts, key=OTHER_KEY))
    public = OTHER_KEY.public_key().public_bytes_raw()
    added = {"key": sha256(public).hexdigest()[:8], "public": urlsafe_b64encode(public).rstrip(b"=").decode()}
    rounds: list[float] = []

    def get(path: str) -> bytes:
        if path.endswith("/fairdrop-keys") and rounds:
            return json.dumps([*json.loads(old.get(path)), added]).encode()
        return (new if rounds else old).get(path)

    def stop_after_two(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("loadtest.verify.verify_sale.time", SimpleNamespace(**{**vars(time), "sleep": stop_after_two}))
    assert run(Verifier(get, SLUG), follow=True) == 0
    assert len(rounds) == 3


def test_two_views_are_named_when_their_checkpoints_come_together(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One buyer gives another their checkpoint: a file in the folder."""
    mine, keep = write(recorded()), tmp_path_factory.mktemp("kept")
    yours = write(publish_version_again(recorded()))
    verifier = Verifier(SignedLog(yours).get, SLUG)
    verifier.read_keys()
    verifier.round()
    keep.joinpath("yours").write_text(verifier.note)
    assert run(Verifier(SignedLog(mine).get, SLUG), keep=keep) == 1
    assert run(Verifier(SignedLog(mine).get, SLUG)) == 0  # the control: without it nobody sees


@pytest.mark.parametrize("note", ["", "nothing", f"{ORIGIN}\n3\nAAAA\n\n— {ORIGIN} AAAA\n"])
def test_a_checkpoint_of_nobody_is_not_believed(note: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    keep = tmp_path_factory.mktemp("kept")
    (keep / "1").write_text(note)
    verifier = Verifier(SignedLog(write(recorded())).get, SLUG)
    with suppress(ValueError):  # told as one that cannot be read
        assert run(verifier, keep=keep) == 1
    assert [file.name for file in keep.iterdir()] == ["1"]


def test_the_tickets_of_a_log_are_in_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    texts, folder = write(recorded()), tmp_path_factory.mktemp("ticket")
    for number, ticket in enumerate(all_tickets(recorded())):
        file = folder / str(number)
        file.write_text(f"{ticket}\n")
        assert run(Verifier(SignedLog(texts).get, SLUG), ticket=file) == 0


@pytest.mark.parametrize(
    "why",
    ["another key", "another sale", "another size", "cut", "two for one place", "no place", "no number", "dated ahead",
     "a size that is not whole"],
)  # fmt: skip
def test_what_is_wrong_with_a_ticket_is_named(why: str) -> None:
    log, place = SignedLog(write(recorded())), next(leaf for leaf in recorded() if leaf["kind"] == "admitted")
    shown = {
        "another key": tickets_of([place], key=OTHER_KEY),
        "another sale": tickets_of([place], sale="other"),
        "another size": tickets_of([place], size=2),
        "cut": [all_tickets(recorded())[0][:-5]],
        "two for one place": tickets_of([place, {**place, "request": "friend"}]),
        "no place": tickets_of([{**place, "ordinal": 10**6}]),
        "no number": tickets_of([{**place, "ordinal": 0, "request": "gone"}]),
        "dated ahead": tickets_of([{**place, "ordinal": 10**6, "seq": place["seq"] + 10**15}]),
        "a size that is not whole": tickets_of([place], size=2.0),  # type: ignore[arg-type]
    }[why]
    assert judge(log, tickets=shown) == {"ticket"}
    assert judge(log, tickets=shown, off={"ticket"}) == set()  # the control


def test_a_place_of_this_moment_may_still_be_published() -> None:
    leaves = recorded()
    verifier = Verifier(SignedLog(write(leaves)).get, SLUG)
    verifier.read_keys()
    place = next(leaf for leaf in leaves if leaf["kind"] == "admitted")
    now_us = leaves[-1]["at"]
    verifier.show(tickets_of([{**place, "ordinal": 10**6, "seq": now_us}])[0])
    verifier.round()
    verifier.replay.finish(now_us + 1_000_000)
    assert verifier.replay.faults == {}
    verifier.replay.finish(now_us + 3_600_000_000)
    assert set(verifier.replay.faults) == {"ticket"}


def test_the_lab_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.count("✓") >= len(TAMPERINGS)


def test_what_is_no_log_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(["http://127.0.0.1:9/sales/none/"]) == 2
    assert "could not be read" in capsys.readouterr().err
    assert verify(["none"]) == 2
    with pytest.raises(SystemExit):
        verify([])


@pytest.mark.parametrize(
    "leaf", [b"", b"{", b"[]", b"{}", b'{"kind":"what","n":0,"at":0}', b'{"at":0,"kind":"opened","n":0}', b"\xff"]
)
def test_a_leaf_that_is_none_is_a_fault_and_no_failure(leaf: bytes) -> None:
    assert "format" in judge(SignedLog([leaf, *write(recorded())[1:]]))
