"""Sets a passkey up and checks one that is shown; what the browser answers is judged by py_webauthn.
A challenge belongs to one session, works once and ends; address and name of this shop come from FAIRDROP_PUBLIC_URL and
never from a request. Every answer must say that the authenticator verified its owner.

Source: https://www.w3.org/TR/webauthn-3/, sections 7.1 and 7.2.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.core.cache import caches
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from shop.passkeys.models import Passkey

# py_webauthn is imported where it is used: it takes a sixth of a process's start, and most processes never need it.
if TYPE_CHECKING:
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")
CHALLENGE_BYTES = 32
MAX_CHALLENGE_SECONDS = 300


class Ceremony(StrEnum):
    """Each has a challenge of its own in the session, under this name."""

    CREATE = "passkey_create"
    SHOW = "passkey_show"


def are_offered() -> bool:
    """Say whether this shop has a name to which a browser binds a passkey: FAIRDROP_PUBLIC_URL, and no bare address."""
    host = urlsplit(settings.PUBLIC_URL).hostname
    try:
        ip_address(host or "")
    except ValueError:
        return bool(host)
    return False


def creation_options(user: User, session: SessionBase) -> str:
    """Return what `navigator.credentials.create` takes, as JSON, with a new challenge in `session`."""
    import webauthn
    from webauthn.helpers import structs

    options = webauthn.generate_registration_options(
        rp_id=_host(),
        rp_name=settings.OTP_TOTP_ISSUER,
        user_id=salted_hmac("shop.passkeys", str(user.pk), algorithm="sha256").digest(),
        user_name=user.get_username(),
        challenge=_new_challenge(session, Ceremony.CREATE),
        timeout=MAX_CHALLENGE_SECONDS * 1000,
        exclude_credentials=_known(user),
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            user_verification=structs.UserVerificationRequirement.REQUIRED,
            resident_key=structs.ResidentKeyRequirement.PREFERRED,
        ),
    )
    return webauthn.options_to_json(options)


def request_options(user: User, session: SessionBase) -> str:
    """Return what `navigator.credentials.get` takes, as JSON, with a new challenge in `session`."""
    import webauthn
    from webauthn.helpers import structs

    options = webauthn.generate_authentication_options(
        rp_id=_host(),
        challenge=_new_challenge(session, Ceremony.SHOW),
        timeout=MAX_CHALLENGE_SECONDS * 1000,
        allow_credentials=_known(user),
        user_verification=structs.UserVerificationRequirement.REQUIRED,
    )
    return webauthn.options_to_json(options)


def create(user: User, session: SessionBase, *, answer: str, name: str) -> Passkey | None:
    """Keep a new passkey of `user` under `name`; None when the answer is not to be believed.

    answer: what the browser gave, as JSON.
    """
    import webauthn

    challenge = _take_challenge(session, Ceremony.CREATE)

    def verify() -> Passkey:
        made = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=_host(),
            expected_origin=_origin(),
            require_user_verification=True,
        )
        return Passkey(
            user=user,
            name=name,
            credential_id=made.credential_id,
            public_key=made.credential_public_key,
            sign_count=made.sign_count,
        )

    passkey = _judged(user, verify) if challenge else None
    try:
        with transaction.atomic():
            if passkey is not None:
                passkey.save()
    except IntegrityError:  # somebody has it already
        return None
    return passkey


def check(user: User, session: SessionBase, *, answer: str) -> Passkey | None:
    """Return the passkey of `user` that the browser's answer shows, used now; None when it is not to be believed."""
    import webauthn
    from webauthn.helpers import parse_authentication_credential_json

    challenge = _take_challenge(session, Ceremony.SHOW)
    shown = _judged(user, lambda: parse_authentication_credential_json(answer)) if challenge else None
    if shown is None:
        return None
    with transaction.atomic():
        # Locked: of two answers with the same count only the first is taken.
        found = Passkey.objects.select_for_update().filter(user=user, credential_id=shown.raw_id)
        passkey: Passkey | None = found.first()
        if passkey is None:
            return None
        used = _judged(
            user,
            lambda: webauthn.verify_authentication_response(
                credential=shown,
                expected_challenge=challenge,
                expected_rp_id=_host(),
                expected_origin=_origin(),
                credential_public_key=bytes(passkey.public_key),
                credential_current_sign_count=passkey.sign_count,
                require_user_verification=True,
            ),
        )
        if used is None:
            return None
        passkey.sign_count, passkey.used_at = used.new_sign_count, timezone.now()
        passkey.save(update_fields=["sign_count", "used_at"])
        return passkey


def _host() -> str:
    return urlsplit(settings.PUBLIC_URL).hostname or ""


def _origin() -> str:
    parts = urlsplit(settings.PUBLIC_URL)
    return f"{parts.scheme}://{parts.netloc}"


def _known(user: User) -> list[PublicKeyCredentialDescriptor]:
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

    ids = Passkey.objects.filter(user=user).values_list("credential_id", flat=True)
    return [PublicKeyCredentialDescriptor(id=bytes(each)) for each in ids]


def _new_challenge(session: SessionBase, ceremony: Ceremony) -> bytes:
    """Note a new challenge in the session, in the place of the one before."""
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    session[ceremony] = [challenge.hex(), time.time()]
    return challenge


def _take_challenge(session: SessionBase, ceremony: Ceremony) -> bytes:
    """Return the session's challenge and forget it; b"" when there is none, it is too old, or it was taken already."""
    challenge, made_at = session.pop(ceremony, ("", 0.0))
    if time.time() - made_at >= MAX_CHALLENGE_SECONDS:
        return b""
    # Two requests of one session may both have read it: only one of them notes it first.
    digest = hashlib.sha256(challenge.encode()).hexdigest()
    is_first = caches["logins"].add(f"passkey-{digest}", True, timeout=MAX_CHALLENGE_SECONDS)
    return bytes.fromhex(challenge) if is_first else b""


def _judged(user: User, verify: Callable[[], Answer]) -> Answer | None:
    """Return what `verify` makes of an answer, None when it refuses it."""
    try:
        return verify()
    except Exception as error:  # what is not an answer at all ends in many kinds of them, of several libraries
        log.warning("passkey refused", action="passkey_refused", account=user.get_username(), error=str(error))
        return None
