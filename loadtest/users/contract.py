"""Says which answers the shop's HTTP contract foresees for a flood's calls, and what an answer proves.
Never sees a body.
"""

from __future__ import annotations

from http import HTTPStatus

from loadtest.record.history import FAIL, OK, UNKNOWN, Operation

OK_STATUS, ADMITTED, NOT_FOUND = HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND
# Sent away at the door: nothing is left, or too many wait already for what may come back. One may still stand by.
NONE_LEFT = frozenset({"sold_out", "line_full"})
FORESEEN = {
    "join": {(201, "")},
    "browse": {(200, "")},
    "ask": {
        (200, ""),
        (202, ""),
        *((409, code) for code in ("sold_out", "line_full", "limit_reached")),
        (410, "sale_closed"),
    },
    "look": {(200, "")},
    "recheck": {(200, "")},
    # Not payable any more: the hold is over, or it was paid or cancelled before.
    "pay": {(200, ""), (409, "not_payable")},
    "begin": {(200, ""), (409, "not_payable")},
    "cancel": {(200, ""), (409, "not_payable")},
    "page": {(200, "")},
    "choose": {(303, "")},
    # 202: the place was lost, and is back.
    "restore": {(200, ""), (202, "")},
    # Live events: "watch" is a message about a sale, "event" one about a request.
    "watch": {(200, "")},
    "event": {(200, "")},
}
# A proxy's own words for no answer: the call may have arrived or not.
PROXYS_OWN = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
# Not yet, slower, not now: anyone who is told this comes again with the same key.
NOT_OPEN = "sale_not_open"
COME_AGAIN = {(425, NOT_OPEN), (429, "rate_limited"), (503, "unavailable")}


def is_foreseen(operation: Operation) -> bool:
    """Say whether the contract has this answer for this call; no answer at all is nobody's promise."""
    answer = (operation.status, operation.code)
    return answer in FORESEEN[operation.kind] or answer in COME_AGAIN


def is_come_again(operation: Operation) -> bool:
    """Say whether the shop asked to come again later."""
    return (operation.status, operation.code) in COME_AGAIN


def is_refusal(operation: Operation) -> bool:
    """Say whether this is a definite no."""
    return operation.outcome == FAIL and not is_come_again(operation)


def is_no_answer(operation: Operation) -> bool:
    """Say whether this call has no answer of the shop's: an unknown outcome, to be cleared up by asking again."""
    return not operation.status or (operation.status in PROXYS_OWN and not operation.code)


def outcome_of(status: int, *, kind: str) -> str:
    """Tell a definite yes and a definite no from an answer that leaves it open. A form's yes is a redirect."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES or (kind == "choose" and status == HTTPStatus.SEE_OTHER):
        return OK
    return FAIL if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR else UNKNOWN
