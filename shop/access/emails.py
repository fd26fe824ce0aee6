"""Says what stands for an e-mail address, makes the codes that are mailed to it, and signs what proves that its buyer
read one. Never stores or logs an address, and never says anything of one to who cannot read its mails.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from django.conf import settings
from django.core.cache import cache as counts
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from inventory.exceptions import EmailRequired, GuessesLimited, InvalidRequest, NotListed
from inventory.line.admission import NO_EMAIL, NO_PASS
from inventory.redis import clocks
from inventory.signing import mac_text, signer_for
from shop.access import lists
from shop.access.codes import DIGITS, GUESS_SECONDS, MAX_GUESSES, count_up, digits_of
from shop.access.passes import AccessCheck, signed_of
from shop.models import Sale
from shop.sales.catalogue import SaleCard

MAX_ADDRESS_LENGTH = 254
# One mailbox of these is reached with dots anywhere in its name, and by both domains.
DOTLESS = {"gmail.com": "gmail.com", "googlemail.com": "gmail.com"}
# A code is that of the quarter of an hour in which it was asked for, and good until the end of the next one: 40 bits.
CODE_SECONDS, CODE_LENGTH = 900, 8
# So many wrong codes one buyer may send in one sale and GUESS_SECONDS; their network as many as of access codes.
MAX_GUESSES_OF_BUYER = 10
PROOF_SECONDS = 7 * 24 * 3600
# When it ends, the entry, the list on which the address stood if it did, the signature.
PROOF = re.compile(r"([0-9]{1,11})\.([A-Za-z0-9_-]{22})(?:\.([A-Za-z0-9_-]{6}))?\.([A-Za-z0-9_-]{22})", re.ASCII)
NOT_GOOD = "This is not the code that was mailed for this address, or it has ended."


class EmailProof(NamedTuple):
    """What proves that a buyer reads an address. expires_at: whole seconds since 1970; is_listed: on its list."""

    text: str
    expires_at: int
    is_listed: bool = False

    def shown(self) -> dict[str, str]:
        """Return it as the contract shows it."""
        return {"proof": self.text, "expires_at": datetime.fromtimestamp(self.expires_at, UTC).isoformat()}


def normalise(address: str) -> str:
    """Return the one writing of a mailbox, by which it is counted: docs/operations.md says why.

    Raises InvalidRequest for what is no address.
    """
    address = address.strip()
    try:
        validate_email(address)
        local, _, domain = address.lower().rpartition("@")
        domain = domain.encode("idna").decode()
    except (ValidationError, UnicodeError):
        raise InvalidRequest("this is not an e-mail address") from None
    if len(address) > MAX_ADDRESS_LENGTH:
        raise InvalidRequest(f"an e-mail address has at most {MAX_ADDRESS_LENGTH} characters")
    # A quoted name can be written in any number of ways, and so can the number of a machine.
    if local.startswith('"') or domain.startswith("["):
        raise InvalidRequest("an e-mail address with quotes or of a machine's number is not taken")
    local = local.partition("+")[0] or local
    if domain in DOTLESS:
        local, domain = local.replace(".", ""), DOTLESS[domain]
    return f"{local}@{domain}"


def entry_of(address: str, card: SaleCard) -> str:
    """Return what stands for a normalised address in one sale; with the sale's own key, so no rotation changes it."""
    return mac_text(card.request_id_key(), f"e-mail {address}")


def code_for(address: str, card: SaleCard, *, buyer: str) -> str:
    """Return the code that is mailed now to a normalised address: of this sale, and good for this buyer alone."""
    code = next(_good_codes(address, card, buyer=buyer))
    return f"{code[:4]}-{code[4:]}"


def redeem(code: str, card: SaleCard, *, address: str, buyer: str, network: str) -> EmailProof:
    """Return the proof of `buyer` for the code that was mailed to `address`.

    Reads the database where the sale has a list. Raises EmailRequired for one that is wrong or over, NotListed where
    the address may not enter at any time, GuessesLimited, RedisUnavailable, InvalidRequest for what is no address.
    """
    normalised = normalise(address)
    bounds = ((network, MAX_GUESSES), (buyer, MAX_GUESSES_OF_BUYER))
    guesses = {f"mailcodes:{card.sale_id}:{of}": most for of, most in bounds}
    # Counted before it is looked at: else any number at once would be under the bound.
    if any(count_up(name, seconds=GUESS_SECONDS) > most for name, most in guesses.items()):
        raise GuessesLimited
    typed = digits_of(code).encode("utf-8", "replace")
    good = [hmac.compare_digest(each.encode(), typed) for each in _good_codes(normalised, card, buyer=buyer)]
    if not any(good):
        raise EmailRequired(NOT_GOOD)
    for name in guesses:
        with suppress(ValueError):  # its time is over
            counts.decr(name)
    listed = bool(card.email_list) and lists.is_listed(normalised, card)
    if card.email_list and not listed and card.public_at is None:
        raise NotListed
    return make_proof(normalised, card, buyer=buyer, is_listed=listed)


def make_proof(address: str, card: SaleCard, *, buyer: str, is_listed: bool = False) -> EmailProof:
    """Return the proof that `buyer` reads a normalised address. It names when it ends, and not the address."""
    expires_at = int(clocks.seconds()) + PROOF_SECONDS
    text = f"{expires_at}.{entry_of(address, card)}" + (f".{card.email_list}" if is_listed else "")
    signature = signer_for("e-mail proof").sign(signed_of(text, card, buyer=buyer))
    return EmailProof(f"{text}.{signature}", expires_at, is_listed)


def check(text: str, card: SaleCard, *, buyer: str, sent: AccessCheck) -> AccessCheck:
    """Return what the proof that came with a request is worth, on top of `sent`, what its pass is.

    Asks no store. Whether it is refused the admission script says: a request that is in line needs no proof.
    """
    if card.email_mode == Sale.EmailMode.NEVER or sent.pass_id == NO_PASS:
        return sent
    found, signed = PROOF.fullmatch(text), signed_of(text.rpartition(".")[0], card, buyer=buyer)
    # One word for all that the signature does not bear out: nobody learns from it what was wrong.
    if found is None or not signer_for("e-mail proof").verify(signed, found[4]):
        return AccessCheck(NO_EMAIL, EmailRequired())
    if int(found[1]) <= clocks.seconds():
        return AccessCheck(NO_EMAIL, EmailRequired("This proof of an e-mail address has ended: get a new code."))
    if card.email_list and found[3] != card.email_list:
        if card.public_at is None:
            return AccessCheck(NO_EMAIL, NotListed())
        sent = sent._replace(refusal=NotListed(), early=NO_EMAIL)
    return sent._replace(entry=f"@{found[2]}") if card.email_mode == Sale.EmailMode.ONCE else sent


def _good_codes(address: str, card: SaleCard, *, buyer: str) -> Iterator[str]:
    """Yield the codes that are good now, the one that is mailed first: of this period and the last, with each key."""
    period = int(clocks.seconds()) // CODE_SECONDS
    for each in (period, period - 1):
        for key in settings.TOKEN_KEYS:
            secret = hmac.digest(key.encode(), b"e-mail code", "sha256")
            digest = hmac.digest(secret, f"{each} {card.sale_id} {buyer} {address}".encode(), "sha256")
            yield "".join(DIGITS[byte % len(DIGITS)] for byte in digest[:CODE_LENGTH])
