"""Refuses a press of another site, and answers one that press.js sends with where it leads, as JSON: a script cannot
see where a redirect leads, nor follow one to another host. Never changes what a form without script is answered.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from shop.http import check_origin

JSON = "application/json"


def answer_press(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return `response`, or for a script that was to be redirected the address as `location`, with the same cookies."""
    leads = request.method == "POST" and "Location" in response
    if not leads or request.headers.get("Accept") != JSON:
        return response
    told = JsonResponse({"location": response["Location"]})
    if "X-Request-ID" in response:
        told["X-Request-ID"] = response["X-Request-ID"]
    told.cookies = response.cookies
    return told


def refuse_foreign_press(request: HttpRequest) -> None:
    """Raise ForbiddenOrigin for a press that another site made, or that does not say where it was made."""
    names = {b"origin": "Origin", b"sec-fetch-site": "Sec-Fetch-Site", b"host": "Host"}
    said = {key: request.headers[name].encode("latin-1") for key, name in names.items() if name in request.headers}
    check_origin(said, required=True)
