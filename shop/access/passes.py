"""Signs passes and reads them. A pass names when it ends and an id of its own; its signature binds it to one sale and
one buyer. That it lets in one request alone is kept by the admission script. Never stores anything.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from django.conf import settings

from inventory.exceptions import FairdropError, PassRequired
from inventory.line.admission import NO_PASS
from inventory.redis import clocks
from inventory.signing import mac_text, signer_for
from shop.access.rush import RUSHES, asks_for_pass
from shop.models import Sale
from shop.sales.catalogue import SaleCard

# p: work was done for it, or its buyer waited; c: it was given in a calm, and is good only in one.
PROVED, CALM = "p", "c"
PASS = re.compile(r"([pc])([0-9]{1,11})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{22})", re.ASCII)
NOT_OURS = "This is not a pass of yours for this sale."


class Pass(NamedTuple):
    """A pass as a buyer is given it. expires_at: whole seconds since 1970."""

    text: str
    expires_at: int

    def shown(self) -> dict[str, str]:
        """Return it as the contract shows it."""
        return {"pass": self.text, "expires_at": datetime.fromtimestamp(self.expires_at, UTC).isoformat()}


class AccessCheck(NamedTuple):
    """What a request's pass, e-mail or code is worth.

    pass_id, entry, early: as an Ask has them; refusal: what to say if it is needed.
    """

    pass_id: str
    refusal: FairdropError | None = None
    entry: str = ""
    early: str = ""


NOT_ASKED = AccessCheck("")


def make_pass(card: SaleCard, *, buyer: str, proof: str, until: int, kind: str = PROVED) -> Pass:
    """Return the pass of `buyer` for what they showed; the same proof gives the same id, whatever keys are rotated.

    proof: a text that nobody can make up; until: the seconds since 1970 from which the life of the pass counts.
    """
    expires_at = until + settings.PASS_SECONDS
    text = f"{kind}{expires_at}.{mac_text(card.request_id_key(), f'pass {buyer} {proof}')}"
    return Pass(f"{text}.{signer_for('pass').sign(signed_of(text, card, buyer=buyer))}", expires_at)


def make_calm_pass(card: SaleCard, *, buyer: str) -> Pass:
    """Return the pass of a sale that asks for none now. Raises PassRequired when it does."""
    if asks_for_pass(card):
        raise PassRequired
    now = int(clocks.seconds())
    return make_pass(card, buyer=buyer, proof=str(now), until=now, kind=CALM)


def check(text: str, card: SaleCard, *, buyer: str) -> AccessCheck:
    """Return what the pass that came with a request is worth, and count the request; '' when none came.

    Whether it is refused the admission script says: who is in line already needs no pass.
    """
    if card.pass_mode == Sale.PassMode.NEVER:
        return NOT_ASKED
    if card.pass_mode == Sale.PassMode.RUSH:
        RUSHES.note_ask(card)
        if not asks_for_pass(card):
            return NOT_ASKED
    try:
        return AccessCheck(_id_of(text, card, buyer=buyer))
    except PassRequired as error:
        return AccessCheck(NO_PASS, error)


def _id_of(text: str, card: SaleCard, *, buyer: str) -> str:
    """Return the id of a good pass. Raises PassRequired: missing, forged, another's, calm or over."""
    if not text:
        raise PassRequired
    found, signed = PASS.fullmatch(text), signed_of(text.rpartition(".")[0], card, buyer=buyer)
    # One word for all that the signature does not bear out: nobody learns from it what was wrong.
    if found is None or not signer_for("pass").verify(signed, found[4]):
        raise PassRequired(NOT_OURS)
    if int(found[2]) <= clocks.seconds():
        raise PassRequired("This pass has ended: get a new one.")
    if found[1] == CALM:
        raise PassRequired("This pass was given without a proof, before many came: solve the challenge.")
    return found[3]


def signed_of(text: str, card: SaleCard, *, buyer: str) -> str:
    """Return what is signed, of a pass or the like that says `text`: it is good in one sale and for one buyer alone."""
    return f"{text} {card.sale_id} {buyer}"
