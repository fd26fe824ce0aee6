"""A web process says "sold out" from memory to strangers only, and only while it knows it for sure.
The control is the same sale with a single one of the conditions broken.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inventory.line.reading import LineFigures
from inventory.records import Record, buyer_in
from inventory.states import State
from shop.gate.sales import cache as board_module
from shop.gate.sales.cache import MAX_QUIET, PAUSE_A_SALE_SECONDS, Board
from shop.gate.sales.state import FRESH_SECONDS, SaleEntry
from shop.orders.refusals import full_retry_seconds
from shop.sales.catalogue import SaleCard

KNOWN, STRANGER = "k" * 22, "s" * 22
GONE = LineFigures(available=0, held=0, sold=9, queued=0, admitted=9, version=3, records=9)


def sold_out_entry(
    *, figures: LineFigures = GONE, age_seconds: float = -3600.0, opens_in_hours: float = -1
) -> SaleEntry:
    """Return a sale of which the process knows all it must; younger than now: a slow machine changes nothing."""
    opens_at = datetime.now(UTC) + timedelta(hours=opens_in_hours)
    entry = SaleEntry(
        SaleCard(
            sale_id=1, slug="lamp", sku="lamp", title="", tagline="", description="", picture="", price=Decimal(1),
            list_price=Decimal(1), currency="EUR", opens_at=opens_at, closes_at=opens_at + timedelta(hours=9),
            per_buyer_limit=1, hold_seconds=60, operator_state="on", pause_reason="", line_capacity=0,
            request_key="k", quantity=9, available=0, held=0, sold=9, version=3, fence=1, revision=1,
            terms_version=1, ordinal_base=0,
        )
    )  # fmt: skip
    entry.see(figures, moment=time.monotonic() - age_seconds)
    entry.known_buyers = frozenset({KNOWN})
    entry.known_at_admitted = entry.known_at_records = 9
    return entry


class Redis:
    """Stands for the line: the same figures for every sale; notes which sales' buyers are read, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, entries: list[SaleEntry]) -> None:
        self.figures = GONE
        self.read: list[str] = []
        self.entries = entries
        monkeypatch.setattr(board_module, "reading", self)

    async def figures_async(self, _client: Any, sales: list[Any]) -> list[LineFigures]:
        return [self.figures] * len(sales)

    async def known_buyers_async(self, _client: Any, sku: str) -> set[str]:
        self.read.append(sku)
        assert all(entry.figures == self.figures for entry in self.entries), "a scan came before another's figures"
        return {KNOWN}

    def look(self) -> None:
        """Let a board that has these sales look at their figures once."""

        async def look() -> None:
            board = Board(cast(Any, SimpleNamespace(pubsub=lambda: None)), load_cards=list)
            board._by_slug = {entry.card.slug: entry for entry in self.entries}
            await board._refresh_figures()

        asyncio.run(look())
        for entry in self.entries:
            entry.seen_at = time.monotonic() + 3600  # however slow this machine is


def fresh_entry(name: str) -> SaleEntry:
    return SaleEntry(replace(sold_out_entry().card, sku=name, slug=name))


