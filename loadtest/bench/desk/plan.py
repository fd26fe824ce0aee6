"""How many orders there are: in full, and to see that it works; and how it is measured, in sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured. payments: all but a fifth of them were captured; calls: of each page; forgotten: how
    many buyers one by one.
    """

    sales: int = 2
    orders: int = 100_000
    payments: int = 20_000
    calls: int = 9
    forgotten: int = 9


FULL = Plan()
QUICK = Plan(orders=5_000, payments=1_000, calls=3, forgotten=3)
METHOD = (
    "One web process, Valkey, PostgreSQL. {orders:,} orders of {sales} past sales, with {payments:,} payments, are "
    "written by COPY; statistics of the tables are up to date.",
    "A member of the staff with all rights asks for each page {calls} times, one call after the other over one "
    "connection, and reads it to its end; every call counts.",
    "All orders leave as CSV, once. Memory is what the web process had at most while they left, looked at after each "
    "64 KiB, less what it had before.",
    "Then {forgotten} buyers are forgotten one by one, as `manage.py forget_buyer` does, and after that all others, "
    "whose sales are made to have ended long ago, as the reconciler does, step by step; its rests are left out.",
    "What bounds it: the reader, the web process and PostgreSQL share the machine's cores.",
)
