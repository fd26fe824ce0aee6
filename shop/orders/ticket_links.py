"""Makes, checks and replaces the secret link of a request, which opens its ticket in any browser.

A link is a signature over the request and the number of times its link was replaced, so nothing is stored for a request
whose link never was. Never says whose request it is to a caller that does not show a valid link.
"""

from __future__ import annotations

import re
from functools import lru_cache

import segno
from django.db.models import F
from django.db.models.functions import Now
from django.urls import reverse

from inventory.signing import MAC_LENGTH, signer_for
from shop.models import TicketLink

# The number of replacements, and the signature.
SECRET = re.compile(rf"([0-9]{{1,6}})\.([A-Za-z0-9_-]{{{MAC_LENGTH}}})")


def secret_of(request_id: str) -> str:
    """Return the secret part of the link that opens `request_id` now."""
    generation = _generation(request_id)
    return f"{generation}.{signer_for('link').sign(f'{request_id}.{generation}')}"


def link_to(request_id: str, *, root: str) -> str:
    """Return the whole link. root: where the world reaches the shop, without a slash at the end."""
    return root + reverse("ticket-link", args=[request_id, secret_of(request_id)])


def opens(request_id: str, secret: str) -> bool:
    """Say whether `secret` is of the link that opens `request_id` now. A guess is refused without a database read."""
    found = SECRET.fullmatch(secret)
    if found is None or not signer_for("link").verify(f"{request_id}.{found[1]}", found[2]):
        return False
    return int(found[1]) == _generation(request_id)


def replace_link(request_id: str) -> None:
    """Make a new link: the one before, and each browser that was opened by it, is refused from now on."""
    if TicketLink.objects.filter(pk=request_id).update(generation=F("generation") + 1, changed_at=Now()):
        return
    _, is_new = TicketLink.objects.get_or_create(pk=request_id)
    if not is_new:  # another press made the first row in between
        replace_link(request_id)


@lru_cache(maxsize=512)
def qr_code(text: str) -> str:
    """Return `text` as an inline SVG drawing, without a size of its own.

    The mask is fixed: trying all eight for the prettiest pattern takes five times as long, and readers do not need it.
    """
    code = segno.make_qr(text, error="l", boost_error=False, mask=3)
    return code.svg_inline(omitsize=True, svgclass=None, lineclass=None, border=4)


def _generation(request_id: str) -> int:
    return TicketLink.objects.filter(pk=request_id).values_list("generation", flat=True).first() or 0
