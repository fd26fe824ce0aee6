"""How long and how often settlement, expiry, payment and the audit are measured: in full, and to see that it works.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.harness.benchmark import REPEATED
from loadtest.bench.load.loader import LoadWindow


@dataclass(frozen=True, kw_only=True)
class Plan:
    """rounds of each measurement; settled, single, expired, audited in orders; payments in calls a second."""

    settle_rounds: int = 5
    settled: int = 15_000
    single: int = 300
    expiry_rounds: int = 5
    expired: int = 10_000
    payment: LoadWindow
    audited: int = 100_000
    audit_rounds: int = 9
    payments_per_second: int = 200
    flood_per_second: int = 1_000


FULL = Plan(payment=LoadWindow(seconds=15.0, warm_up_seconds=2.0, connections=64))
QUICK = Plan(
    settle_rounds=1,
    settled=5_000,
    single=50,
    expiry_rounds=1,
    payment=LoadWindow(seconds=1.5, warm_up_seconds=0.5, connections=64),
    audited=10_000,
    audit_rounds=3,
)
METHOD = (
    "Everything in one run on one machine, with stores of its own and every write on disk before it is answered. "
    "Nothing is bound to a core. Figures are medians of the rounds unless they say otherwise.",
    f"{REPEATED} This holds for rounds of settlement and of expiry.",
    "Settlement: the line is filled by the admission script, then the real settler empties it, {settled:,} requests a "
    "round, each from a network of its own. Each gets a hold, so each is an order, a line of history and a movement of "
    "stock. Its limit: the same rows "
    "copied, 500 to a transaction, into tables with the same columns, indexes and constraints; no lookup, no trigger, "
    "no Redis.",
    "Expiry: {expired:,} holds whose time is over; the clock runs from the start of an expirer that has not looked yet "
    "to the last hold that ended and that Redis was told of. Its limit: the same rows changed and written by plain "
    "statements, 500 to a transaction, in the tables without triggers.",
    "Payment, measured first, on a fresh database: the provider's signed notice, from the first byte sent to the last "
    "of the answer, {payments_per_second} a second for {payment.seconds:g} s. Alongside it {flood_per_second:,} new "
    "buyers a second ask for units of the same SKU, and a settler gives each a hold. Its limits, one after the other "
    "under the same flood at the same pace: a transaction that writes one row, and a call that the web process answers "
    "without a store.",
    "Audit: every invariant of a sale with {audited:,} orders in every stage of their life, {audit_rounds} times. Its "
    "limit: every order, line of history and movement of that sale counted once, by a statement a table.",
    "Afterwards the audit of every sale that was measured must find nothing.",
)
