"""The eight guards that a mutant switches off, each with all the layers that keep its promise.
Refuses to work under any settings but the tests'.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from inventory.postgres import Cursor
from loadtest.mutants.defences import DEFENCES, DoorGuard
from loadtest.mutants.layers import Constraint, Function, Patch, Script, Text, Trigger

ENOUGH = 10**9
Process = Text | Script | Function
Tables = Constraint | Trigger


@dataclass(frozen=True, kw_only=True)
class Guard:
    """promise: what the guard keeps true. process, tables: its layers in a process, and in the database.

    names: the invariants of the audit of which at least one must be found broken without it.
    """

    promise: str
    process: tuple[Process, ...]
    tables: tuple[Tables, ...] = ()
    names: frozenset[str]

    @property
    def layers(self) -> list[str]:
        """Say what is switched off, layer by layer."""
        return [layer.says for layer in (*self.process, *self.tables)]


def _a_new_id_each_time(real: Callable[..., Any]) -> Callable[..., Any]:
    def request_id(*, idempotency_key: str, **known: Any) -> Any:
        return real(idempotency_key=f"{idempotency_key}:{secrets.token_hex(8)}", **known)

    return request_id


def _without_limits(real: Callable[..., Any]) -> Callable[..., Any]:
    def allocate(claims: Any, *, limits: Any, **known: Any) -> Any:
        return real(claims, limits=dict.fromkeys(limits, ENOUGH), **known)

    return allocate


def _of_endless_stock(real: Callable[..., Any]) -> Callable[..., Any]:
    def allocate(claims: Any, *, available: int, **known: Any) -> Any:
        return real(claims, available=available + ENOUGH, **known)

    return allocate


def _nothing(_real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_arguments, **_known: 0


# These two are switched off alone, too: by the controls of the crash tests.
FENCE_OF_CLAIM = Text(
    says="the comparison of fences when a settler claims the stock row",
    module="inventory.ledger",
    name="CLAIM",
    part=" AND fence <= %(fence)s",
)
SEARCH_FOR_ORDERS = Text(
    says="settlement's search for orders that are there already",
    module="shop.order_rows",
    name="DECIDED",
    part="request_id = ANY(%(request_ids)s::text[])",
    other="request_id = ANY(%(request_ids)s::text[]) AND false",
)
FENCE = Guard(
    promise="who lost the lock writes nothing any more",
    process=(
        FENCE_OF_CLAIM,
        Text(
            says="the same when it holds units", module="inventory.ledger", name="HOLD", part=" AND fence = %(fence)s"
        ),
    ),
    names=frozenset({"I16"}),
)
UNIQUE_ID = Guard(
    promise="a wish is one request, and a request one order",
    process=(
        Function(
            says="one request id for all clicks of a wish, in the API",
            module="shop.gate.purchase",
            name="request_id",
            made=_a_new_id_each_time,
        ),
        Function(
            says="the same in the pages",
            module="inventory.records",
            name="request_id",
            made=_a_new_id_each_time,
        ),
        SEARCH_FOR_ORDERS,
    ),
    tables=(
        Constraint(says="UNIQUE request id of orders", table="shop_order", name="order_once_per_request"),
        Constraint(
            says="UNIQUE request id and kind of movements",
            table="inventory_stockmovement",
            name="movement_once_per_request_and_kind",
        ),
    ),
    names=frozenset({"I3", "I5b", "I14"}),
)
CONDITIONAL_UPDATE = Guard(
    promise="no more units are given than there are",
    process=(
        Script(
            says="who does not fit is not handed out",
            script="take",
            part="elseif state ~= 'over' and units <= available + held then",
            other="elseif false then",
        ),
        Function(
            says="settlement's count of what is free",
            module="workers.settlement",
            name="allocate",
            made=_of_endless_stock,
        ),
        Text(
            says="the condition of the update that holds units",
            module="inventory.ledger",
            name="HOLD",
            part=" AND available >= %(units)s",
        ),
        Text(
            says="the condition of every later update of the stock row",
            module="inventory.ledger",
            name="CHANGE",
            part=" AND available + %(available)s >= 0",
        ),
    ),
    tables=(
        Constraint(
            says="CHECK that what is free is not negative",
            table="inventory_stock",
            name="stock_available_not_negative",
        ),
        Constraint(
            says="the same of the column's type", table="inventory_stock", name="inventory_stock_available_check"
        ),
    ),
    names=frozenset({"I1"}),
)
LIMIT = Guard(
    promise="nobody gets more than the limit",
    process=(
        Script(
            says="the limit at admission",
            script="admit",
            part="if live > limit then",
            other="if false then",
        ),
        Function(
            says="the limit at settlement",
            module="workers.settlement",
            name="allocate",
            made=_without_limits,
        ),
        Text(
            says="the limit at a late payment",
            module="shop.payments.notices",
            name="LIVE_UNITS_OF_BUYER",
            part="sum(quantity)",
            other="sum(0)",
        ),
    ),
    names=frozenset({"I7"}),
)
IN_FLIGHT = Guard(
    promise="what was taken from the line survives who took it",
    process=(
        Script(
            says="the record of what is in flight, as soon as its holder is another",
            script="take",
            part="local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)",
            other="""if string.match(last[1] or '', '^(.*)#') ~= ARGV[1] then redis.call('DEL', KEYS[3]) end
