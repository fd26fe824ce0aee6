"""Gives browsers the pictures that were uploaded. Never looks for a name that the shop did not make itself, and never
sends anything as another type than the one that all of them have.
"""

from __future__ import annotations

from django.core.files.storage import default_storage
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from shop.pictures.keeping import FOLDER

HEADERS = {
    # A picture is never changed: another one has another name.
    "Cache-Control": "public, max-age=31536000, immutable",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@require_safe
def show_picture(request: HttpRequest, name: str) -> HttpResponse:
    """Answer with the picture; name: as the route lets it through, 32 hex digits and .webp."""
    try:
        with default_storage.open(FOLDER + name) as file:
            return HttpResponse(file.read(), content_type="image/webp", headers=HEADERS)
    except OSError:
        raise Http404 from None
