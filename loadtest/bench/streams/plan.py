"""How much of the streams is measured: in full, and to see that it works; and how, in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# The line moves while it is measured, so that every stream has news: units come in and go to the first who wait.
RESTOCK_SECONDS = 0.25
PAGE_CONNECTIONS = 64


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. seconds: of each round; pairs: one round of each side; asks in purchases a second."""

    pairs: int = 10
    seconds: float = 5.0
    streams: int = 2_000
    asks_per_second: int = 300
    connections: int = 16
    mail_pairs: int = 10
    mails: int = 10_000
    cleaning_pairs: int = 10
    old_rows: int = 30_000


FULL = Plan()
QUICK = Plan(pairs=1, seconds=2.0, mail_pairs=1, cleaning_pairs=1)
METHOD = (
    "One web process on one core; Valkey with every write on disk, PostgreSQL, a settler, the loader and the readers "
    "share the others.",
    "{streams:,} buyers wait in one line and follow it, one stream each. {asks_per_second} purchases a second are "
    "asked in the same sale at an even pace over {connections} connections; "
    f"every {RESTOCK_SECONDS:g} s a unit comes in, so "
    "all places move.",
    "{pairs} pairs of rounds of {seconds:g} s, one without streams and one with them, right after each other, now the "
    "one first and now the other. Of each pair the ratio is taken; the figure is the median of the ratios, so that "
    "what disturbs the machine for longer than a pair disturbs both sides, and a disturbance of one round is left out.",
    "Every round counts. Purchases that are not answered 202, or more than 5 % of the streams ending in a round, end "
    "the run as failed; a pace that is not kept, or streams without news, fail it at the end.",
    "What bounds it: in the rounds with streams the readers take their share of the cores on which the stores, the "
    "settler and the loader run. They are niced, but on two cores a part of what is measured is theirs and not the "
    "web process'. So the ratio is an upper bound of what streams cost a purchase; how busy the web process is stands "
    "alongside it and owes nothing to the readers.",
    "Mails: {mail_pairs} more pairs of rounds, alone and with {mails:,} mails in the queue of a mailer that sends them "
    "as fast as it may; they end in the mailbox page, so no mail server slows it. A round in which the queue ran out "
    "ends the run as failed.",
    "Retention: {cleaning_pairs} more pairs, alone and alongside a reconciler that has {old_rows:,} old mails and as "
    "many old acts to delete, and as many buyers of a past sale to forget; what it compares meanwhile is a part of its "
    "cost. A round in which nothing was left to delete or to forget ends the run as failed.",
    f"Sale page: the same page to a reader without cookies over {PAGE_CONNECTIONS} connections, as fast as one process "
    "answers; "
    "alongside it the page rendered by Django for a reader who has a ticket.",
)
