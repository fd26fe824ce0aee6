"""Decides whether a flood was served rightly: every check on every sale, counts that add up, waits, rates.
Never believes a single source: the clients' record and the shop's audit must agree.
Called at the end of a run, or by hand: python -m loadtest.verdict FOLDER judges a kept record again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest import latency
from loadtest.case import Case, Fault
from loadtest.checks import CHECKS
from loadtest.history import History, Operation, read_history
from loadtest.run_checks import no_repeats, unforeseen_answers
from loadtest.table import render
from loadtest.testimony import Testimony

AUDIT_FILE, VERDICT_FILE = "audit.json", "verdict.json"
DETAILS_KEPT = 5


@dataclass(slots=True)
class CheckResult:
    """One check over all sales."""

    name: str
    meaning: str
    count: int = 0
    details: list[str] = field(default_factory=list)

    def add(self, fault: Fault, *, where: str = "") -> None:
        """Count one fault; keep the text of the first few."""
        self.count += fault.weight
        if len(self.details) < DETAILS_KEPT:
            self.details.append(f"{where}: {fault.detail}" if where else fault.detail)


@dataclass(slots=True)
class SaleResult:
    """One row of the table."""

    sale: str
    sku: str
    total: int
    asked: int
    repeated: int
    wishes: int
    admitted: int
    results: dict[str, int]
    units_sold: int
    units_free: int
    moved_up: int
    paid_late: int
    faults: dict[str, int]


@dataclass(slots=True)
class Verdict:
    """What is said about a run."""

    ok: bool
    sales: list[SaleResult]
    checks: list[CheckResult]
    admission: latency.Wait
    refusal: latency.Wait
    decision: latency.Wait
    payment: latency.Wait
    rate: latency.Rate


def judge(history: History, books: dict[str, dict[str, Any]]) -> Verdict:
    """Judge a run: `books` has for each sale its sku, its limit and the shop's audit before and after."""
    cases = [_case(slug, book, history.operations) for slug, book in books.items()]
    checks = {name: CheckResult(name, _meaning(check)) for name, check in CHECKS.items()}
    checks["record cut off"] = CheckResult("record cut off", "Every process wrote its record to the end.")
    rows = [_judge_sale(case, checks=checks) for case in cases]
    _judge_whole(history, cases=cases, checks=checks)
    testimonies = [case.testimony for case in cases]
    return Verdict(
        ok=not any(check.count for check in checks.values()),
        sales=rows,
        checks=list(checks.values()),
        admission=latency.to_admission(testimonies),
        refusal=latency.to_refusal(testimonies),
        decision=latency.to_decision(testimonies),
        payment=latency.to_payment(testimonies),
        rate=latency.rate_of(history.operations),
    )


def _case(slug: str, book: dict[str, Any], operations: list[Operation]) -> Case:
    return Case(
        testimony=Testimony(slug, (operation for operation in operations if operation.sale == slug)),
        sku=str(book.get("sku", slug)),
        per_buyer_limit=int(book.get("per_buyer_limit", 1)),
        before=book.get("before") or {},
        after=book.get("after") or {},
    )


def _meaning(check: Any) -> str:
    return str(check.__doc__).strip()


def _judge_sale(case: Case, *, checks: dict[str, CheckResult]) -> SaleResult:
    """Run every check on one sale; return its row."""
    faults: Counter[str] = Counter()
    for name, check in CHECKS.items():
        for fault in check(case):
            faults[name] += fault.weight
            checks[name].add(fault, where=case.sku)
    testimony = case.testimony
    return SaleResult(
        sale=testimony.sale,
        sku=case.sku,
        total=case.count("total"),
        asked=len(testimony.asks),
        repeated=len(testimony.asks) - len(testimony.wishes),
        wishes=len(testimony.wishes),
        admitted=len(testimony.places),
        results=testimony.results(),
        units_sold=case.count("sold"),
        units_free=case.count("available"),
        moved_up=sum(place.moved_up for place in testimony.places.values()),
        paid_late=sum(place.charged_late for place in testimony.places.values()),
        faults=dict(faults),
    )


def _judge_whole(history: History, *, cases: list[Case], checks: dict[str, CheckResult]) -> None:
    """Add what concerns the run as a whole."""
    for name in history.cut_off:
        checks["record cut off"].add(Fault(f"{name} ends too early"))
    if not history.files:
        checks["record cut off"].add(Fault("there is no record"))
    for answer, count in unforeseen_answers(o for o in history.operations if not o.sale).items():
        checks["unforeseen answer"].add(Fault(f"{count} × {answer}", count))
    for fault in no_repeats([ask for case in cases for ask in case.testimony.asks]):
        checks["vacuous"].add(fault)


def as_json(verdict: Verdict) -> str:
    """Return the verdict for machines."""
    return json.dumps(asdict(verdict), indent=2) + "\n"


def judge_folder(folder: Path) -> Verdict:
    """Judge the record and the audits kept in a folder; write verdict.json beside them."""
    books = json.loads((folder / AUDIT_FILE).read_text())
    verdict = judge(read_history(folder), books)
    (folder / VERDICT_FILE).write_text(as_json(verdict))
    return verdict


def main(arguments: list[str]) -> int:
    """Judge a kept record again; 0 only if everything holds."""
    if len(arguments) != 1 or not (Path(arguments[0]) / AUDIT_FILE).exists():
        print(f"usage: python -m loadtest.verdict FOLDER (one that has {AUDIT_FILE})", file=sys.stderr)
        return 2
    verdict = judge_folder(Path(arguments[0]))
    print(render(json.loads(as_json(verdict))))
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