local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)""",
        ),
        Function(
            says="the reconciler's way to put the lost back in line",
            module="inventory.line.writing",
            name="requeue",
            made=_nothing,
        ),
    ),
    names=frozenset({"I4"}),
)
EXPIRY = Guard(
    promise="a hold ends once, when it is due, and only while it is held",
    process=(
        Text(
            says="the sweep's condition: held, and due",
            module="shop.orders.holds",
            name="DUE",
            part="""state = 'held' AND hold_expires_at > statement_timestamp() - make_interval(secs => %(seconds)s)
            AND hold_expires_at <= statement_timestamp()""",
            other="hold_expires_at IS NOT NULL",
        ),
        Text(
            says="the condition of the update that ends holds: still held",
            module="shop.orders.holds",
            name="END",
            part=" AND o.state = 'held'",
        ),
        Text(
            says="the same: due",
            module="shop.orders.holds",
            name="END",
            part="o.hold_expires_at <= clock_timestamp()",
            other="true",
        ),
    ),
    tables=(
        Trigger(
            says="the table of allowed changes of an order",
            function="shop_order_changes",
            part="IF FOUND THEN",
            other="IF false THEN",
        ),
        Constraint(
            says="UNIQUE request id and kind of movements",
            table="inventory_stockmovement",
            name="movement_once_per_request_and_kind",
        ),
        Constraint(
            says="CHECK that what is held is not negative", table="inventory_stock", name="stock_held_not_negative"
        ),
        Constraint(says="the same of the column's type", table="inventory_stock", name="inventory_stock_held_check"),
    ),
    names=frozenset({"I10"}),
)
# Long enough to be no matter of rounding, and short enough that the flood goes on: some still pay in time.
SECONDS_EARLY = 2
HOLD_TIME = Guard(
    promise="a hold lasts as long as its buyer was promised",
    process=(
        Text(
            says="the sweep's condition: due",
            module="shop.orders.holds",
            name="DUE",
            part="hold_expires_at <= statement_timestamp()",
            other=f"hold_expires_at <= statement_timestamp() + interval '{SECONDS_EARLY} s'",
        ),
        Text(
            says="the condition of the update that ends holds: due",
            module="shop.orders.holds",
            name="END",
            part="NOT %(due_only)s OR o.hold_expires_at <= clock_timestamp()",
            other=f"NOT %(due_only)s OR o.hold_expires_at <= clock_timestamp() + interval '{SECONDS_EARLY} s'",
        ),
    ),
    names=frozenset({"I11"}),
)
STANDBY = Guard(
    promise="a unit that comes back goes to those on standby in their order, before anybody new",
    process=(
        Script(
            says="while anybody is on standby nobody new is let in",
            script="admit",
            part="elseif units > admissible or standing > 0 then",
            other="elseif units > admissible then",
        ),
        Script(
            says="the first on standby is looked at first",
            script="take",
            part="redis.call('ZRANGEBYSCORE', KEYS[2], STANDBY, '+inf', ",
            other="redis.call('ZREVRANGEBYSCORE', KEYS[2], '+inf', STANDBY, ",
        ),
    ),
    names=frozenset({"I8"}),
)
GUARDS = {
    "fence": FENCE,
    "unique_id": UNIQUE_ID,
    "conditional_update": CONDITIONAL_UPDATE,
    "limit": LIMIT,
    "in_flight": IN_FLIGHT,
    "expiry": EXPIRY,
    "hold_time": HOLD_TIME,
    "standby": STANDBY,
}


def switch_off(name: str, *, patch: Patch = setattr) -> None:
    """Take the layers of a guard or defence out of this process; patch: as setattr.

    Raises ImproperlyConfigured, MutantUnmade.
    """
    found: Guard | DoorGuard = DEFENCES.get(name) or _guard(name)
    _refuse_outside_tests()
    for layer in found.process:
        layer.take_away(patch)


def switch_off_in_tables(name: str, cursor: Cursor) -> None:
    """Take a guard's layers out of the database of `cursor`, for good. Raises ImproperlyConfigured, MutantUnmade."""
    for layer in _guard(name).tables:
        layer.take_away_from_tables(cursor)


def _guard(name: str) -> Guard:
    _refuse_outside_tests()
    if name not in GUARDS:
        raise ImproperlyConfigured(f"FAIRDROP_MUTANT must be one of {', '.join([*GUARDS, *DEFENCES])}; not {name!r}")
    return GUARDS[name]


def _refuse_outside_tests() -> None:
    if settings.ENVIRONMENT != "test":
        raise ImproperlyConfigured("a guard is switched off under the tests' settings only (FAIRDROP_ENV=test)")
