"""Gives each order a number that people can read out, and reads it back: FD-1042-7. Never looks anything up."""

from __future__ import annotations

import re

PREFIX = "FD"
# As typed: any case, with or without hyphens and spaces; the last digit is the check digit.
TYPED = re.compile(r"FD(\d{1,18})(\d)", re.ASCII)
# Damm's table: of one digit that is wrong and of two neighbours that were swapped, none goes unnoticed.
DAMM = (
    (0, 3, 1, 7, 5, 9, 8, 6, 4, 2),
    (7, 0, 9, 2, 1, 5, 4, 8, 6, 3),
    (4, 2, 0, 6, 8, 7, 1, 3, 5, 9),
    (1, 7, 5, 0, 9, 8, 3, 4, 2, 6),
    (6, 1, 2, 3, 0, 4, 5, 9, 7, 8),
    (3, 6, 7, 4, 2, 0, 9, 5, 8, 1),
    (5, 8, 6, 9, 7, 2, 0, 1, 3, 4),
    (8, 9, 4, 5, 3, 6, 2, 0, 1, 7),
    (9, 4, 3, 8, 6, 1, 7, 2, 0, 5),
    (2, 5, 8, 1, 4, 3, 6, 7, 9, 0),
)


def order_number(order_id: int) -> str:
    """Return the number of the order with this id (≥ 1)."""
    return f"{PREFIX}-{order_id}-{_check_digit(str(order_id))}"


def read_order_number(text: str) -> int | None:
    """Return the id of the order that `text` names, None when it is no order number or was mistyped."""
    typed = TYPED.fullmatch(re.sub(r"[\s-]", "", text).upper())
    if typed is None or typed[1].startswith("0") or _check_digit(typed[1]) != int(typed[2]):
        return None
    return int(typed[1])


def _check_digit(digits: str) -> int:
    interim = 0
    for digit in digits:
        interim = DAMM[interim][int(digit)]
    return interim
