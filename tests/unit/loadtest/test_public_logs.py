"""A flood ends with the verifier of public logs, which reads every ticket that buyers were given. Needs no server."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import cast

import pytest

from loadtest.checker.__main__ import main
from loadtest.checker.verdict import VERDICT_FILE
from loadtest.record.expectations import FULL_SET
from loadtest.record.log_sentences import HOLDS, HOLDS_BUT, LOGS_FILE, NO_LOG, is_in_order
from loadtest.record.tickets import FILE_PREFIX, TicketWriter, clear_tickets, read_tickets
from loadtest.report import write_report
from loadtest.report.words import BAD, sentence_of
from loadtest.run import books, public_logs
from loadtest.run.public_logs import check_log
from loadtest.shop_api import NotThere, ShopApi, ShopError
from loadtest.verify.__main__ import all_tickets, recorded
from loadtest.verify.signed_log import SLUG, SignedLog, write
from loadtest.verify.tamperings import Leaves, drop_place, replace_winner
from tests.support.runs.hand_made_runs import SALE, Run, write_machine


class Shop:
    """Serves one log."""

    def __init__(self, leaves: Leaves) -> None:
        self.fetch = SignedLog(write(leaves)).get


def checked(leaves: Leaves, *, folder: Path) -> str:
    return check_log(cast("ShopApi", Shop(leaves)), SLUG, audit=None, folder=folder)


class WithoutLog:
    """Serves keys, perhaps, and no log."""

    def __init__(self, *, has_keys: bool) -> None:
        self._has_keys = has_keys

    def fetch(self, path: str) -> bytes:
        if self._has_keys and path.endswith("/fairdrop-keys"):
            return SignedLog([]).get(path)
        raise NotThere(path)


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_shop_that_publishes_keys_must_publish_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_keys: bool
) -> None:
    """The control: one without keys has no logs."""
    monkeypatch.setattr(public_logs, "PATIENCE_SECONDS", 0.0)
    shop = cast("ShopApi", WithoutLog(has_keys=has_keys))
    text = check_log(shop, SLUG, audit=None, folder=tmp_path)
    assert (is_in_order(text), f"{SLUG} has no public log" in text) == (not has_keys, True)


class TornShop(Shop):
    """Serves a log whose last leaves were lost, with the checkpoint of all."""

    def __init__(self, leaves: Leaves) -> None:
        super().__init__(leaves)
        whole = self.fetch
        self.fetch = lambda path: whole(path)[:-100] if "/tile/entries/" in path else whole(path)


class BusyShop(Shop):
    """Serves its log, and does not say when the sale ends."""

    def __init__(self, leaves: Leaves) -> None:
        super().__init__(leaves)
        self._whole, self.fetch = self.fetch, self.fetch_log

    def fetch_log(self, path: str) -> bytes:
        if path.endswith(f"/sales/{SLUG}"):
            raise ShopError("503")
        return self._whole(path)


@pytest.mark.parametrize(
    ("shop", "lost", "is_whole"),
    [(Shop(recorded()), 0, True), (BusyShop(recorded()), 0, True), (Shop(drop_place(recorded())), 0, False),
     (Shop(recorded()), 1, False), (TornShop(recorded()), 0, False)],
    ids=["whole", "busy", "a place is missing", "a decision is missing", "torn"],
)  # fmt: skip
def test_a_log_that_lacks_anything_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop, *, lost: int, is_whole: bool
) -> None:
    """The first is the control: all who were admitted are decided. lost: decisions that only the books have."""
    monkeypatch.setattr(public_logs, "PATIENCE_SECONDS", 0.0)
    places = sum(leaf["kind"] == "admitted" for leaf in recorded())
    books = {"counts": {"decided": places + lost}}
    text = check_log(cast("ShopApi", shop), SLUG, audit=books, folder=tmp_path)
    assert (is_in_order(text), text.endswith(HOLDS)) == (is_whole, is_whole), text


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (f"An independent script has checked the public log of drop: {HOLDS}", 0),
        (f"An independent script has checked the public log of drop: {HOLDS_BUT.format('answered and ticket')}", 0),
        ("An independent script has checked the public log of drop: every rule holds, but for order.", 1),
        (f"drop {NO_LOG}", 0),
        ("The public log of drop (9 leaves) does not hold: order: leaf 8", 1),
        (f"The keys of the public log of drop cannot be read: the shop says that {HOLDS}", 1),
        (f"The public log of drop cannot be read: drop {NO_LOG}", 1),
    ],
    ids=["it holds", "what is not judged yet", "what is not said so", "a shop without logs",
         "it does not hold", "a shop's own words", "another shop's words"],
)  # fmt: skip
def test_what_is_said_of_the_log_is_in_the_verdict_and_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    run = Run()
    write_machine(tmp_path, "here", run.operations, clock="here")
    monkeypatch.setattr(books, "check_log", lambda *_, **__: said)
    closing = books.ClosingBooks(cast("ShopApi", None), tmp_path, FULL_SET, {SALE: {**run.book, "before": None}})
    assert books.close_books(closing, files=1) == code
    page = write_report(tmp_path).read_text()
    assert (sentence_of(json.loads((tmp_path / VERDICT_FILE).read_text())).state == BAD) is bool(code)
    assert (said in page, "each once" in page) == (bool(code), not code)
    assert main([str(tmp_path)]) == code  # judged again
    (tmp_path / LOGS_FILE).unlink()
    assert main([str(tmp_path)]) == 1  # the run says that there was a sentence


def test_one_who_was_put_back_in_line_is_not_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood that took them for decided would judge a log that is not whole yet."""
    monkeypatch.setattr(public_logs, "PATIENCE_SECONDS", 0.0)
    opened, place = (next(leaf for leaf in recorded() if leaf["kind"] == kind) for kind in ("opened", "admitted"))
    back = {"kind": "requeued", "request": place["request"], "seq": place["seq"], "at": place["at"]}
    shop = cast("ShopApi", Shop([opened, place, back]))
    text = check_log(shop, SLUG, audit=None, folder=tmp_path)  # the control: nobody was to be decided
    assert (is_in_order(text), text.endswith(HOLDS_BUT.format("answered"))) == (True, True)
    text = check_log(shop, SLUG, audit={"counts": {"decided": 1}}, folder=tmp_path)
    assert (is_in_order(text), "0 of 1 decisions" in text) == (False, True), text


