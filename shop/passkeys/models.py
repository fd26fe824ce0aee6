"""The table of passkeys: public keys only, nothing in it is a secret."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django_otp.models import Device


class Passkey(Device):  # type: ignore[misc]  # django-otp has no types
    """A passkey of a member of staff, under a name of their own. The private key never leaves the authenticator.

    sign_count: what the authenticator counted when it was last used; 0 for ever from one that does not count.
    """

    credential_id = models.BinaryField(max_length=1023, unique=True)
    public_key = models.BinaryField(max_length=1023)
    sign_count = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
