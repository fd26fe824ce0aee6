"""Keeps pictures in Django's storage under names of their own, and deletes what no product names any more.
Never takes a name from a person, and writes and deletes only after the commit that says so.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import structlog
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction

from shop.models import Product

FOLDER = "pictures/"
KEPT = re.compile(r"pictures/([0-9a-f]{32}\.webp)")

log = structlog.get_logger(__name__)


def is_kept(path: str) -> bool:
    """Say whether `path` names a picture that was uploaded, not one among the static files."""
    return KEPT.fullmatch(path) is not None


def name_picture() -> str:
    """Return the path of a new picture."""
    return f"{FOLDER}{secrets.token_hex(16)}.webp"


def settle_picture(product: Product, *, before: str, content: bytes, complain: Callable[[], None]) -> None:
    """After the commit of this transaction: write `content` under the path that `product` names, if there is some, and
    delete the picture from `before`.

    before: the path in the product's row until now. complain: is called when the storage refused; the product then has
    the picture from before.
    """

    def settle() -> None:
        if content and not _write(product.picture, content):
            Product.objects.filter(pk=product.pk, picture=product.picture).update(picture=before)
            complain()
        elif before != product.picture:
            _delete(before)

    transaction.on_commit(settle)


def forget_picture(product: Product) -> None:
    """Delete the picture of `product`, which is deleted, after the commit of this transaction."""
    path = product.picture
    transaction.on_commit(lambda: _delete(path))


def _write(path: str, content: bytes) -> bool:
    try:
        default_storage.save(path, ContentFile(content))
    except OSError as error:
        log.error("picture not kept", action="picture_not_kept", path=path, error=repr(error))
        return False
    return True


def _delete(path: str) -> None:
    if not is_kept(path):
        return
    try:
        default_storage.delete(path)
    except OSError as error:
        log.error("old picture not deleted", action="picture_not_deleted", path=path, error=repr(error))
