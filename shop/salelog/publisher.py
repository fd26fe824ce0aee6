"""Decides which leaves a sale's log gets next, and in which order. Pure: reads no clock and no store.
docs/checkable-line.md says what each leaf promises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from inventory.states import Reason, State
from shop.salelog.changes import Change, OrderChange, Request, StockEvent, is_decision
from shop.tickets.signing import holder_of

REASONS: dict[str, str] = {
    Reason.LIMIT_REACHED: "limit_reached",
    Reason.DEAD_LETTER: "dead_letter",
    Reason.DISCARDED_BY_STAFF: "discarded_by_staff",
}
DECIDED = {State.HELD, State.SOLD_OUT, State.REFUSED}
ENDED = {
    (State.QUEUED, State.CANCELLED): "left",
    (State.HELD, State.PAID): "paid",
    (State.HELD, State.EXPIRED): "expired",
    (State.HELD, State.CANCELLED): "cancelled",
    (State.EXPIRED, State.PAID): "retaken",
    (State.EXPIRED, State.REFUNDED): "refunded",
    (State.CANCELLED, State.REFUNDED): "refunded",
    (State.PAID, State.REFUNDED): "refunded",
}
# Made once: json.dumps makes one for each leaf.
LEAF_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# So many ranges a leaf: with ordinals of sixteen digits they are 36,000 bytes, of 60,000 that a leaf may have.
MAX_RANGES = 1000
STOCK_REASONS = {"load": "loaded", "adjust": "adjusted"}


@dataclass(frozen=True, slots=True)
class SaleFacts:
    """A sale as the database has it in the snapshot that the changes are of. closes_us: from when on it may be over.

    terms: version → {version, price, currency, limit, hold_seconds}; version: of the terms in force.
    """

    sale_id: int
    key: bytes
    is_begun: bool
    is_over: bool
    closes_us: int
    version: int
    terms: Mapping[int, Mapping[str, Any]]


@dataclass(slots=True)
class LogState:
    """How far a log is; the fields are those of the model SaleLog. leaves: what was added, without n and at."""

    size: int
    cursor: int
    is_open: bool
    is_closed: bool
    units: int
    ordinal: int
    seq: int
    versions: list[int]
    lost: list[list[int]]
    restored: dict[str, int]
    leaves: list[dict[str, Any]] = field(default_factory=list)
    # For each leaf: the last ordinal that was published in its order when it was added.
    ordinals: list[int] = field(default_factory=list)


def leaf_text(leaf: Mapping[str, Any], *, index: int, at_us: int) -> bytes:
    """Return a leaf as it is published: its fields by their names, in JSON without spaces."""
    # What nearly all leaves are is written by hand, which costs a quarter of the encoder.
    if leaf["kind"] == "admitted" and len(leaf) == 7:
        text = (
            f'{{"at":{at_us},"holder":{quoted(leaf["holder"])},"kind":"admitted","n":{index},'
            f'"ordinal":{leaf["ordinal"]},"quantity":{leaf["quantity"]},"request":{quoted(leaf["request"])},'
            f'"seq":{leaf["seq"]},"terms":{leaf["terms"]}}}'
        )
        return text.encode()
    if leaf["kind"] == "decided" and len(leaf) == 3:
        outcome, request = quoted(leaf["outcome"]), quoted(leaf["request"])
        return f'{{"at":{at_us},"kind":"decided","n":{index},"outcome":{outcome},"request":{request}}}'.encode()
    return LEAF_JSON.encode({**leaf, "n": index, "at": at_us}).encode()


class Publisher:
    """Adds to one log. waiting: the admissions that the line knows, base: the ordinal above which it goes on.

    gap_is_lost: an ordinal that neither the line nor the database knows is declared lost, and not waited for.
    is_whole: the changes that it is given are all there are. If not, one that is still to be read may have to stand
    before a place that the line knows: then only places that a decision needs are published.
    """

    def __init__(
        self,
        state: LogState,
        facts: SaleFacts,
        *,
        waiting: Sequence[Request],
        base: int,
        gap_is_lost: bool = False,
        is_whole: bool = True,
    ) -> None:
        self.state = state
        self._facts = facts
        self._base = base
        self._gap_is_lost = gap_is_lost
        self._admissions = {each.ordinal: each for each in waiting if each.ordinal > state.ordinal}
        self._named: set[str] = set()
        self._coming: set[int] = set()  # terms whose act is still to be published
        self._is_whole = is_whole
        self._awaits_standby = not is_whole  # a decision about standby may come that places must not stand before

    def publish(self, changes: Sequence[Change]) -> None:
        """Add the leaves of `changes`, all of the SKU and numbered above the cursor, and of the admissions."""
        sale_id = self._facts.sale_id
        own = [each for each in changes if each.number > self.state.cursor]
        for change in own:
            if is_decision(change, sale_id=sale_id):
                self._admissions.setdefault(change.request.ordinal, change.request)
        self._admissions = {n: each for n, each in self._admissions.items() if n > self.state.ordinal}
        if not self.state.is_open and not self._open(own):
            return
        own = [each for each in own if each.number > self.state.cursor]
        # Those who came under terms whose act is still to be published wait for it.
        self._coming = {each.terms for each in own if isinstance(each, StockEvent) and self._is_own(each)}
        last_standby = max(
            (each.number for each in own if is_decision(each, sale_id=sale_id) and each.request.standby), default=0
        )
        for change in own:
            # A place that was given after somebody on standby was decided must not stand before that decision.
            self._awaits_standby = not self._is_whole or change.number <= last_standby
            needed = change.request.ordinal if is_decision(change, sale_id=sale_id) else 0
            self._admit(last=needed if self._awaits_standby else None)
            self._close_before(change)
            if not self._take(change):
                return
            self.state.cursor = change.number
        self._awaits_standby = not self._is_whole
        if self._awaits_standby:
            return
        self._admit()
        if not self.has_gap:
            self._close()

    def _is_own(self, change: Change) -> bool:
        return change.sale_id == self._facts.sale_id

    def _add(self, leaf: dict[str, Any]) -> None:
        self.state.leaves.append(leaf)
        self.state.ordinals.append(self.state.ordinal)

    def _open(self, changes: Sequence[Change]) -> bool:
        """Add `opened` when the sale has begun; before that, only count what is free. Say whether the log is open."""
        decided = any(isinstance(each, OrderChange) and self._is_own(each) for each in changes)
        opens = self._facts.is_begun or bool(self._admissions) or decided
        before = takewhile(lambda each: not opens or not self._is_own(each), changes)
        for change in before:
            self.state.units += change.units
            self.state.cursor = change.number
        if not opens:
            return False
        first = min(self._admissions, default=0)
        version = self._admissions[first].terms if first else self._facts.version
        terms = self._facts.terms.get(version) or self._facts.terms[self._facts.version]
        self._add({"kind": "opened", "units": self.state.units, "mode": "line", "terms": dict(terms)})
        self.state.versions.append(int(terms["version"]))
        self.state.is_open, self.state.units = True, 0
        return True

    @property
    def has_gap(self) -> bool:
        """Say whether the next admission is not known, though a later one is."""
        return bool(self._admissions) and self.state.ordinal + 1 not in self._admissions

    def _admit(self, *, last: int | None = None) -> None:
        """Add every admission that is next in its order, and the gaps that are declared; last: up to this ordinal."""
        while last is None or self.state.ordinal < last:
            if self._base > self.state.ordinal:
                # Not beyond what is needed: what survived is published with it, and may have to stand later.
                self._declare_lost(self._base if last is None else min(self._base, last))
            elif self.has_gap and self._gap_is_lost:
                self._declare_lost(min(self._admissions) - 1)
            found = self._admissions.get(self.state.ordinal + 1)
            if found is None or (found.terms in self._coming and found.terms not in self.state.versions):
                return
            del self._admissions[found.ordinal]
            self._admit_one(found)

    def _declare_lost(self, last: int) -> None:
        """Declare the ordinals up to `last` lost, and publish those of them that are known all the same."""
        survived = sorted(n for n in self._admissions if n <= last)
        first, ranges = self.state.ordinal + 1, []
        for ordinal in [*survived, last + 1]:
            if ordinal > first:
                ranges.append([first, ordinal - 1])
            first = ordinal + 1
        # All of them before the first place that survived: who waits when a loss is declared may be passed over.
        for at in range(0, len(ranges), MAX_RANGES):
            self._add({"kind": "recovered", "lost": ranges[at : at + MAX_RANGES], "restored": []})
        self.state.lost += ranges
        for ordinal in survived:
            self._admit_one(self._admissions.pop(ordinal))
        self.state.ordinal = max(self.state.ordinal, last)

    def _admit_one(self, request: Request) -> None:
        if request.terms not in self.state.versions:
            self._declare_terms(request.terms, act="terms", role="shop", reason="unlogged")
        if request.seq <= self.state.seq:
            self._restore(request)
        self.state.ordinal = max(self.state.ordinal, request.ordinal)
        self.state.seq = max(self.state.seq, request.seq)
        leaf: dict[str, Any] = {
            "kind": "admitted",
            "ordinal": request.ordinal,
            "seq": request.seq,
            "request": request.request_id,
            "holder": holder_of(self._facts.key, request.buyer),
            "quantity": request.quantity,
            "terms": request.terms,
        }
        if request.standby:
            leaf["standby"] = True
        self._add(leaf)

    def _restore(self, request: Request) -> None:
        """Say that a place came back, once."""
        if request.request_id not in self._named:
            self._named.add(request.request_id)
            self._add({"kind": "recovered", "lost": [], "restored": [request.request_id]})

    def _declare_terms(self, version: int, *, act: str, role: str, reason: str) -> None:
        leaf: dict[str, Any] = {"kind": "act", "act": act, "role": role, "reason": reason}
        terms = self._facts.terms.get(version)
        if terms is not None and version not in self.state.versions:
            leaf["terms"] = dict(terms)
        self.state.versions = sorted({*self.state.versions, version})
        self._add(leaf)

    def _take(self, change: Change) -> bool:
        """Add the leaves of one change; False when an admission must be published first that is not known yet."""
        if isinstance(change, StockEvent):
            self._take_event(change)
            return True
        if not self._is_own(change):
            self.state.units += change.units
            return True
        if change.was is State.QUEUED and not self._is_admitted(change.request):
            return False
        self._settle_units()
        if change.now in DECIDED and change.was is State.QUEUED:
            leaf = {"kind": "decided", "request": change.request.request_id, "outcome": change.now.value}
            if change.now is State.REFUSED:
                leaf["reason"] = REASONS.get(change.reason, "refused")
            self._add(leaf)
        else:
            outcome = ENDED[change.was, change.now]
            self._add(
                {"kind": "ended", "request": change.request.request_id, "outcome": outcome, "units": change.units}
            )
        return True

    def _take_event(self, event: StockEvent) -> None:
        if event.kind != "act":
            if self.state.is_closed:
                self.state.units += event.units  # for another sale of these goods, or for none
            else:
                self._settle_units()
                self._add({"kind": "stock", "change": event.units, "reason": STOCK_REASONS[event.kind]})
        elif self._is_own(event):
            self._declare_terms(event.terms, act=event.act, role=event.role, reason=event.reason)
            if event.act == "close":
                self._close()

    def _settle_units(self) -> None:
        """Publish the sum of what other sales of these goods took and gave back, before anything that relies on it."""
        if self.state.units:
            self._add({"kind": "stock", "change": self.state.units, "reason": "elsewhere"})
            self.state.units = 0

    def _is_admitted(self, request: Request) -> bool:
        """Say whether the admission of a decided request is published; publish what came back out of its order."""
        ordinal, name = request.ordinal, request.request_id
        if ordinal > self.state.ordinal:
            return False
        lost = self.state.lost and any(first <= ordinal <= last for first, last in self.state.lost)
        if ordinal == 0 or lost:
            if name not in self.state.restored:
                self._restore(request)
                self.state.restored[name] = self.state.size + len(self.state.leaves)
                self._admit_one(request)
            return True
        if request.restored and name not in self._named:
            if ordinal <= self._base:
                self._restore(request)
            else:
                self._add({"kind": "requeued", "request": name, "seq": request.seq})
        return True

    def _close_before(self, change: Change) -> None:
        """Add `closed` before what happened since the end; the act that closed the sale stands before it."""
        closing_act = isinstance(change, StockEvent) and change.act == "close" and self._is_own(change)
        if not closing_act and change.at_us >= self._facts.closes_us:
            self._close()

    def _close(self) -> None:
        if self._facts.is_over and not self.state.is_closed:
            if not self._awaits_standby:
                self._admit()
            self._add({"kind": "closed"})
            self.state.is_closed = True


def copy_of(state: LogState) -> LogState:
    """Return a state that may be changed, with no leaves."""
    return replace(
        state,
        versions=list(state.versions),
        lost=[list(each) for each in state.lost],
        restored=dict(state.restored),
        leaves=[],
        ordinals=[],
    )
