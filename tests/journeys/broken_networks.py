"""A network that fails around a press: the shop gets it and its answer is lost, or nothing comes through at all. And
what the shop's books then say. Never waits.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Route

from inventory import redis
from inventory.line import reading
from shop.models import Order, Payment
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge
from tests.journeys.visits import PATIENCE_MS, Visit
from tests.support.http_calls import Caller, answer_to

TRYING = "The shop has not answered yet. Your press is sent again by itself and counts once."
STOPPED = "Still no answer. Press again when you are connected: it counts once."
PRESS, BUY, PAY, CHARGE = "**/press*.js", "**/sales/*/", "**/requests/*/payment/", "**/sandbox/pay/*/"
SCRIPT = Path(__file__).resolve().parents[2] / "shop" / "static" / "shop" / "press.js"
FOR_EVER = 10**6
# Controls: press.js as it would be without one of its guards. Its own bound for an answer is no part of them.
Change = tuple[str, str]
PATIENT: Change = ("const ANSWER_MS = 10_000;", f"const ANSWER_MS = {PATIENCE_MS};")
NO_RETRY: Change = ("const MAX_TRIES = 12;", "const MAX_TRIES = 1;")
NO_TIMER: Change = ("press.timer = setTimeout(send, ", "press.timer = setTimeout(() => {}, ")
ONE_TRY: Change = ("const mine = press;", "const mine = press; if (window.tried) return; window.tried = true;")
NEW_KEYS: Change = (
    "new URLSearchParams(mine.body)",
    'new URLSearchParams(mine.body.replace("_key=", `$&${mine.tries}`))',
)


def alter_script(visit: Visit, change: Change) -> None:
    """Let this browser get a press.js in which one text is replaced by another."""
    altered = SCRIPT.read_text()
    for old, new in {change, PATIENT}:
        assert altered.count(old) == 1, f"press.js has changed: {old}"
        altered = altered.replace(old, new)
    visit.context.route(PRESS, lambda route: route.fulfill(body=altered, content_type="text/javascript"))


def restore_script(visit: Visit) -> None:
    """Let the next page of this browser have press.js as it is."""
    visit.context.unroute(PRESS)


def lose_answers(visit: Visit, web: Caller, where: str, *, times: int = FOR_EVER) -> list[str]:
    """Let the shop get what is posted to `where`, and lose its first answers, cookies too; return what was sent.

    The list grows with every try.
    """
    sent: list[str] = []

    def meet(route: Route) -> None:
        request = route.request
        if request.method == "POST":
            sent.append(request.post_data or "")
        if request.method != "POST" or len(sent) > times:
            route.fallback()
            return
        cookies = "; ".join(f"{each['name']}={each['value']}" for each in visit.context.cookies(request.url))
        headers = {name: request.headers[name] for name in ("accept", "content-type")}
        headers |= {"Origin": visit.root, "Cookie": cookies}
        call = partial(web.call, "POST", urlsplit(request.url).path, body=sent[-1], headers=headers)
        answer = answer_to(call)
        assert answer.status < 500, answer.status
        route.abort("connectionreset")

    visit.context.route(where, meet)
    return sent


def requests_in_books(card: SaleCard) -> int:
    """Return how many requests the sale has let in, decided or not."""
    return reading.figures(redis.connect(), card.sku, sale_id=card.sale_id).admitted


def payments_of(card: SaleCard) -> list[str]:
    """Return the state of every payment that was begun in a sale."""
    return list(Payment.objects.filter(order__sale_id=card.sale_id).values_list("state", flat=True))


def charges_of(card: SaleCard) -> list[str]:
    """Return the state of every charge that the provider has of a sale."""
    mine = Payment.objects.filter(order__sale_id=card.sale_id).values("reference")
    return list(Charge.objects.filter(reference__in=mine).values_list("state", flat=True))


def orders_of(card: SaleCard) -> list[str]:
    """Return the state of every order of a sale, the oldest first."""
    return list(Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("state", flat=True))
