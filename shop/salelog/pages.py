"""The public page of a sale's log: what the shop says of it, and the script that lets a browser check all of it.
Reads one row and one tile, however long the log is. Never says that a log is right: that is for others to find.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from shop.payments.checkout import root_of
from shop.salelog import store
from shop.salelog.models import SaleLog
from shop.salelog.tree import ENTRIES, WIDTH_BITS
from shop.salelog.words import RULES, SENTENCES, VOIDED, WORDS, word_of
from shop.sales import catalogue
from shop.tickets.keys import log_keys
from shop.web.pages import page, show

COMMAND = ("python", "verify_sale.py", "{}", "--keep", "checkpoints")
MAX_LATEST = 20
# Under one checkpoint a log always shows the same.
KEPT_SECONDS = 600


@require_safe
@page
def log_page(request: HttpRequest, *, slug: str) -> HttpResponse:
    """GET /sales/<slug>/verify/: the public log of a sale. Raises SaleNotFound, LogOff."""
    log_keys()
    card = catalogue.find_sale(slug)
    log = SaleLog.objects.filter(sale_id=card.sale_id).first()
    lost = sum(last - first + 1 for first, last in log.lost) if log else 0
    context = {
        "card": card,
        "log": log if log and log.size else None,
        "is_kept": log is None or log.is_kept,
        "rules": RULES,
        "words": WORDS | SENTENCES | VOIDED,
        "command": " ".join(COMMAND).format(root_of(request) + reverse("sale", args=[slug])),
        "at": datetime.fromtimestamp(log.at_us / 1_000_000, tz=UTC) if log and log.size else None,
        "lost": lost,
        "places": log.ordinal - lost if log else 0,
        "latest": [(leaf, WORDS[word_of(leaf)]) for leaf in latest_leaves(log)] if log and log.size else [],
    }
    return show(request, "shop/log.html", context)


def latest_leaves(log: SaleLog) -> list[dict[str, Any]]:
    """Return the last leaves of a log, the last one first, of one tile."""
    name = f"log-latest:{sha256(log.checkpoint.encode()).hexdigest()}"
    found: list[dict[str, Any]] | None = cache.get(name)
    if found is None:
        tile = store.read_tile(log.sale_id, ENTRIES, (log.size - 1) >> WIDTH_BITS)
        leaves = list(store.leaves_of(bytes(tile.data)))[: (log.size - 1) % (1 << WIDTH_BITS) + 1]
        found = [json.loads(leaf) for leaf in leaves[: -MAX_LATEST - 1 : -1]]
        cache.set(name, found, KEPT_SECONDS)
    return found
