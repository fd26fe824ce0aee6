"""Serves the public logs as C2SP's tlog-tiles, the shop's keys, and to each buyer the proof of their own place.
Never changes anything; nobody is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.cache import patch_cache_control

from inventory import redis
from inventory.exceptions import RequestNotFound
from inventory.line import reading
from inventory.records import sale_id_of
from shop.api.actions import caller
from shop.api.views import View, answered, api_call
from shop.models import Order, Sale
from shop.salelog import store
from shop.salelog.tree import ENTRIES, HASH_BYTES, WIDTH
from shop.tickets.keys import encode, log_keys

# A tile's number in groups of three digits, each but the last after an x; and the width of one that is not full.
NUMBER = re.compile(r"(?P<number>(?:x\d{3}/)*\d{3})(?:\.p/(?P<width>[1-9]\d{0,2}))?", re.ASCII)
LEVEL = re.compile(r"entries|[0-7]", re.ASCII)
MAX_GROUPS = 5
YEAR_SECONDS = 31_536_000


def public(*, max_age: int) -> Callable[[View], View]:
    """Answer GET for anybody, also scripts of other sites, and faults with a problem. max_age: 0, ask again."""

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: str, **named: str) -> HttpResponse:
            response = answered(view, request, ("GET", "HEAD"), *args, **named)
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                patch_cache_control(response, no_store=True)
            elif max_age:
                patch_cache_control(response, public=True, max_age=max_age, immutable=True)
            else:
                patch_cache_control(response, no_cache=True)
            response["Access-Control-Allow-Origin"] = "*"
            return response

        return checked

    return decorate


@public(max_age=0)
def keys(request: HttpRequest) -> HttpResponse:
    """GET /.well-known/fairdrop-keys: every key that has signed logs of this shop, with its times."""
    found = [
        {"key": each.key_id, "public": encode(each.public), "from": each.begins, "until": each.ends}
        for each in log_keys()
    ]
    return JsonResponse(found, safe=False)


@public(max_age=0)
def checkpoint(request: HttpRequest, slug: str) -> HttpResponse:
    """GET /api/v1/sales/<slug>/log/checkpoint: how long the log is, and its root, signed."""
    return HttpResponse(store.find_log(slug).checkpoint, content_type="text/plain; charset=utf-8")


@public(max_age=YEAR_SECONDS)
def tile(request: HttpRequest, slug: str, level: str, number: str) -> HttpResponse:
    """GET /api/v1/sales/<slug>/log/tile/<level>/<number>[.p/<width>]: hashes, or leaves when the level is "entries"."""
    found, wanted = NUMBER.fullmatch(number), LEVEL.fullmatch(level)
    if found is None or wanted is None or found["number"].count("/") >= MAX_GROUPS:
        raise store.TileNotFound
    counted = int(found["number"].replace("/", "").replace("x", ""))
    width = int(found["width"] or WIDTH)
    if width > WIDTH or number_path(counted) != found["number"]:
        raise store.TileNotFound
    at = ENTRIES if level == "entries" else int(level)
    data = read_part(store.find_log(slug).sale_id, level=at, number=counted, width=width)
    return HttpResponse(data, content_type="application/octet-stream")


def number_path(number: int) -> str:
    """Return a tile's number as an address has it (tlog-tiles): 1234067 is x001/x234/067."""
    groups = []
    while True:
        number, last = divmod(number, 1000)
        groups.append(f"{last:03d}")
        if not number:
            return "/".join([*(f"x{group}" for group in groups[:0:-1]), groups[0]])


def read_part(sale_id: int, *, level: int, number: int, width: int) -> bytes:
    """Return the first `width` hashes, or leaves, of a tile. Raises TileNotFound when it has fewer."""
    found = store.read_tile(sale_id, level, number)
    if found.width < width:
        raise store.TileNotFound
    data = bytes(found.data)
    return store.bundle_of(data, width) if level == ENTRIES else data[: width * HASH_BYTES]


@api_call("GET", "HEAD")
def proof(request: HttpRequest, request_id: str) -> JsonResponse:
    """GET /api/v1/requests/<id>/proof: the caller's own admission in the public log."""
    log_keys()
    sale = Sale.objects.select_related("stock").filter(pk=sale_id_of(request_id) or 0).first()
    if sale is None:
        raise RequestNotFound
    ordinal = own_ordinal(request_id, sale=sale, buyer=caller(request, unsafe=False))
    found = store.prove(store.find_log(sale.slug), request_id=request_id, ordinal=ordinal)
    answer = {
        "leaf": found.leaf.decode(),
        "index": found.at,
        "path": [encode(each) for each in found.path],
        "checkpoint": found.checkpoint,
    }
    return JsonResponse(answer)


def own_ordinal(request_id: str, *, sale: Sale, buyer: str) -> int:
    """Return the ordinal of the caller's request. Raises RequestNotFound (also for another's), RedisUnavailable."""
    order = Order.objects.filter(request_id=request_id).values_list("buyer", "ordinal").first()
    if order is None and sale.retired_at is None:
        (place,) = reading.places(redis.connect(), sale.stock.sku, [request_id])
        order = (place.record.buyer, place.record.ordinal) if place else None
    if order is None or order[0] != buyer:
        raise RequestNotFound
    return order[1] or 0
