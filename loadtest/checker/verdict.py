"""Decides whether a flood was served rightly: every check on every sale, counts that add up, waits, rates.
Never believes a single source: the clients' record and the shop's audit must agree.
Called at the end of a run, and by the checker.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.checker import latency
from loadtest.checker.buyer_record import BuyerRecord
from loadtest.checker.case import Case, Fault
from loadtest.checker.load_generator import OwnLoad, load_generator, read_load
from loadtest.checker.run_checks import (
    never_came,
    never_let_in,
    no_repeats,
    no_standby,
    public_log,
    record_gaps,
    unforeseen_answers,
)
from loadtest.checker.stages import STAGES_FILE
from loadtest.checker.stock_checks import CHECKS, faults_of
from loadtest.record.expectations import RunFacts, read_run
from loadtest.record.files import write_whole
from loadtest.record.history import UNENDED, UNKNOWN, History, read_history
from loadtest.record.log_sentences import LOGS_FILE, read_sentences

AUDIT_FILE, VERDICT_FILE = "audit.json", "verdict.json"
DETAILS_KEPT = 5
SHOP_RUN = RunFacts()


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
    loaded: int
    taken_away: int
    faults: dict[str, int]


@dataclass(frozen=True, slots=True)
class RecordResult:
    """What there was to judge by."""

    files: int
    operations: int
    unknown: int  # no definite answer
    unended: int  # of these: the client's own process ended first
    clocks: int
    wall_error_ms: float | None  # within which times of two clocks were compared; None: they were not
    expected: list[str]


@dataclass(slots=True)
class Verdict:
    """What is said about a run."""

    ok: bool
    sales: list[SaleResult]
    checks: list[CheckResult]
    record: RecordResult
    admission: latency.Wait
    refusal: latency.Wait
    decision: latency.Wait
    payment: latency.Wait
    rate: latency.Rate
    load: OwnLoad | None = None


def judge(
    history: History,
    books: dict[str, dict[str, Any]],
    *,
    facts: RunFacts = SHOP_RUN,
    load: OwnLoad | None = None,
    logs: list[str] | None = None,
) -> Verdict:
    """Judge a run: `books` has for each sale its sku, its limit and the shop's audit before and after.

    `load`: how busy the load generator itself was, where that was measured. `logs`: what the independent verifier said
    of the public logs; None for a run that did not look at them.
    """
    cases = [_case(slug, book, history=history, facts=facts) for slug, book in books.items()]
    checks = {name: CheckResult(name, _meaning(check)) for name, check in CHECKS.items()}
    checks["record cut off"] = CheckResult("record cut off", _meaning(record_gaps))
    rows = [_judge_sale(case, checks=checks) for case in cases]
    if logs is not None or facts.logs:
        checks["public log"] = CheckResult("public log", _meaning(public_log))
        for fault in public_log(logs or [], logs=facts.logs):
            checks["public log"].add(fault)
    _judge_whole(history, cases=cases, checks=checks, facts=facts)
    if load is not None:
        checks["load generator"] = CheckResult("load generator", _meaning(load_generator))
        for fault in load_generator(history, load):
            checks["load generator"].add(fault)
    records = [case.record for case in cases]
    return Verdict(
        ok=not any(check.count for check in checks.values()),
        sales=rows,
        checks=list(checks.values()),
        record=_record(history, facts=facts),
        admission=latency.to_admission(records),
        refusal=latency.to_refusal(records),
        decision=latency.to_decision(records),
        payment=latency.to_payment(records),
        rate=latency.rate_of(history.operations),
        load=load,
    )


def _case(slug: str, book: dict[str, Any], *, history: History, facts: RunFacts) -> Case:
    return Case(
        record=BuyerRecord(
            slug,
            (operation for operation in history.operations if operation.sale == slug),
            shifts_ns=history.clocks.shifts_ns,
        ),
        sku=str(book.get("sku", slug)),
        per_buyer_limit=int(book.get("per_buyer_limit", 1)),
        per_network_limit=int(book.get("per_network_limit", 0)),
        expects=facts.expects,
        margin_ns=history.clocks.margin_ns(facts.wall_error_ms),
        before=book.get("before") or {},
        after=book.get("after") or {},
    )


def _record(history: History, *, facts: RunFacts) -> RecordResult:
    return RecordResult(
        files=history.files,
        operations=len(history.operations),
        unknown=sum(operation.outcome == UNKNOWN for operation in history.operations),
        unended=sum(operation.code == UNENDED for operation in history.operations),
        clocks=len({operation.clock for operation in history.operations}),
        wall_error_ms=facts.wall_error_ms,
        expected=sorted(facts.expects),
    )


def _meaning(check: Any) -> str:
    return str(check.__doc__).strip()


def _judge_sale(case: Case, *, checks: dict[str, CheckResult]) -> SaleResult:
    """Run every check on one sale; return its row."""
    faults: Counter[str] = Counter()
    for name in CHECKS:
        for fault in faults_of(name, case):
            faults[name] += fault.weight
            checks[name].add(fault, where=case.sku)
    record = case.record
    return SaleResult(
        sale=record.sale,
        sku=case.sku,
        total=case.count("total"),
        asked=len(record.asks),
        repeated=len(record.asks) - len(record.wishes),
        wishes=len(record.wishes),
        admitted=len(record.places),
        results=record.results(),
        units_sold=case.count("sold"),
        units_free=case.count("available"),
        moved_up=sum(place.moved_up for place in record.places.values()),
        paid_late=sum(place.charged_late for place in record.places.values()),
        loaded=case.loaded,
        taken_away=case.taken_away,
        faults=dict(faults),
    )


def _judge_whole(history: History, *, cases: list[Case], checks: dict[str, CheckResult], facts: RunFacts) -> None:
    """Add what concerns the run as a whole."""
    judged = {case.record.sale for case in cases}
    for slug in sorted({o.sale for o in history.operations if o.sale} - judged):
        checks["audit missing"].add(Fault(f"the sale {slug} is on record and has no books"))
    for fault in record_gaps(history, files=facts.files):
        checks["record cut off"].add(fault)
    for answer, count in unforeseen_answers(o for o in history.operations if not o.sale).items():
        checks["unforeseen answer"].add(Fault(f"{count} × {answer}", count))
    for fault in never_let_in(o for o in history.operations if o.kind == "join"):
        checks["unforeseen answer"].add(fault)
    for fault in never_came(history, visits=facts.visits, files=facts.files):
        checks["inconclusive"].add(fault)
    for fault in no_repeats([ask for case in cases for ask in case.record.asks], expects=facts.expects):
        checks["inconclusive"].add(fault)
    for fault in no_standby((one for case in cases for one in case.record.places.values()), expects=facts.expects):
        checks["inconclusive"].add(fault)


def as_json(verdict: Verdict) -> str:
    """Return the verdict for machines."""
    return json.dumps(asdict(verdict), indent=2) + "\n"


def clear_verdict(folder: Path) -> None:
    """Remove what an earlier run in this folder was judged by, and its verdict."""
    for name in (AUDIT_FILE, LOGS_FILE, STAGES_FILE, VERDICT_FILE):
        (folder / name).unlink(missing_ok=True)


def judge_folder(
    folder: Path,
    *others: Path,
    history: History | None = None,
    books: dict[str, dict[str, Any]] | None = None,
    facts: RunFacts | None = None,
) -> Verdict:
    """Judge the record and the audits kept in a folder, or what is given instead; write verdict.json alongside them.

    others: folders of further machines, with their records alone.
    """
    books = json.loads((folder / AUDIT_FILE).read_text()) if books is None else books
    history = history or read_history(folder, *others)
    facts = facts or read_run(folder)
    load = read_load(folder, *others, is_planned=any(operation.planned_ns for operation in history.operations))
    verdict = judge(history, books, facts=facts, load=load, logs=read_sentences(folder))
    write_whole(folder / VERDICT_FILE, as_json(verdict))
    return verdict
