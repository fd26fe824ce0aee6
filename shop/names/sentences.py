"""Says in the reader's language what was written in English for everybody: details in the log of acts, findings of an
audit, refusals of lower floors, a reading that many share. Never changes what is stored, logged or sent to programs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

# Between the marks stands what differs; of those in WORDS the value is a word of this shop too, or several of them.
SENTENCES = (
    # Log of acts.
    _("from %(address)s"),
    _("%(units)s units, total %(old)s → %(new)s"),
    _("from %(holder)s, fence %(fence)s"),
    _("network %(mark)s"),
    _("orders of a buyer: %(n)s"),
    _("%(number)s of %(uses)s units"),
    _("%(number)s of %(uses)s requests"),
    _("%(host)s process %(id)s"),
    _("%(model)s: %(act)s"),
    _("Added “%(object)s”."),
    _("Changed “%(object)s” — %(changes)s"),
    _("Deleted “%(object)s.”"),
    _("Changed %(fields)s."),
    # Refusals of lower floors.
    _("units must be at least 1, got %(n)s"),
    _("units must not be 0"),
    _("actor must be named"),
    _("an adjustment needs an actor and a reason"),
    _("%(n)s units of %(sku)s are held or sold; only %(free)s can be taken away"),
    _("there is no stock of %(sku)s"),
    _("reason may have at most %(n)s characters"),
    _("name a new price or a new limit"),
    _("request_ids must name at least one dead letter"),
    _("this request is %(state)s; there is nothing to cancel"),
    _("this request is no longer paid"),
    _("no payment of this request can be given back"),
    _("no refund of this request has failed"),
    _("no address is kept for this order; nothing was sent"),
    _("this shop sends no mails"),
    _("There is no sale %(name)s."),
    _("name a network, an address, or the mark of a network"),
    _("a network is a /24 of IPv4 or a /48 of IPv6, no larger one"),
    _("Redis %(node)s %(used)s of %(all)s bytes (maxmemory) are used; nobody new is admitted"),
    # What the tree of errors says by itself (inventory/exceptions.py).
    _("Something went wrong."),
    _("The request is not one this shop understands."),
    _("There is no such sale."),
    _("You have no such request."),
    _("This request cannot be paid."),
    _("Too many calls: slow down."),
    _("The shop cannot answer right now; your place, if you have one, is kept."),
    _("The line did not answer in time; nothing is known to have changed."),
    _("What you asked for is done, but the line has not heard of it yet: ask again."),
    _("The line of this sale is being prepared."),
    _("A row changed under this transaction; nothing was written."),
    _("These units are not free; nothing was written."),
    _("The lock is no longer ours; nothing was written."),
    _("The stock row has seen a newer lock holder; nothing was written."),
    _("the stock row changed under this transaction; nothing was written"),
    _("the request changed under this transaction; nothing was written"),
    # Drift of Redis.
    _("Redis does not know it"),
    _("Redis had version %(seen)s, the row has %(version)s"),
    _("Redis says %(free)s free, %(held)s held, %(sold)s sold"),
    _("Redis is %(n)s versions behind"),
    # Findings of an audit.
    _("This sale is retired and Redis has forgotten it: only the invariants of the database were checked."),
    _("%(n)s of %(all)s decided"),
    _("dead letters, %(n)s of them undecided: %(names)s"),
    _("%(n)s of %(all)s asked"),
    _("Redis has lost this line"),
    _("it is not primed yet"),
    _("ordinals went on after %(n)s, because Redis had lost the line"),
    _("%(n)s are in both"),
    _("%(n)s units queued"),
    _("%(n)s units queued at rest"),
    _("%(n)s units queued, %(known)s by the records"),
    _("nobody waits"),
    _("the record of %(name)s is damaged"),
    _("%(name)s is on standby for %(n)s"),
    _("%(name)s waits for one of %(n)s held units"),
    _("%(name)s waits for %(n)s, %(why)s, for %(time)s s"),
    _("%(n)s units are free"),
    _("its sale is over"),
    _("nothing can come back"),
    _("the sale is %(state)s"),
    _("%(n)s records compared"),
    _("the next call goes on behind them"),
    _("%(name)s was admitted as (quantity, sale, buyer) %(asked)s and decided as %(decided)s"),
    _("%(name)s was admitted under terms %(asked)s and decided by %(decided)s"),
    _("the record of %(name)s is damaged, and it has no order"),
    _("%(name)s is %(state)s, but in no line, not in flight and not decided"),
    _("%(name)s is told %(state)s, but has no order"),
    _("%(name)s is told %(state)s, but its order is %(other_state)s"),
    _("version, available, held, sold are %(told)s in Redis and %(known)s in the database"),
    _("held and sold %(n)s of %(all)s"),
    _("movement %(id)s of %(name)s took units that were not there"),
    _("available %(free)s, held %(held)s, sold %(sold)s, total %(all)s"),
    _("ledger says %(free)s available of %(all)s"),
    _("held %(n)s but orders hold %(known)s"),
    _("sold %(n)s but orders paid %(known)s"),
    _("%(name)s moved: %(moves)s"),
    _("%(name)s is %(stands)s"),
    _("it moved: %(moves)s"),
    _("%(state)s with %(n)s units"),
    _("its history: %(changes)s"),
    _("payments: %(payments)s"),
    _("%(buyer)s has %(n)s of sale %(sale)s, the limit is %(limit)s"),
    _("%(name)s was decided after one that came later"),
    _("%(name)s was decided after one that came later and fitted no better"),
    _("%(name)s wanted %(n)s, %(free)s were free"),
    _("%(name)s is still held, %(seconds)s s after its end"),
    _("%(name)s lapsed %(seconds)s s before its end"),
    _("payment %(reference)s of %(name)s is of %(amount)s, which is not the price"),
    _("payment %(reference)s of %(name)s is due back for %(seconds)s s"),
    _("payment %(reference)s of %(name)s is pending for %(days)s days at %(provider)s"),
    _("%(name)s has more than one: %(stands)s"),
    _("%(name)s moved under fence %(fence)s after a higher one"),
    _("a movement has fence %(fence)s, the stock has seen %(seen)s"),
    _("movement %(id)s (%(kind)s of %(delta)s) has no %(missing)s"),
    _("the guard %(guard)s of %(place)s is off"),
    _("%(role)s may change rows of %(place)s"),
    _("%(name)s has other terms than its version"),
    # Comparisons of the reconciler, rights of tables.
    _("Can add %(model)s"),
    _("Can change %(model)s"),
    _("Can delete %(model)s"),
    _("Can view %(model)s"),
)
WORDS = {"act", "changes", "fields", "holder", "kind", "missing", "model", "moves", "other_state", "payments"}
WORDS |= {"stands", "state", "why"}
CHANGE = re.compile(r"(\w+) (.*) → (.*)", re.DOTALL)
BETWEEN_CHANGES = re.compile(r", (?=\w+ [^,→]*→ )")
SOURCE = "en"


def in_words(text: str) -> str:
    """Return `text` in the reader's language; as it is when it is none of these, and for a reader of English."""
    if not text or (get_language() or SOURCE) == SOURCE:
        return text
    return (
        _known(text) or _changes(text) or "；".join(_known(each) or _changes(each) or each for each in text.split("; "))
    )


