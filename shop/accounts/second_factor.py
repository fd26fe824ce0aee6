"""The second factor of staff: an authenticator's codes (TOTP) or a passkey, and recovery codes that work once each.
Never takes a code twice, never keeps a recovery code in clear, never logs a secret.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django_otp import devices_for_user, verify_token
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

from shop.accounts import sessions
from shop.passkeys.models import Passkey

RECOVERY_CODES = 8
# 66 random bits; digits alone, so that the same field and keyboard takes both kinds of codes.
RECOVERY_DIGITS, GROUP = 20, 4


class Checked(NamedTuple):
    """What became of a code. device: which took it, None for a wrong one; wait_seconds: until the next may be tried."""

    device: TOTPDevice | StaticDevice | None
    wait_seconds: int = 0


def is_satisfied(user: Any) -> bool:
    """Say whether `user`, of a request, has shown a second factor in this session, or this shop asks for none."""
    return not settings.STAFF_SECOND_FACTOR or is_shown(user)


def is_shown(user: Any) -> bool:
    """Say whether `user`, of a request, has shown a second factor in this session."""
    return bool(user.is_verified())


def find_authenticator(user: User) -> TOTPDevice | None:
    """Return the authenticator that `user` has enrolled."""
    return TOTPDevice.objects.filter(user=user, confirmed=True).first()


def passkeys_of(user: User) -> list[Passkey]:
    """Return the passkeys of `user`, the first one first."""
    return list(Passkey.objects.filter(user=user))


def is_set_up(user: User) -> bool:
    """Say whether `user` has an authenticator or a passkey."""
    return find_authenticator(user) is not None or Passkey.objects.filter(user=user).exists()


def describe(user: User) -> str:
    """Return in words what `user` has set up, for an operator."""
    passkeys = len(passkeys_of(user))
    kinds = ["authenticator"] if find_authenticator(user) is not None else []
    kinds += [f"passkeys: {passkeys}"] if passkeys else []
    return f"set up ({', '.join(kinds)})" if kinds else "none"


def remove_passkey(user: User, passkey: Passkey) -> bool:
    """Remove a passkey; return False, and keep it, when it is the only second factor of `user`."""
    with transaction.atomic():
        # Of two that are removed at once, the second one sees that the first is gone.
        User.objects.select_for_update().get(pk=user.pk)
        others = Passkey.objects.filter(user=user).exclude(pk=passkey.pk)
        if find_authenticator(user) is None and not others.exists():
            return False
        passkey.delete()
    return True


def check_code(user: User, typed: str) -> Checked:
    """Try a code of the authenticator, or a recovery code, of `user`. Spaces and hyphens do not matter."""
    code = _digits(typed)
    if len(code) == RECOVERY_DIGITS:
        return _try(user, StaticDevice.objects.filter(user=user).first(), _digest(code))
    return _try(user, find_authenticator(user), code)


def _digits(typed: str) -> str:
    """Return what was typed without spaces and hyphens, '' when that is no number."""
    code = re.sub(r"[\s-]", "", typed)
    return code if code.isascii() and code.isdigit() else ""


def _try(user: User, device: TOTPDevice | StaticDevice | None, token: str) -> Checked:
    """Let django-otp check a token: under the device's row lock, with a pause that doubles after each wrong one.

    What cannot be a code of the authenticator at all is wrong without a pause.
    """
    if device is None or (isinstance(device, TOTPDevice) and len(token) != device.digits):
        return Checked(None)
    taken = verify_token(user, device.persistent_id, token)
    if taken is not None:
        return Checked(taken)
    device.refresh_from_db()
    is_allowed, why = device.verify_is_allowed()
    until: datetime = timezone.now() if is_allowed else why["locked_until"]
    return Checked(None, max(0, round((until - timezone.now()).total_seconds())))


def draft_authenticator(user: User, *, draft_id: int | None) -> TOTPDevice:
    """Return the authenticator that this session is enrolling, by its id, or a new one.

    A key that another session was shown is never enrolled: somebody else may have seen it.
    """
    drafts = TOTPDevice.objects.filter(user=user, confirmed=False)
    if draft_id is not None and (draft := drafts.filter(pk=draft_id).first()):
        return draft
    drafts.delete()
    return TOTPDevice.objects.create(user=user, name="authenticator", confirmed=False)


def enrol(user: User, draft: TOTPDevice, *, code: str) -> tuple[Checked, list[str]]:
    """Enrol `draft` with a code of it, in the place of the one before; return new recovery codes too, in clear."""
    with transaction.atomic():
        checked = _try(user, draft, _digits(code))
        if checked.device is None:
            return checked, []
        TOTPDevice.objects.filter(user=user).exclude(pk=draft.pk).delete()
        checked.device.confirmed = True
        checked.device.save(update_fields=["confirmed"])
        return checked, make_recovery_codes(user)


def make_recovery_codes(user: User) -> list[str]:
    """Replace all recovery codes of `user`; return the new ones, which nobody can read again."""
    numbers = [f"{secrets.randbelow(10**RECOVERY_DIGITS):0{RECOVERY_DIGITS}d}" for _ in range(RECOVERY_CODES)]
    with transaction.atomic():
        device, _ = StaticDevice.objects.get_or_create(user=user, name="recovery codes")
        device.token_set.all().delete()
        StaticToken.objects.bulk_create([StaticToken(device=device, token=_digest(number)) for number in numbers])
    return [" ".join(re.findall(f".{{{GROUP}}}", number)) for number in numbers]


def count_recovery_codes(user: User) -> int:
    """Return how many recovery codes are left."""
    left: int = StaticToken.objects.filter(device__user=user).count()
    return left


def reset(user: User) -> int:
    """Take every device from `user` and end their sessions; return how many devices were set up.

    A session that is left could set up the next authenticator, also from a lost phone.
    """
    devices = list(devices_for_user(user, confirmed=None))
    for device in devices:
        device.delete()
    sessions.end_all(user)
    return sum(device.confirmed for device in devices)


def _digest(number: str) -> str:
    """Return what is kept of a recovery code: as much of its SHA-256 as django-otp's column holds."""
    return hashlib.sha256(number.encode()).hexdigest()[:16]
