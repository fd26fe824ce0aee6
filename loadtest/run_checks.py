"""The checks that say whether a run can be believed: it tried everything, and the contract foresees every answer.
Never looks at the shop's books. Called by the verdict, with the checks of the shop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from loadtest.case import Case, Fault
from loadtest.contract import OK_STATUS, is_foreseen
from loadtest.history import OK, STOPPED, UNKNOWN, Operation


def vacuous(case: Case) -> Iterator[Fault]:
    """The run was a test at all: sold out, paid, lapsed, cancelled, left, paid late, moved up, clicks repeated."""
    places, results = list(case.testimony.places.values()), case.testimony.results()
    seen = {
        "nobody asked": bool(case.testimony.asks),
        "nobody was admitted": bool(places),
        "nobody was told it was sold out": "sold_out" in results,
        "nobody paid": "paid" in results,
        "no hold lapsed": any(place.was("expired") for place in places),
        "nobody gave up a hold": any(place.was("held") and place.was("cancelled") for place in places),
        "nobody paid too late": any(place.charged_late for place in places),
        "nobody left the line": any(place.was("cancelled") and not place.was("held") for place in places),
        "nobody moved up from the waitlist": any(place.moved_up for place in places),
    }
    yield from (Fault(missing) for missing, found in seen.items() if not found)


def no_repeats(asks: list[Operation]) -> Iterator[Fault]:
    """Clicks were repeated: at once, after the answer, and for a request that was already in line."""
    seen = {
        "no double click was sent": any(ask.click == "double" for ask in asks),
        "nobody asked again after an answer": any(ask.click == "again" for ask in asks),
        "no repeat met an admitted request": any(ask.outcome == OK and ask.status == OK_STATUS for ask in asks),
    }
    yield from (Fault(missing) for missing, found in seen.items() if not found)


def unexpected(case: Case) -> Iterator[Fault]:
    """Every answer is one the contract foresees, and every unknown answer was cleared up by asking again."""
    for answer, count in unforeseen_answers(case.testimony.operations).items():
        yield Fault(f"{count} × {answer}", count)
    for wish in case.testimony.wishes:
        if all(ask.outcome == UNKNOWN for ask in wish.asks) and wish.asks[-1].code != STOPPED:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} never got a definite answer")


def unforeseen_answers(operations: Iterable[Operation]) -> dict[str, int]:
    """Count the answers that the contract does not know; a missing answer is not one of them."""
    counts: dict[str, int] = defaultdict(int)
    for operation in operations:
        if operation.status and not is_foreseen(operation):
            counts[f"{operation.status} {operation.code} to {operation.kind}"] += 1
    return dict(counts)