def test_who_was_admitted_is_read_after_the_figures_of_all_sales(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [fresh_entry("lamp"), fresh_entry("bed")]
    store = Redis(monkeypatch, entries)
    store.look()
    assert store.read == ["lamp", "bed"]
    assert all(entry.known_buyers == {KNOWN} for entry in entries)


@pytest.mark.parametrize(
    "changed",
    [{"operator_state": "closed"}, {"operator_state": "paused"}, {"closes_at": datetime(2020, 1, 1, tzinfo=UTC)}],
    ids=["closed by staff", "paused", "its time is over"],
)
def test_who_was_admitted_is_forgotten_with_the_end_of_a_sale(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    entry = fresh_entry("lamp")
    store = Redis(monkeypatch, [entry])
    store.look()
    assert entry.is_surely_sold_out(STRANGER)
    entry.use(replace(entry.card, **changed))
    store.look()
    assert (entry.known_buyers, store.read) == (frozenset(), ["lamp"])
    entry.use(fresh_entry("lamp").card)
    assert not entry.is_surely_sold_out(STRANGER)
    store.look()
    assert entry.is_surely_sold_out(STRANGER)


def test_who_was_admitted_is_forgotten_when_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = fresh_entry("lamp")
    store = Redis(monkeypatch, [entry])
    store.look()
    store.figures = GONE._replace(available=1)
    store.look()
    assert (entry.known_buyers, store.read) == (frozenset(), ["lamp"])


@pytest.mark.parametrize("news", [{"admitted": 10}, {"records": 10}], ids=["an admission", "a place that came back"])
def test_who_was_admitted_is_read_again_only_when_there_is_somebody_new(
    monkeypatch: pytest.MonkeyPatch, news: dict[str, int]
) -> None:
    entry = fresh_entry("lamp")
    store = Redis(monkeypatch, [entry])
    store.look()
    store.look()
    assert store.read == ["lamp"]
    store.figures = GONE._replace(**news)
    store.look()
    assert store.read == ["lamp", "lamp"]
    assert entry.is_surely_sold_out(STRANGER)


def test_a_request_that_joins_is_no_move_for_those_who_wait() -> None:
    """The control is a sale: it is one."""
    entry = sold_out_entry()
    before = entry.moves
    entry.see(GONE._replace(admitted=10, queued=1, waiting=1, records=10), moment=time.monotonic())
    assert entry.moves == before
    entry.see(GONE._replace(admitted=10, sold=10, records=10), moment=time.monotonic())
    assert entry.moves == before + 1


def board_with(entries: list[SaleEntry]) -> Board:
    board = Board(cast(Any, SimpleNamespace(pubsub=lambda: None)), load_cards=list)
    board._by_slug = {entry.card.slug: entry for entry in entries}
    return board


def over_entry(name: str, *, figures: LineFigures | None = GONE, ended_seconds_ago: float = 3600.0) -> SaleEntry:
    ended = datetime.now(UTC) - timedelta(seconds=ended_seconds_ago)
    entry = SaleEntry(replace(sold_out_entry().card, sku=name, slug=name, closes_at=ended))
    entry.see(figures, moment=time.monotonic())
    return entry


def test_a_look_at_the_open_sales_is_no_later_for_three_thousand_that_are_over() -> None:
    past = [over_entry(f"past-{number}", figures=None if number % 2 else GONE) for number in range(3_000)]
    board = board_with([sold_out_entry(), *past])
    looks = [board._choose() for _ in range(3_000 // MAX_QUIET)]
    assert all(look[0].card.slug == "lamp" for look in looks)
    assert {len(look) for look in looks} == {1 + MAX_QUIET}
    assert len({id(entry) for look in looks for entry in look}) == 3_001, "each has its turn"
    # The pause behind a look, and the time the look takes, are a small part of what a fresh answer may be old.
    assert (1 + MAX_QUIET) * PAUSE_A_SALE_SECONDS < FRESH_SECONDS / 10


def test_without_turns_the_same_sales_would_make_every_answer_too_old() -> None:
    """The control: what looking at all of them costs."""
    assert 3_001 * PAUSE_A_SALE_SECONDS > FRESH_SECONDS


@pytest.mark.parametrize(
    "known",
    [{"ended_seconds_ago": 5}, {"figures": GONE._replace(queued=1)}, {"figures": GONE._replace(held=1)}],
    ids=["it has just ended", "somebody waits", "a unit is held"],
)
def test_a_sale_that_is_over_and_not_at_rest_is_looked_at_every_time(known: dict[str, Any]) -> None:
    entry = over_entry("moves", **known)
    board = board_with([over_entry(f"past-{number}") for number in range(100)] + [entry])
    assert all(entry in board._choose() for _ in range(8))


def test_a_sale_with_requests_is_looked_at_on_when_its_opening_is_moved_away() -> None:
    entry = sold_out_entry()
    board = board_with([entry])
    entry.use(replace(entry.card, opens_at=datetime.now(UTC) + timedelta(hours=3)))
    assert board._choose() == [entry]
    for figures in (GONE._replace(admitted=0, held=1), GONE._replace(admitted=0, queued=1)):
        entry.see(figures, moment=time.monotonic())
        assert board._choose() == [entry]


def test_without_requests_its_figures_are_forgotten_once_and_told() -> None:
    """The control: nobody looks, so what was seen would be shown until the opening is near again."""
    entry, told = sold_out_entry(figures=GONE._replace(admitted=0)), []
    board = board_with([entry])
    board.watch(told.append)
    assert (board._choose(), told) == ([entry], [])
    entry.use(replace(entry.card, opens_at=datetime.now(UTC) + timedelta(hours=3)))
    assert [board._choose(), board._choose()] == [[], []]
    assert (entry.figures, told) == (None, [entry])


def test_a_stranger_is_told_from_memory_and_who_was_admitted_is_not() -> None:
    entry = sold_out_entry()
    assert entry.is_surely_sold_out(STRANGER)
    assert not entry.is_surely_sold_out(KNOWN)


@pytest.mark.parametrize(
    "entry",
    [
        sold_out_entry(figures=GONE._replace(available=1)),
        sold_out_entry(figures=GONE._replace(admitted=10)),
        sold_out_entry(figures=GONE._replace(records=10)),
        sold_out_entry(age_seconds=FRESH_SECONDS + 1),
        sold_out_entry(opens_in_hours=1),
    ],
    ids=["a unit is free", "somebody else was admitted", "a place came back", "too old", "not open"],
)
def test_what_is_not_sure_goes_to_the_line(entry: SaleEntry) -> None:
    assert not entry.is_surely_sold_out(STRANGER)


def test_a_line_that_is_full_is_not_sold_out_while_a_unit_is_held() -> None:
    entry = sold_out_entry(figures=GONE._replace(held=1, sold=8, queued=1))
    assert (entry.is_surely_sold_out(STRANGER), entry.may_come_free()) == (True, True)
    assert not sold_out_entry().may_come_free()


@pytest.mark.parametrize(("left_seconds", "told"), [(None, 60), (-3, 1), (0.2, 1), (29.5, 30), (400, 60)])
def test_who_finds_the_line_full_is_told_when_the_first_hold_may_lapse(left_seconds: float | None, told: int) -> None:
    now = datetime.now(UTC)
    lapse = None if left_seconds is None else now + timedelta(seconds=left_seconds)
    assert full_retry_seconds(replace(sold_out_entry().card, next_lapse_at=lapse), now=now) == told


def test_an_admission_of_a_moment_ago_makes_it_unsure() -> None:
    entry = sold_out_entry()
    entry.note_admission()
    assert not entry.is_surely_sold_out(STRANGER)


@pytest.mark.parametrize(
    "record",
    [
        Record(State.QUEUED, 7, 1, 1, KNOWN),
        Record(State.QUEUED, 7, 1, 1, KNOWN, restored=True),
        Record(State.HELD, 7, 1, 1, KNOWN, hold_expires_ms=8),
    ],
)
def test_the_buyer_is_found_in_every_record(record: Record) -> None:
    assert buyer_in(record.text()) == KNOWN


def test_a_damaged_record_names_nobody() -> None:
    assert buyer_in("q|7|1") == ""


def behind_at_reads(*versions: tuple[int, int]) -> list[bool]:
    """Return what is said at each read of the catalogue. versions: of the stock in Redis and in the database."""
    entry, said = sold_out_entry(), []
    for in_redis, in_database in versions:
        entry.see(GONE._replace(version=in_redis, revision=1), moment=float(len(said)))
        entry.use(replace(entry.card, version=in_database))
        said.append(entry.is_behind())
    return said


def test_stock_that_redis_was_never_told_of_is_primed_at_the_second_read() -> None:
    assert behind_at_reads((3, 3), (3, 4), (3, 4)) == [False, False, True]
    assert behind_at_reads((3, 4), (3, 5)) == [False, True]


def test_figures_that_nobody_looked_at_again_prime_nothing() -> None:
    """A sale of next week is not looked at: what was seen of it last says nothing of Redis."""
    entry = sold_out_entry()
    entry.use(replace(entry.card, version=4, revision=9))
    assert [entry.is_behind(), entry.is_behind(), entry.is_behind()] == [True, False, False]
    entry.see(GONE._replace(version=3), moment=time.monotonic())
    assert entry.is_behind()


def test_a_line_that_is_settled_is_never_primed_though_redis_is_always_a_moment_behind() -> None:
    assert behind_at_reads((3, 3), (3, 5), (7, 9), (9, 10), (10, 10), (10, 11)) == [False] * 6
