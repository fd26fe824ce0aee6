"""A hand-made run: what eight buyers of three units did and were told, and the shop's books; to be changed by a test.
Needs no shop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadtest.checker.load_generator import OwnLoad, ProcessLoad
from loadtest.checker.verdict import AUDIT_FILE, Verdict, judge
from loadtest.record.expectations import RunFacts
from loadtest.record.history import FAIL, FILE_PREFIX, OK, UNKNOWN, History, Operation, encode
from loadtest.record.log_sentences import HOLDS

MS, SECOND = 1_000_000, 1_000_000_000
SALE = "drop"


class Run:
    """A hand-made run of three units. b1, b5 and b7 buy them; b5 and b7 waited for those that b3 gave up and b2 let
    lapse, to pay too late; b6 leaves the line, b8 is told in line that nothing is left, b4 at the door.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.now_ns = 0
        self.book: dict[str, Any] = {"sku": "thing", "per_buyer_limit": 1}
        self.book["before"] = {"ok": True, "invariants": [], "counts": _counts(available=3, sold=0, decided=0)}
        self.book["after"] = {
            "ok": True,
            "invariants": [{"id": "I1", "name": "nothing is oversold", "ok": True, "detail": ""}],
            "counts": _counts(available=0, sold=3, decided=7),
        }
        self.cut_off: list[str] = []
        self.facts = RunFacts()
        self.load = OwnLoad(0.1, False, [ProcessLoad("one", 0.1)])
        self.logs = [f"An independent script has checked the public log of {SALE}: {HOLDS}"]
        self._play()

    def _play(self) -> None:
        for number in (1, 2, 3, 5, 6, 7, 8):
            self.tell(number, "ask", "queued", status=202, click="first")
            if number == 1:
                self.tell(1, "ask", "queued", click="double")
        for click in ("first", "again"):
            self.add("ask", "b4", outcome=FAIL, status=409, code="sold_out", click=click)
        for number, state in ((1, "held"), (2, "held"), (3, "held"), *((n, "waitlisted") for n in (5, 6, 7, 8))):
            self.tell(number, "look", state)
        self.tell(1, "pay", "paid")
        self.tell(2, "begin", "held")
        self.tell(3, "cancel", "cancelled")
        self.tell(5, "look", "held")
        self.tell(5, "pay", "paid")
        self.tell(6, "cancel", "cancelled")
        self.tell(2, "look", "expired")
        self.tell(7, "look", "held")
        self.tell(7, "pay", "paid")
        self.add("page", "b2", outcome=OK, status=200, request_id="r2")
        self.add("choose", "b2", outcome=OK, status=303, request_id="r2")
        self.tell(2, "look", "refunded")
        self.tell(8, "look", "sold_out")
        ends = {1: "paid", 2: "refunded", 3: "cancelled", 5: "paid", 6: "cancelled", 7: "paid", 8: "sold_out"}
        for number, state in ends.items():
            self.tell(number, "recheck", state)

    def tell(self, number: int, kind: str, state: str, *, status: int = 200, click: str = "") -> None:
        """Append a call of buyer b<number> about r<number> that is answered with `state`."""
        name, seq = f"r{number}", 10 * number
        self.add(kind, f"b{number}", outcome=OK, status=status, request_id=name, seq=seq, state=state, click=click)

    def add(self, kind: str, buyer: str, **values: Any) -> Operation:
        """Append an operation that takes a millisecond and begins after the one before."""
        self.now_ns += 2 * MS
        key = f"key-{buyer}" if kind == "ask" else ""
        times = {"began_ns": self.now_ns, "ended_ns": self.now_ns + MS, "clock": "here"}
        operation = Operation(kind=kind, buyer=buyer, sale=SALE, quantity=1, **({"key": key} | times | values))
        self.operations.append(operation)
        return operation

    def of(self, request_id: str, *kinds: str) -> list[Operation]:
        """Return the operations of these kinds about one request."""
        return [o for o in self.operations if o.request_id == request_id and o.kind in kinds]

    def rewrite(self, request_id: str, *, was: str, now: str) -> None:
        """Let every answer about a request that said `was` say `now`."""
        for operation in self.of(request_id, "look", "recheck", "pay", "cancel"):
            if operation.state == was:
                operation.state = now

    def forget(self, request_id: str, *, state: str) -> None:
        """Let nobody ever have been told this state of a request, but for the questions at rest."""
        self.operations = [
            o for o in self.operations if o.request_id != request_id or o.state != state or o.kind == "recheck"
        ]

    def pause(self, after: Operation, *, seconds: float) -> None:
        """Let nothing happen for a while after this operation."""
        since_ns = after.ended_ns
        for operation in self.operations:
            if operation.began_ns > since_ns:
                operation.began_ns += int(seconds * SECOND)
                operation.ended_ns += int(seconds * SECOND)

    def say(self, number: int, state: str, *, at_ns: int) -> None:
        """Let b<number> be told this state at this moment, by a look that takes no time."""
        self.tell(number, "look", state)
        self.operations[-1].began_ns = self.operations[-1].ended_ns = at_ns

    def kill_client_of(self, request_id: str, *, during: str) -> None:
        """Kill the client of a request while a call of this kind is on its way: nobody asks after that."""
        buyer = self.of(request_id, "ask")[0].buyer
        fatal = self.of(request_id, during)[0]
        self.operations = [o for o in self.operations if o.buyer != buyer or o.began_ns <= fatal.began_ns]
        for operation in self.operations:
            operation.client_died |= operation.buyer == buyer
        fatal.outcome, fatal.status, fatal.state, fatal.seq, fatal.code = UNKNOWN, 0, "", 0, "unended"
        if during == "ask":
            fatal.request_id = ""
        self.cut_off.append(f"history-of-{buyer}.jsonl")

    @property
    def after(self) -> dict[str, int]:
        """The audit's counts at rest."""
        counts: dict[str, int] = self.book["after"]["counts"]
        return counts

    def judge(self) -> Verdict:
        """Judge the run as it is now."""
        history = History(self.operations, self.cut_off, files=1)
        return judge(history, {SALE: self.book}, facts=self.facts, load=self.load, logs=self.logs)

    def faults(self) -> dict[str, int]:
        """Return what was found, by the name of the check."""
        return {check.name: check.count for check in self.judge().checks if check.count}

    def details(self, name: str) -> list[str]:
        """Return what a check has to say."""
        return next(check.details for check in self.judge().checks if check.name == name)


