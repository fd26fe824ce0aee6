"""Adds up each buyer's live units and the units in line again, and corrects what was counted wrong (I7, I15).
Never corrects while anything moves: twice the same difference, and nothing between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from inventory.line import repair as line_repair
from inventory.line.repair import Standing
from inventory.line.writing import live_field
from inventory.records import record_or_none
from inventory.redis import Client
from inventory.states import LIVE_STATES
from workers.reconciler.report import FOUND, LEFT, REPAIRED, Drift

LIVE_LETTERS = frozenset(state.letter for state in LIVE_STATES)


class LiveTally:
    """Says in one number whether live units add up: hashes of who has them, by the records less by the count.

    differs: never while all is right; while something moves it may. Then look_at_units() finds whose units they are.
    """

    def __init__(self) -> None:
        self._sum, self._readable = 0, True

    @property
    def differs(self) -> bool:
        """Say whether anything is counted wrong, if every record could be read."""
        return self._readable and self._sum != 0

    def add(self, asked: tuple[str, str, str, str] | None) -> None:
        """Count a record (see records.asked_in); None when it cannot be read."""
        if asked is None:
            self._readable = False
        elif asked[0] in LIVE_LETTERS:
            self._sum += int(asked[1]) * hash(f"{asked[2]}:{asked[3]}")

    def subtract_counted(self, client: Client, sku: str) -> Iterator[int]:
        """Take off what is counted; yield the size of each page that was read. Raises RedisUnavailable."""
        for page in line_repair.live_pages(client, sku):
            self._sum -= sum(units * hash(field) for field, units in page.items())
            yield len(page)


class UnitsLook(NamedTuple):
    """What was counted wrong: (as it was counted, as it must be), live units by field. standing: before and after."""

    before: Standing
    after: Standing
    live: Mapping[str, tuple[int, int]]
    queued: tuple[int, int]

    @property
    def differs(self) -> bool:
        """Say whether anything is counted wrong."""
        return bool(self.live) or self.queued[0] != self.queued[1]

    @property
    def still(self) -> bool:
        """Say whether nothing moved while we added up."""
        return self.before == self.after


def look_at_units(client: Client, sku: str, *, throttle: Callable[[], None]) -> UnitsLook:
    """Add up the units of `sku` and compare. throttle: called after each page. Raises RedisUnavailable."""
    before = line_repair.standing(client, sku)
    live = _live_differences(client, sku, throttle=throttle)
    queued = queued_units(client, sku, throttle=throttle)
    return UnitsLook(before, line_repair.standing(client, sku), live, queued)


def _live_differences(client: Client, sku: str, *, throttle: Callable[[], None]) -> dict[str, tuple[int, int]]:
    must = _live_units(client, sku, throttle=throttle)
    if must is None:
        return {}
    counted: dict[str, int] = {}
    for page in line_repair.live_pages(client, sku):
        counted |= page
        throttle()
    fields = [field for field in {**must, **counted} if must[field] != counted.get(field, 0)]
    return {field: (counted.get(field, 0), must[field]) for field in fields}


def _live_units(client: Client, sku: str, *, throttle: Callable[[], None]) -> Counter[str] | None:
    """Return the units of each buyer's live records, None when one cannot be read: whose units it has is unknown.

    A record that moves and comes twice counts once.
    """
    units: Counter[str] = Counter()
    met: set[str] = set()
    for page in line_repair.record_pages(client, sku):
        for name, text in page.items():
            record = record_or_none(text)
            if record is None:
                return None
            if record.state in LIVE_STATES and name not in met:
                met.add(name)
                units[live_field(sale_id=record.sale_id, buyer=record.buyer)] += record.quantity
        throttle()
    return units


def queued_units(client: Client, sku: str, *, throttle: Callable[[], None]) -> tuple[int, int]:
    """Return the units in line and in flight, as counted and as they are; equal when that cannot be known.

    throttle: called after each page. Raises RedisUnavailable.
    """
    units: dict[str, int] = {}
    for page in line_repair.queued_pages(client, sku):
        texts = line_repair.records_of(client, sku, page)
        records = {name: record_or_none(texts.get(name)) for name in page}
        if None in records.values():
            return 0, 0  # a damaged record: it ends in the dead letters, and the count is set right with it
        units |= {name: record.quantity for name, record in records.items() if record is not None}
        throttle()
    counted, must = line_repair.queued_units(client, sku), sum(units.values())
    return (must if counted is None else counted), must


def mend_units(client: Client, sku: str, first: UnitsLook, second: UnitsLook, *, repair: bool) -> list[Drift]:
    """Correct what both looks found in the same way; leave it when anything moved. Raises RedisUnavailable."""
    live = {field: pair for field, pair in second.live.items() if first.live.get(field) == pair}
    queued = second.queued if second.queued == first.queued else (0, 0)
    details = {field: (f"buyer's live units {was}, not {must}") for field, (was, must) in live.items()}
    if queued[0] != queued[1]:
        details["queued"] = f"units in line {queued[0]}, not {queued[1]}"
    if not details:
        return []
    done = LEFT
    if first.still and second.still and first.before == second.after:
        done = FOUND
        if repair:
            mended = line_repair.mend_units(client, sku, standing=second.after, queued=queued, live=live)
            done = REPAIRED if mended > 0 else LEFT
    return [
        Drift("live_units" if name in live else "queued_units", sku, name, detail, done)
        for name, detail in details.items()
    ]
