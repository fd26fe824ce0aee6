"""Says to people how a sale stands and what to do now, from a reading of its control room. Never reads a store."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext, ngettext, pgettext

from shop.names.sentences import findings_in_words, in_words, reason_in_words
from shop.web.sale_presenter import clock, money


def time_left(room: dict[str, Any]) -> str:
    """Return how long it is until the sale opens or closes, '' when it is over."""
    now = time.time()
    if room["state"] == "scheduled":
        return gettext("Opens in %(time)s.") % {"time": clock(timedelta(seconds=room["opens"] - now))}
    if room["state"] == "closed":
        return ""
    return gettext("Closes in %(time)s.") % {"time": clock(timedelta(seconds=room["closes"] - now))}


def revenue(room: dict[str, Any]) -> str:
    """Return what the sale has earned, refunds subtracted."""
    return " + ".join(money(Decimal(amount), currency=currency) for currency, amount in room["earned"]["sums"])


def translated(room: dict[str, Any]) -> dict[str, Any]:
    """Return a reading, which everybody shares, with its words in the language of the one who reads."""
    found = room["invariants"]
    said = {**found, "error": in_words(found["error"]), "note": in_words(found["note"])}
    acts = [
        {
            **each,
            "act": gettext(each["act"]),
            "reason": reason_in_words(each["reason"]),
            "detail": in_words(each["detail"]),
        }
        for each in room["acts"]
    ]
    movements = [
        {**each, "kind": gettext(each["kind"]), "reason": reason_in_words(each["reason"])} for each in room["movements"]
    ]
    workers = [{**each, "doing": gettext(each["doing"])} for each in room["workers"]]
    lock = room["lock"] and {
        **room["lock"],
        "state": lock_state(room["lock"]["state"]),
        "holder": in_words(room["lock"]["holder"]),
        "waiters": [in_words(each) for each in room["lock"]["waiters"]],
    }
    asked = room["comparison"] and {
        **room["comparison"],
        "state": gettext(room["comparison"]["state"]),
        "detail": in_words(room["comparison"]["detail"]),
    }
    said["findings"] = findings_in_words(found["findings"])
    parts = {"invariants": said, "acts": acts, "movements": movements, "workers": workers}
    parts["pause_reason"] = gettext(room["pause_reason"])
    return {**room, **parts, "lock": lock, "comparison": asked}


def lock_state(state: str) -> str:
    """Return the state of a lock: units are free and held in another sense."""
    names = {"free": pgettext("lock", "free"), "held": pgettext("lock", "held"), "granted": pgettext("lock", "granted")}
    return names[state]


def advice(room: dict[str, Any]) -> list[str]:
    """Return what to do now, the most urgent first; never empty."""
    return _faults(room) or [_next_step(room)]


def _faults(room: dict[str, Any]) -> list[str]:
    """Return what is wrong, and what to do about it."""
    if room["retired"]:
        return []
    said = []
    if room["redis_error"]:
        said.append(gettext("Redis does not answer: nobody new is let in. Have it looked at; no place is lost."))
    if room["invariants"]["error"]:
        said.append(gettext("The audit could not be made. Have the stores looked at."))
    elif not room["invariants"]["ok"]:
        said.append(gettext("The books do not agree. Pause the sale, and open the invariants below."))
    line = room["line"]
    if line and line["waiting"] + line["in_flight"] and not _has_live(room, "settler"):
        said.append(gettext("No settler runs, so nobody in line is decided. Start one."))
    if room["stock"]["held"] and room["workers"] and not _has_live(room, "expirer"):
        said.append(gettext("No expirer runs, so holds do not end. Start one."))
    if room["letters"]:
        count = len(room["letters"])
        text = ngettext(
            "%(n)d request could not be decided. Retry or discard the dead letter.",
            "%(n)d requests could not be decided. Retry or discard the dead letters.",
            count,
        )
        said.append(text % {"n": count})
    return said


def _next_step(room: dict[str, Any]) -> str:
    stock = room["stock"]
    if room["retired"]:
        return gettext("Nothing: the sale is retired.")
    if room["state"] == "paused":
        return gettext("Resume the sale when the reason of the pause is mended; buyers wait.")
    if room["state"] == "scheduled":
        return (
            gettext("Nothing: the sale opens by itself.")
            if stock["available"]
            else gettext("Restock: no unit is free.")
        )
    if room["state"] == "closed":
        if stock["held"]:
            return gettext("Nothing: the last holds are paid or end by themselves.")
        return gettext("Nothing: the sale is over. It is retired by itself, or at once with Retire.")
    if not stock["available"] and not stock["held"]:
        return gettext("Everything is sold: close the sale, or restock.")
    if not stock["available"]:
        return gettext("Nothing: every unit is sold or held, and what is not paid goes to the next in line.")
    return gettext("Nothing: the sale runs.")


def _has_live(room: dict[str, Any], name: str) -> bool:
    return any(worker["name"] == name and worker["alive"] for worker in room["workers"])