def _counts(*, available: int, sold: int, decided: int) -> dict[str, int]:
    counts = {"total": 3, "available": available, "held": 0, "sold": sold, "queued": 0, "in_flight": 0}
    return counts | {"decided": decided, "waiting": 0, "waitlisted": 0, "units_held": 0, "last_seq": 80}


def write_machine(
    folder: Path, name: str, operations: list[Operation], *, clock: str, offsets_ns: tuple[int, int] = (0, 0)
) -> None:
    """Write the record of a machine whose monotonic clock is this far from the time of day, at first and at last.

    The operations' times are those of day here; the file has them on the machine's own clock, as a real one does.
    """
    lines: list[dict[str, Any]] = [{"history": 2, "clock": clock, "wall_minus_monotonic_ns": offsets_ns[0]}]
    for number, operation in enumerate(operations, start=1):
        times = {"began_ns": operation.began_ns - offsets_ns[0], "ended_ns": operation.ended_ns - offsets_ns[0]}
        told = {field: getattr(operation, field) for field in ("kind", "buyer", "sale", "key", "quantity", "click")}
        end = {
            field: getattr(operation, field) for field in ("outcome", "status", "code", "request_id", "seq", "state")
        }
        lines.append({"number": number, "outcome": "invoke", "began_ns": times["began_ns"], **told})
        lines.append({"number": number, **times, **told, **end})
    lines.append({"end": True, "operations": len(operations), "wall_minus_monotonic_ns": offsets_ns[1]})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{FILE_PREFIX}{name}.jsonl").write_text("".join(encode(line) + "\n" for line in lines))


def write_books(folder: Path, run: Run) -> None:
    """Write the audits of a run as a flood keeps them."""
    (folder / AUDIT_FILE).write_text(json.dumps({SALE: run.book}))
