"""Does one act of a control room: only with its right, only on what its form had shown, one act of a sale at a time.
Never changes a sale itself: the services do.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.utils import timezone
from django.utils.translation import gettext

from inventory.exceptions import InvalidRequest
from inventory.postgres import TwoKeyAdvisoryLock
from shop.models import Sale, StaffAct
from shop.staff.actions import Act, may
from shop.staff.lists.one_press import alone


def newest_act(sale: Sale) -> StaffAct | None:
    """Return what was last done to `sale`."""
    return StaffAct.objects.filter(sale=sale).first()


def run_act(
    sale: Sale, act: Act, *, user: AbstractBaseUser | AnonymousUser, seen_act: int, values: dict[str, Any]
) -> str:
    """Do `act` and say what came of it. seen_act: id of the newest act when the form was made, 0 for none.

    Raises PermissionDenied, InvalidRequest when something was done since then, and what the service raises.
    """
    if not may(user, act):
        raise PermissionDenied
    with alone(TwoKeyAdvisoryLock.CONTROL_ROOM, sale.pk, what=gettext("another act on this sale")):
        newest = newest_act(sale)
        if newest is not None and newest.pk != seen_act:
            at = timezone.localtime(newest.at).strftime("%H:%M:%S")
            text = gettext(
                "%(actor)s did “%(act)s” at %(time)s, after this form was made, so nothing was done now. "
                "Look at the sale again; if it is still right, confirm once more."
            )
            raise InvalidRequest(text % {"actor": newest.actor, "act": gettext(newest.act), "time": at})
        told = act.service(sale.slug, actor=user.get_username(), **values)
    return told if isinstance(told, str) else gettext("done")