def reason_in_words(text: str) -> str:
    """Return why something was done: the shop's own word for it in the reader's language, a person's as they are."""
    if (whole := gettext(text)) != text:
        return whole
    code, colon, note = text.partition(": ")
    return f"{gettext(code)}{colon}{note}"


def findings_in_words(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings of an audit with name and detail in the reader's language."""
    return [{**each, "name": gettext(each["name"]), "detail": in_words(each["detail"])} for each in findings]


def _known(text: str) -> str:
    """Return the translation of a word, or of one whole sentence; '' when there is none."""
    if (whole := gettext(text)) != text:
        return whole
    for pattern, sentence in _patterns():
        if ("; " in sentence) is ("; " in text) and (found := pattern.fullmatch(text)):
            parts = {name: _word(value) if name in WORDS else value for name, value in found.groupdict().items()}
            return gettext(sentence) % parts
    return ""


def _word(text: str) -> str:
    """Return a word in the reader's language, or several of them."""
    if known := _known(text):
        return known
    parts = re.split(r", | and ", text)
    return "、".join(_known(part) or " ".join(gettext(each) for each in part.split(" ")) for part in parts)


def _changes(text: str) -> str:
    """Return the changes of a form, field old → new, with the fields in the reader's language; '' when it is none."""
    found = [CHANGE.fullmatch(each) for each in BETWEEN_CHANGES.split(text)]
    if not all(found):
        return ""
    return "，".join(
        f"{gettext(each[1].replace('_', ' '))} {gettext(each[2])} → {gettext(each[3])}" for each in found if each
    )


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return each sentence with blanks, the longest first, so that none is read as one that it begins with."""
    return [
        (re.compile(re.sub(r"%\\\((\w+)\\\)s", _blank, re.escape(sentence)), re.DOTALL), sentence)
        for sentence in sorted(SENTENCES, key=lambda each: (-len(re.sub(r"%\(\w+\)s", "", each)), each))
        if "%(" in sentence
    ]


def _blank(found: re.Match[str]) -> str:
    return f"(?P<{found[1]}>.+?)"
