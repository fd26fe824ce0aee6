"""A web process says "sold out" from memory to strangers only, and only while it knows it for sure. Called by pytest.
The control is the same sale with a single one of the conditions broken.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from inventory.line import LineFigures
from inventory.outcomes import State
from inventory.tickets import Record, buyer_in
from shop.catalogue import SaleCard
from shop.gate.entries import FRESH_SECONDS, SaleEntry

KNOWN, STRANGER = "k" * 22, "s" * 22
GONE = LineFigures(available=0, held=0, sold=9, returning=0, queued=0, admitted=9, decided=9, version=3)


def sold_out_entry(
    *, figures: LineFigures = GONE, age_seconds: float = -3600.0, opens_in_hours: float = -1
) -> SaleEntry:
    """Return a sale of which the process knows all it must; younger than now: a slow machine changes nothing."""
    opens_at = datetime.now(UTC) + timedelta(hours=opens_in_hours)
    entry = SaleEntry(
        SaleCard(
            sale_id=1, slug="lamp", sku="lamp", title="", tagline="", description="", picture="", price=Decimal(1),
            list_price=Decimal(1), currency="EUR", opens_at=opens_at, closes_at=opens_at + timedelta(hours=9),
            per_buyer_limit=1, hold_seconds=60, switch="on", pause_reason="", room=0, request_key="k", quantity=9,
            available=0, held=0, sold=9, version=3, fence=1, terms_version=1,
        )
    )  # fmt: skip
    entry.see(figures, moment=time.monotonic() - age_seconds)
    entry.known_buyers = frozenset({KNOWN})
    entry.known_at_admitted = 9
    return entry


def test_a_stranger_is_told_from_memory_and_who_was_admitted_is_not() -> None:
    entry = sold_out_entry()
    assert entry.is_surely_sold_out(STRANGER)
    assert not entry.is_surely_sold_out(KNOWN)


@pytest.mark.parametrize(
    "entry",
    [
        sold_out_entry(figures=GONE._replace(available=1)),
        sold_out_entry(figures=GONE._replace(admitted=10)),
        sold_out_entry(age_seconds=FRESH_SECONDS + 1),
        sold_out_entry(opens_in_hours=1),
    ],
    ids=["a unit is free", "somebody else was admitted", "too old", "not open"],
)
def test_what_is_not_sure_goes_to_the_line(entry: SaleEntry) -> None:
    assert not entry.is_surely_sold_out(STRANGER)


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
