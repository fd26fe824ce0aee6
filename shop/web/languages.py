"""Chooses the language of a page: the reader's own choice, else what the browser asks for, else English.
Never guesses from an address. The pages and the gate must agree on the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation.trans_real import parse_accept_lang_header
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

# Each by its own name, so that who cannot read the page still finds theirs.
LANGUAGES = {"en": "English", "zh-hans": "简体中文"}
LANGUAGE_COOKIE = f"{settings.COOKIE_PREFIX}language"
COOKIE_MAX_AGE_SECONDS = 365 * 24 * 3600
FALLBACK = "en"
QUANTITY = re.compile(r"[0-9]{1,4}", re.ASCII)
# A reader who asks for Chinese without naming a script, or for a place where this one is written.
ALIASES = {"zh": "zh-hans", "zh-cn": "zh-hans", "zh-sg": "zh-hans", "zh-hans-cn": "zh-hans", "zh-hans-sg": "zh-hans"}


@lru_cache(maxsize=512)
def best_language(chosen: str, accepted: str) -> str:
    """Return the code of the language to show. chosen: the cookie; accepted: the header Accept-Language."""
    if chosen in LANGUAGES:
        return chosen
    for wanted, _quality in parse_accept_lang_header(accepted[:500].lower()):
        code = ALIASES.get(wanted, wanted)
        if code not in LANGUAGES:
            code = code.partition("-")[0]
        # Traditional script is another one: its readers get English rather than a wrong guess.
        if code in LANGUAGES:
            return code
    return FALLBACK


def language_of(request: HttpRequest) -> str:
    """Return the language for a request."""
    return best_language(request.COOKIES.get(LANGUAGE_COOKIE, ""), request.headers.get("Accept-Language", ""))


def in_language_of(request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
    """Return what `view` answers, written in the language for `request`."""
    with translation.override(language_of(request)):
        response = view()
        return response.render() if isinstance(response, SimpleTemplateResponse) else response


# Another site that makes somebody's page English does no harm, and the cached pages carry no token.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def choose(request: HttpRequest) -> HttpResponse:
    """Remember a reader's choice and lead back to the page they were on. A GET, after a press was refused, only leads.

    The buttons of a sale's page send its form along, so that the quantity chosen there stays as it is; not where it has
    a field for a code: Enter in that would press the first button of the form, which is one of these.
    """
    back, quantity = request.POST.get("next") or request.GET.get("next", ""), request.POST.get("quantity", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None) or not back.startswith("/"):
        back = "/"
    kept = f"?quantity={quantity}" if QUANTITY.fullmatch(quantity) else ""
    response = HttpResponseRedirect(back + kept, status=303)
    code = request.POST.get("language", "")
    if code in LANGUAGES:
        response.set_cookie(
            LANGUAGE_COOKIE,
            code,
            max_age=COOKIE_MAX_AGE_SECONDS,
            secure=settings.BEHIND_TLS,
            httponly=True,
            samesite="Lax",
        )
    return response
