"""Says what failed logins and passwords given again are counted by; django-axes counts them and refuses.
Never lets what a stranger types at the login count against somebody who is logged in.
"""

from __future__ import annotations

from typing import Any

from axes.handlers.proxy import AxesProxyHandler
from axes.helpers import get_credentials
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

IN_SESSION = "counts_in_session"  # the attribute of a request whose failures count for its session alone


def counted_by(request: HttpRequest, _credentials: Any = None) -> list[str]:
    """Return the parameters of django-axes for a request: an address and an account, each by itself; or a session."""
    return ["username"] if getattr(request, IN_SESSION, False) else ["ip_address", "username"]


def may_try_again(request: HttpRequest) -> bool:
    """Say whether this session may try its password again; if not, the middleware of django-axes answers 429."""
    setattr(request, IN_SESSION, True)
    if AxesProxyHandler.is_allowed(request, _session(request)):
        return True
    request.axes_locked_out = True  # type: ignore[attr-defined]
    return False


def count_wrong_password(request: HttpRequest) -> None:
    """Count a wrong password that was given again in this session."""
    setattr(request, IN_SESSION, True)
    AxesProxyHandler.user_login_failed(count_wrong_password, _session(request), request)


def _session(request: HttpRequest) -> dict[str, Any]:
    """Return as whom a session is counted. Nobody can type it: it is made with a key of this shop."""
    digest = salted_hmac("shop.accounts.limits", request.session.session_key or "").hexdigest()
    credentials: dict[str, Any] = get_credentials(f"{request.user.get_username()}, session {digest}")
    return credentials
