"""Answers a press that press.js sends: with where it leads, as JSON. A script cannot see where a redirect leads, nor
follow one to the payment page of another host. Never changes what a form without script is answered.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

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
