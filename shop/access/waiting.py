"""A pass for who can solve no challenge: they wait, in a page that reloads itself, and one network is given few.
When a wait began is in a signed text that the browser keeps; the cache counts what each network was given.
"""

from __future__ import annotations

import re

from django.conf import settings
from django.core.cache import cache as counts

from inventory.exceptions import RedisUnavailable
from inventory.redis import clocks
from inventory.signing import signer_for
from shop.access.codes import count_up
from shop.access.passes import Pass, make_pass, signed_of
from shop.sales.catalogue import SaleCard

# So many passes one network is given for waiting, in one sale and one life of a pass.
MAX_OF_A_NETWORK = 10
WAIT = re.compile(r"([0-9]{1,11})\.([A-Za-z0-9_-]{22})", re.ASCII)


def begin_wait(card: SaleCard, *, buyer: str) -> str:
    """Return the text that says that `buyer` waits from now on."""
    began = str(int(clocks.seconds()))
    return f"{began}.{signer_for('wait').sign(signed_of(began, card, buyer=buyer))}"


def seconds_left(wait: str, card: SaleCard, *, buyer: str) -> int | None:
    """Return how long `buyer` has still to wait, 0 when it is over; None for no wait of theirs, or an old one."""
    found = WAIT.fullmatch(wait)
    if found is None or not signer_for("wait").verify(signed_of(found[1], card, buyer=buyer), found[2]):
        return None
    left = int(found[1]) + settings.PASS_WAIT_SECONDS - int(clocks.seconds())
    return max(0, left) if left > -settings.PASS_SECONDS else None


def give_pass(wait: str, card: SaleCard, *, buyer: str, network: str) -> Pass | None:
    """Return the pass for a wait that is over, the same one each time; None when the network was given too many.

    While the cache is away nobody is counted: who waited is let in all the same.
    """
    began = int(wait.partition(".")[0])
    name = f"waited:{card.sale_id}:{network}"
    mine = f"{name}:{wait}"
    if counts.add(mine, 1, timeout=settings.PASS_SECONDS) and _is_too_many(name):
        counts.delete(mine)
        return None
    return make_pass(card, buyer=buyer, proof=wait, until=began + settings.PASS_WAIT_SECONDS)


def _is_too_many(name: str) -> bool:
    try:
        return count_up(name, seconds=settings.PASS_SECONDS) > MAX_OF_A_NETWORK
    except RedisUnavailable:
        return False
