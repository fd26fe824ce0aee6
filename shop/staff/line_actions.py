"""What staff do to the line of a sale: dead letters, a comparison, a lock taken away; each is written down first.
Never writes stock; of requests it decides only those it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from django.utils.text import Truncator
from django.utils.translation import gettext

from inventory import reconcile_requests, redis
from inventory.exceptions import InvalidRequest, SaleNotFound
from inventory.line import dead_letters
from inventory.locks import lock
from inventory.locks.report import report_locks
from inventory.records import record_or_none
from shop.models import Sale, StaffAct
from shop.names.sentences import in_words
from shop.orders import holds

MAX_DETAIL_LENGTH = 200


def retry_letters(slug: str, *, letters: Sequence[str], actor: str, reason: str) -> str:
    """Put dead letters back in line where that is truthful; say what became of them.

    Raises SaleNotFound, InvalidRequest, RedisUnavailable.
    """
    return _change_letters(slug, "retry", letters, actor=actor, reason=reason)


def discard_letters(slug: str, *, letters: Sequence[str], actor: str, reason: str) -> str:
    """Refuse dead letters for good and take them off the list; say what became of them. Raises as retry_letters."""
    return _change_letters(slug, "discard", letters, actor=actor, reason=reason)


def change_letters(
    sku: str, request_ids: Sequence[str], *, mode: Literal["retry", "discard"], actor: str
) -> list[dead_letters.Done]:
    """Retry or discard dead letters of `sku`; what is discarded undecided is refused in the database first.

    Raises InvalidRequest, Unavailable: then the list says which are still on it, and a second call does no harm.
    """
    client = redis.connect()
    if mode == "discard":
        for letter in dead_letters.dead_letters(client, sku, request_ids=request_ids):
            record = record_or_none(letter.record)
            if not letter.in_flight and record and record.quantity > 0:
                holds.refuse(letter.request_id, record, sku=sku, actor=actor)
    return dead_letters.change_letters(client, sku, request_ids, mode=mode, actor=actor)


def ask_comparison(slug: str, *, actor: str, reason: str) -> str:
    """Ask the reconciler to compare the SKU of `slug` at once. Raises SaleNotFound, RedisUnavailable."""
    sale = _sale(slug)
    _note(sale, "reconcile", actor=actor, reason=reason, detail=sale.stock.sku)
    reconcile_requests.ask(redis.connect(), sale.stock.sku, actor=actor)
    return gettext("asked; what it finds is shown here as soon as the reconciler has looked")


def take_lock_away(slug: str, *, seen_token: str, actor: str, reason: str) -> str:
    """Take the SKU's lock from the holder that was seen, and from nobody else; say what its fence is now.

    Raises SaleNotFound, InvalidRequest when somebody else holds it by now, or nobody; RedisUnavailable.
    """
    sale = _sale(slug)
    sku, client = sale.stock.sku, redis.connect()
    (held,) = report_locks(client, [sku])
    if not held.token:
        raise InvalidRequest(gettext("nobody holds this lock now; nothing was done"))
    if held.token != seen_token:
        text = gettext(
            "the lock went on to another holder after you had opened this page (%(holder)s); nothing was done"
        )
        raise InvalidRequest(text % {"holder": in_words(held.holder)})
    _note(sale, "force_release", actor=actor, reason=reason, detail=f"from {held.holder}, fence {held.fence}")
    fence = lock.force_release(client, sku, token=seen_token)
    if not fence:  # it went on while the act was written down
        _note(sale, "force_release", actor=actor, reason=reason, detail=f"nothing taken from {held.holder}")
        return take_lock_away(slug, seen_token=seen_token, actor=actor, reason=reason)
    told = {"holder": in_words(held.holder), "fence": fence}
    return gettext("taken from %(holder)s; its fence is now %(fence)s") % told


def _change_letters(
    slug: str, mode: Literal["retry", "discard"], letters: Sequence[str], *, actor: str, reason: str
) -> str:
    sale = _sale(slug)
    if not letters:
        raise InvalidRequest(gettext("name at least one dead letter"))
    _note(sale, f"{mode}_letters", actor=actor, reason=reason, detail=f"{len(letters)}: {' '.join(letters)}")
    done = change_letters(sale.stock.sku, letters, mode=mode, actor=actor)
    failed = [f"{each.request_id}: {gettext(each.reason)}" for each in done if not each.done]
    changed = gettext("%(n)d of %(all)d changed") % {"n": len(done) - len(failed), "all": len(done)}
    return "; ".join([changed, *failed])


def _sale(slug: str) -> Sale:
    sale = Sale.objects.select_related("stock").filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound
    return sale


def _note(sale: Sale, act: str, *, actor: str, reason: str, detail: str) -> None:
    """Write an act down before it happens: Redis is in no transaction, and what was not written must not be done."""
    if not actor:
        raise InvalidRequest("actor must be named")
    told = Truncator(detail).chars(MAX_DETAIL_LENGTH)  # one that does not fit says so: it ends with "…"
    StaffAct.objects.create(sale=sale, act=act, actor=actor, reason=reason, detail=told)
