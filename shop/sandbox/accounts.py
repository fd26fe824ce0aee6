"""The sandbox's books: opens a charge, lets it be paid, declined or given back, and notes each as one event.
Never tells anybody: deliveries.py does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from inventory.exceptions import InvalidRequest
from shop.payments import providers
from shop.payments.providers import Kind, Notice
from shop.sandbox.models import Charge, Event

# How long a slow notice takes; "late" makes all of them late.
SLOW_SECONDS = 5.0
LATE_SECONDS = 2.0

# What may happen to a charge. A declined one may be paid by another card.
ALLOWED: dict[str, frozenset[str]] = {
    "captured": frozenset({Charge.State.OPEN, Charge.State.DECLINED}),
    "declined": frozenset({Charge.State.OPEN}),
    "refunded": frozenset({Charge.State.CAPTURED}),
}


def open_charge(wish: providers.Charge) -> Charge:
    """Return the charge of this reference, making it when there is none. Raises InvalidRequest when it is another."""
    charge, _ = Charge.objects.get_or_create(
        reference=wish.reference,
        defaults=dataclasses.asdict(wish),
    )
    if (charge.amount, charge.currency) != (wish.amount, wish.currency):
        raise InvalidRequest("a charge of this reference has another amount")
    return charge


def capture_new(wish: providers.Charge, *, told_after_seconds: float | None) -> Event | None:
    """Open a charge that is collected in the same moment; return its event, None when the reference is known already.

    One transaction, because a buyer waits for it.
    """
    try:
        with transaction.atomic():
            charge = Charge.objects.create(**dataclasses.asdict(wish), state=Charge.State.CAPTURED)
            return Event.objects.create(charge=charge, kind="captured", due_at=_due(told_after_seconds))
    except IntegrityError:
        return None


def record(reference: str, kind: Kind, *, told_after_seconds: float | None) -> tuple[Event, bool]:
    """Let `kind` happen to a charge; return its latest event and whether it happened now.

    told_after_seconds: when the shop is told; None: never, it has to ask. Raises InvalidRequest when there is no such
    charge, or nothing has happened to it and this cannot, or it is over.
    """
    with transaction.atomic():
        charge = Charge.objects.select_for_update().filter(reference=reference).first()
        if charge is None:
            raise InvalidRequest("there is no such charge")
        if charge.state not in ALLOWED[kind]:
            return _last_event(charge), False
        if kind == "captured" and charge.is_over:
            raise InvalidRequest("it is too late to pay this charge; begin again in the shop")
        charge.state = Charge.State(kind)
        charge.save(update_fields=["state"])
        return Event.objects.create(charge=charge, kind=kind, due_at=_due(told_after_seconds)), True


def find_event(reference: str) -> Event | None:
    """Return what happened last to a charge, None while nothing has."""
    return Event.objects.select_related("charge").filter(charge__reference=reference).order_by("-id").first()


def last_events(moment: datetime) -> Iterator[Event]:
    """Yield what happened last to each charge that was opened since `moment`."""
    events = Event.objects.select_related("charge").filter(charge__created_at__gte=moment)
    yield from events.order_by("charge_id", "-id").distinct("charge_id").iterator(chunk_size=1_000)


def notice_of(event: Event) -> Notice:
    """Return the event as the shop is told it."""
    charge = event.charge
    kind: Kind = event.kind  # type: ignore[assignment]
    return Notice(event.event_id, kind, charge.reference, charge.amount, charge.currency)


def _last_event(charge: Charge) -> Event:
    event = charge.events.order_by("-id").first()
    if event is None:
        raise InvalidRequest("nothing was collected for this charge")
    return event


def _due(after_seconds: float | None) -> Combinable | None:
    if after_seconds is None:
        return None
    if "late" in settings.SANDBOX_MISCHIEF:
        after_seconds += LATE_SECONDS
    # The database's clock, which every sender of notices asks too.
    return Now() + timedelta(seconds=after_seconds)
