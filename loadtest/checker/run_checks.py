"""The checks that say whether a run can be believed: it tried everything, and the contract foresees every answer.
Never looks at the shop's books.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from loadtest.checker.buyer_record import AskedWish, ToldPlace
from loadtest.checker.case import Case, Fault
from loadtest.record.expectations import EXPECTATIONS
from loadtest.record.history import OK, STOPPED, UNENDED, UNKNOWN, History, Operation
from loadtest.record.log_sentences import is_in_order
from loadtest.users.contract import OK_STATUS, is_come_again, is_foreseen, is_no_answer


def inconclusive(case: Case) -> Iterator[Fault]:
    """The run was a test at all: it showed everything it was expected to show, and clicks were repeated."""
    places, results = list(case.record.places.values()), case.record.results()
    if not case.record.asks:
        yield Fault("nobody asked")
    if not places:
        yield Fault("nobody was admitted")
    seen = {
        "sold_out": "sold_out" in results,
        "paid": "paid" in results,
        "expired": any(place.was("expired") for place in places),
        "cancelled": any(place.was("held") and place.was("cancelled") for place in places),
        "paid_late": any(place.charged_late for place in places),
        "left": any(map(_has_left, places)),
        "moved_up": any(map(_has_moved_up, places)),
    }
    yield from _missing(seen, expects=case.expects - _of_all_sales(case.expects))


def no_repeats(asks: list[Operation], *, expects: frozenset[str]) -> Iterator[Fault]:
    """Clicks were repeated: at once, after the answer, and for a request that was already in line."""
    seen = {
        "double": any(ask.click == "double" for ask in asks),
        "again": any(ask.click == "again" for ask in asks),
        "retry": any(ask.outcome == OK and ask.status == OK_STATUS for ask in asks),
        "unanswered": any(ask.click == "retry" for ask in asks) and any(ask.outcome == UNKNOWN for ask in asks),
    }
    yield from _missing(seen, expects=expects)


def no_standby(places: Iterable[ToldPlace], *, expects: frozenset[str]) -> Iterator[Fault]:
    """Somebody on standby was held a unit; and somebody waited in a line, if only in that of another sale."""
    found = list(places)
    seen = {
        "stood_by": any(place.moved_up and place.stood_by for place in found),
        "left": any(map(_has_left, found)),
        "moved_up": any(map(_has_moved_up, found)),
    }
    yield from _missing(seen, expects=_of_all_sales(expects))


def _of_all_sales(expects: frozenset[str]) -> frozenset[str]:
    """Return what any sale may show: in a line that ends with the units somebody waits only by chance."""
    return expects & {"stood_by", "left", "moved_up"} if "stood_by" in expects else frozenset()


def _has_moved_up(place: ToldPlace) -> bool:
    return place.moved_up and place.was("waitlisted")


def _has_left(place: ToldPlace) -> bool:
    return place.was("cancelled") and not place.was("held") and not place.stood_by


def _missing(seen: dict[str, bool], *, expects: frozenset[str]) -> Iterator[Fault]:
    yield from (Fault(EXPECTATIONS[word]) for word, found in seen.items() if word in expects and not found)


def unexpected(case: Case) -> Iterator[Fault]:
    """Every answer is one the contract foresees, and every unknown answer was cleared up by asking again."""
    for answer, count in unforeseen_answers(case.record.operations).items():
        yield Fault(f"{count} × {answer}", count)
    for wish in case.record.wishes:
        if all(map(_leaves_open, wish.asks)) and not _was_cut_short(wish.asks[-1]) and not _was_hasty(wish):
            yield Fault(f"key {wish.key} of buyer {wish.buyer} never got a definite answer")


def _leaves_open(ask: Operation) -> bool:
    """Say whether this answer is none: nothing came, or only that the buyer may come again."""
    return ask.outcome == UNKNOWN or is_come_again(ask)


def _was_hasty(wish: AskedWish) -> bool:
    """Say whether its buyer was told to wait, and did not: a bot that is kept away so is no fault of the shop."""
    return bool(wish.last_no) and any(ask.click == "hasty" for ask in wish.asks)


def never_let_in(joins: Iterable[Operation]) -> Iterator[Fault]:
    """Every buyer who came was given a token: without one nobody can ask, so no wish of theirs is on record."""
    visits: dict[str, list[Operation]] = defaultdict(list)
    for join in joins:
        if join.key:  # older records do not name the visit
            visits[join.key].append(join)
    shut_out = sum(not any(join.outcome == OK or _was_cut_short(join) for join in visit) for visit in visits.values())
    if shut_out:
        yield Fault(f"{shut_out} buyers asked for a token again and again, and never got one", shut_out)


def never_came(history: History, *, visits: int, files: int) -> Iterator[Fault]:
    """Everybody who was planned came; where a record is missing, nobody can say who did."""
    if history.cut_off or history.files < files:
        return
    came = {operation.key for operation in history.operations if operation.kind == "join" and operation.key}
    if len(came) < visits:
        yield Fault(f"{visits - len(came)} of {visits} planned buyers never came", visits - len(came))


def _was_cut_short(ask: Operation) -> bool:
    """Say whether it was our own side that ended this: nobody was left to ask again."""
    return ask.client_died or ask.code in (STOPPED, UNENDED)


def record_gaps(history: History, *, files: int) -> Iterator[Fault]:
    """Every process wrote its record to the end."""
    for name in history.cut_off:
        yield Fault(f"{name} ends too early")
    if history.files < max(files, 1):
        yield Fault(f"{history.files} of {files} records are here" if files else "there is no record")


def public_log(sentences: list[str], *, logs: int) -> Iterator[Fault]:
    """The public log of every sale holds by every rule, as a stranger reads it; or the shop has no logs."""
    yield from (Fault(text) for text in sentences if not is_in_order(text))
    if len(sentences) < logs:
        yield Fault(f"{len(sentences)} of {logs} public logs were read", logs - len(sentences))


def unforeseen_answers(operations: Iterable[Operation]) -> dict[str, int]:
    """Count the answers that the contract does not know; a missing answer is not one of them."""
    counts: dict[str, int] = defaultdict(int)
    for operation in operations:
        if not is_no_answer(operation) and not is_foreseen(operation):
            counts[f"{operation.status} {operation.code} to {operation.kind}"] += 1
    return dict(counts)
