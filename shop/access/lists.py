"""Keeps which e-mail addresses may enter a sale, as HMACs alone, and says whether one is among them. A buyer who has
not shown that they read an address must never be told.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext

from inventory.exceptions import InvalidRequest
from shop.models import ListedEmail, Sale
from shop.sales.catalogue import SaleCard

MAX_ADDRESSES = 50_000
ROWS = 1_000


def put_list(sale_id: int, addresses: Iterable[str], *, replaces: bool) -> int:
    """Put normalised addresses on the list of a sale, instead of those there are or besides; return how many there are.

    A proof is good for the list under which it was made: who proved an address before must prove it again, unless the
    list there is grows. Raises InvalidRequest.
    """
    # Made before the transaction: PostgreSQL ends one that idles.
    digests = [[*_digests(sale_id, address)] for address in dict.fromkeys(addresses)]
    with transaction.atomic():
        sale = _locked(sale_id)
        rows = ListedEmail.objects.filter(sale_id=sale_id)
        if replaces:
            rows.delete()
        elif len(settings.TOKEN_KEYS) > 1:  # what an older key made stands for the same address
            older = [digest for _, *rest in digests for digest in rest]
            for start in range(0, len(older), ROWS):
                rows.filter(digest__in=older[start : start + ROWS]).delete()
        for start in range(0, len(digests), ROWS):  # in one call, all would be made while the transaction idles
            new = [ListedEmail(sale_id=sale_id, digest=digest) for digest, *_ in digests[start : start + ROWS]]
            ListedEmail.objects.bulk_create(new, ignore_conflicts=True)
        if (count := rows.count()) > MAX_ADDRESSES:
            raise InvalidRequest(gettext("A list has at most %(n)d addresses.") % {"n": MAX_ADDRESSES})
        if replaces or not sale.email_list:
            sale.email_list = secrets.token_urlsafe(4)
            sale.save(update_fields=["email_list"])
    return count


def drop_list(sale_id: int) -> None:
    """Let any address enter a sale. Raises InvalidRequest."""
    with transaction.atomic():
        sale = _locked(sale_id)
        if sale.public_at and not sale.codes_required:
            raise InvalidRequest(gettext("Everybody may come only later: take that moment out of its form first."))
        ListedEmail.objects.filter(sale_id=sale_id).delete()
        sale.email_list = ""
        sale.save(update_fields=["email_list"])


def is_listed(address: str, card: SaleCard) -> bool:
    """Say whether a normalised address is on the list of a sale; reads the database."""
    return ListedEmail.objects.filter(sale_id=card.sale_id, digest__in=list(_digests(card.sale_id, address))).exists()


def _locked(sale_id: int) -> Sale:
    # Not the key: settlement inserts orders of this sale meanwhile.
    sale = Sale.objects.select_for_update(no_key=True).get(pk=sale_id)
    if sale.retired_at is not None:
        raise InvalidRequest(gettext("This sale is retired; nothing about it can be changed."))
    if sale.email_mode == Sale.EmailMode.NEVER:
        raise InvalidRequest(gettext("This sale asks for no verified e-mail yet: choose it in its form first."))
    return sale


def _digests(sale_id: int, address: str) -> Iterator[str]:
    """Yield the HMAC of a normalised address with each key, the first key's first. Not with the sale's own key: it
    stands in the same database, and who reads both could try addresses.
    """
    for key in settings.TOKEN_KEYS:
        secret = hmac.digest(key.encode(), b"listed address", "sha256")
        yield hmac.digest(secret, f"{sale_id} {address}".encode(), "sha256").hex()
