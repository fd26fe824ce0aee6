"""Makes access codes and counts what they are shown for, in the database: a Redis that was lost gives no use back.
A code has 60 random bits, and only its HMAC is kept. Never says whether a code that is not good was ever one.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.cache import cache as counts
from django.db import IntegrityError, transaction
from django.db.models import F

from inventory import redis
from inventory.exceptions import CodeRequired, EmailUsed, FairdropError, GuessesLimited, RedisUnavailable
from inventory.line import reading
from inventory.line.admission import NO_CODE, NO_EMAIL, NO_PASS, Code
from inventory.redis import clocks
from shop.access.passes import AccessCheck
from shop.models import AccessCode, CodeUse
from shop.sales.catalogue import SaleCard

# Crockford's digits: none of them is taken for another one.
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH, GROUP = 12, 4
MISREAD = str.maketrans("OILU", "011V", "- ")
WRITTEN = re.compile(rf"[{DIGITS}]{{{LENGTH}}}")
MAX_TYPED = 40
# The key of no row of the database.
NO_ROW = 0
EARLY_SECONDS = 2.0
# So many wrong codes one network may send in one sale and so many seconds.
MAX_GUESSES, GUESS_SECONDS = 50, 600
FEWER = "This request used its code for fewer units. Ask for as many as before."
NOT_GOOD = "This is not a code for this sale, or it has been used up. Nothing was asked for."
# The answers of the admission script that say that something was not shown.
NOT_SHOWN = (Code.PASS_REQUIRED, Code.CODE_REQUIRED, Code.EMAIL_REQUIRED)


def make_codes(sale_id: int, *, number: int, uses: int, counts_units: bool, batch: str) -> list[str]:
    """Make `number` new codes of `uses` each, and return them: this is the only time that anybody sees them."""
    made = [_new_code() for _ in range(number)]
    AccessCode.objects.bulk_create(
        (
            AccessCode(
                sale_id=sale_id,
                digest=_digests(sale_id, digits_of(code))[0],
                counts_units=counts_units,
                uses=uses,
                left=uses,
                batch=batch,
            )
            for code in made
        ),
        batch_size=1_000,
    )
    return made


def check(text: str, card: SaleCard, *, request_id: str, quantity: int, network: str, sent: AccessCheck) -> AccessCheck:
    """Return what the code that came with a request is worth: `sent`, what its pass and e-mail are, when it is good.

    Reads and writes the database unless one of them already stands in the way: a request that cannot get in for its
    e-mail uses no code. Whether it is refused the admission script says: a request that is in line needs no code.
    Raises GuessesLimited, RedisUnavailable.
    """
    if sent.pass_id in (NO_PASS, NO_EMAIL) or sent.early:
        return sent
    now = clocks.now()
    # Well before the opening the line lets nobody in, and once it is everybody's none is needed: nothing is counted.
    if not text or (card.opens_at - now).total_seconds() > EARLY_SECONDS or card.is_public(now):
        return lacking(sent, card, CodeRequired())
    if (is_enough := _used_for(quantity, card, request_id=request_id)) is not None:
        return sent if is_enough else lacking(sent, card, CodeRequired(FEWER))
    guesses = f"guesses:{card.sale_id}:{network}"
    if (counts.get(guesses) or 0) >= MAX_GUESSES:
        raise GuessesLimited
    if sent.entry and _let_another_in(sent.entry, card, request_id=request_id):
        return lacking(sent, card, EmailUsed())
    if _use(text, card, request_id=request_id, quantity=quantity):
        return sent
    count_up(guesses, seconds=GUESS_SECONDS)
    return lacking(sent, card, CodeRequired(NOT_GOOD))


def lacking(sent: AccessCheck, card: SaleCard, refusal: FairdropError) -> AccessCheck:
    """Return `sent` without a good code; in a presale the line's clock says whether it is needed."""
    if card.public_at is None:
        return AccessCheck(NO_CODE, refusal)
    return sent._replace(refusal=refusal, early=NO_CODE)


def _let_another_in(entry: str, card: SaleCard, *, request_id: str) -> bool:
    return reading.let_in_by(redis.connect(), card.sku, sale_id=card.sale_id, entry=entry) not in ("", request_id)


def _used_for(quantity: int, card: SaleCard, *, request_id: str) -> bool | None:
    """Say whether what a request has used of a code is enough for `quantity`; None when it has used none."""
    uses = CodeUse.objects.filter(request_id=request_id, code__sale_id=card.sale_id)
    found = uses.values_list("uses", "code__counts_units").first()
    return None if found is None else found[0] >= quantity or not found[1]


def _use(text: str, card: SaleCard, *, request_id: str, quantity: int) -> bool:
    """Count a use of the code `text` for a request; say False, and count nothing, when it is none or has too few left.

    The same request again finds its use, also when both come in the same instant.
    """
    plain = digits_of(text)
    if not WRITTEN.fullmatch(plain):
        return False
    found = AccessCode.objects.filter(sale_id=card.sale_id, digest__in=_digests(card.sale_id, plain)).first()
    # A code that was never made takes the statements of a spent one: the time of a refusal must not tell them apart.
    pk, uses = (found.pk, quantity if found.counts_units else 1) if found is not None else (NO_ROW, 1)
    try:
        with transaction.atomic():
            if not AccessCode.objects.filter(pk=pk, left__gte=uses).update(left=F("left") - uses):
                return False
            CodeUse.objects.create(code_id=pk, request_id=request_id, uses=uses)
    except IntegrityError:
        return bool(_used_for(quantity, card, request_id=request_id))
    return True


def count_up(name: str, *, seconds: int) -> int:
    """Count one more below `name`, which is forgotten so many seconds after the first; return how many there are.

    Raises RedisUnavailable: what cannot be counted has no bound.
    """
    if _answered(counts.add(name, 1, timeout=seconds)):
        return 1
    try:
        return int(_answered(counts.incr(name)))
    except ValueError:  # it ended a moment ago
        return count_up(name, seconds=seconds)


def _answered(answer: Any) -> Any:
    """Return what the cache answered; None is all that it says when it is away, or full. Raises RedisUnavailable."""
    if answer is None:
        raise RedisUnavailable
    return answer


def _new_code() -> str:
    digits = "".join(secrets.choice(DIGITS) for _ in range(LENGTH))
    return "-".join(digits[at : at + GROUP] for at in range(0, LENGTH, GROUP))


def digits_of(text: str) -> str:
    """Return a code as it is hashed: without hyphens and spaces, and with what is easily misread."""
    return text[:MAX_TYPED].upper().translate(MISREAD)


def _digests(sale_id: int, plain: str) -> Sequence[str]:
    """Return the HMAC of a code with each key, the first key's first: a code outlives a rotation of keys."""
    keys = (hmac.digest(key.encode(), b"access code", "sha256") for key in settings.TOKEN_KEYS)
    return [hmac.digest(key, f"{sale_id} {plain}".encode(), "sha256").hex() for key in keys]