def keep(folder: Path, tickets: list[str]) -> None:
    writer = TicketWriter(folder)
    for ticket in tickets:
        writer.add(ticket, sale=SLUG)
    writer.close()
    writer.add("fdt2.too.late", sale=SLUG)


def test_every_ticket_of_a_flood_is_checked(tmp_path: Path) -> None:
    tickets = all_tickets(recorded())
    keep(tmp_path, [*tickets, tickets[0]])  # one was given twice
    text = checked(recorded(), folder=tmp_path)
    assert is_in_order(text), text
    assert f"{len(tickets) + 1} tickets" in text


def test_a_place_that_was_given_to_another_is_named(tmp_path: Path) -> None:
    keep(tmp_path, all_tickets(recorded()))
    text = checked(replace_winner(recorded()), folder=tmp_path)
    assert (is_in_order(text), "ticket: " in text) == (False, True)
    clear_tickets(tmp_path)
    assert is_in_order(checked(replace_winner(recorded()), folder=tmp_path))  # the control: nobody kept a ticket


def test_a_ticket_that_is_not_in_the_log_at_rest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is younger than what the log's own rule waits for: a flood is short."""
    monkeypatch.setattr(public_logs, "PATIENCE_SECONDS", 0.0)
    leaves, now_us = recorded(), time.time_ns() // 1000
    places = [{**leaf, "at": now_us, "seq": now_us} for leaf in leaves if leaf["kind"] == "admitted"]
    keep(tmp_path, all_tickets(places))
    text = check_log(cast("ShopApi", Shop(leaves[:1])), SLUG, audit=None, folder=tmp_path)
    assert (is_in_order(text), "tickets that are not in the log" in text) == (False, True), text
    clear_tickets(tmp_path)
    keep(tmp_path, all_tickets([{**place, "ordinal": 0} for place in places]))  # that name no place of the log
    text = check_log(cast("ShopApi", Shop(leaves)), SLUG, audit=None, folder=tmp_path)
    assert (is_in_order(text), "tickets that are not in the log" in text) == (False, True), text


def test_a_ticket_that_nobody_can_check_is_counted(tmp_path: Path) -> None:
    """Of a web process without the keys of a shop whose others sign. The control is a shop that has no logs."""
    no_logs, of_old = cast("ShopApi", WithoutLog(has_keys=False)), "id.buyer.1.2.3.4.signature"
    keep(tmp_path, [of_old])
    assert is_in_order(check_log(no_logs, SLUG, audit=None, folder=tmp_path))
    keep(tmp_path, [*all_tickets(recorded()), of_old])
    text = checked(recorded(), folder=tmp_path)
    assert (is_in_order(text), "nobody can check them: 1" in text) == (False, True), text
    keep(tmp_path, ["", *all_tickets(recorded()), ""])  # two answers lacked theirs
    text = checked(recorded(), folder=tmp_path)
    assert (is_in_order(text), "nobody can check them: 2" in text) == (False, True), text
    keep(tmp_path, all_tickets(recorded()))
    assert not is_in_order(check_log(no_logs, SLUG, audit=None, folder=tmp_path))  # it signs, and shows no key


def test_what_was_never_finished_is_left_out(tmp_path: Path) -> None:
    ticket = all_tickets(recorded())[0]
    keep(tmp_path, [ticket])
    (file,) = tmp_path.glob(f"{FILE_PREFIX}*.txt")
    with file.open("a") as end:
        end.write(f"other {ticket}\n{SLUG} {ticket[:50]}")
    assert [*read_tickets(tmp_path, sale=SLUG)] == [ticket]
    assert [*read_tickets(tmp_path, sale="other")] == [ticket]
