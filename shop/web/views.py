"""The pages: list of sales, one sale with its form, one ticket. Each view checks input, calls a service, renders.
Never writes a store itself and never answers a foreseeable fault with a 500.
"""

from __future__ import annotations

import re
import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe
from structlog.contextvars import bind_contextvars

from inventory import redis
from inventory.exceptions import (
    FairdropError,
    IdempotencyMismatch,
    InvalidRequest,
    LimitReached,
    LineFull,
    RequestNotFound,
    SoldOut,
    TermsChanged,
    Unauthenticated,
)
from inventory.line import reading
from inventory.records import Ticket, sign_ticket
from inventory.redis import clocks
from inventory.states import WAITING_STATES, State
from shop import buyers
from shop.access.codes import MAX_TYPED
from shop.access.emails import MAX_ADDRESS_LENGTH
from shop.client_address import client_address, network_of
from shop.http import PAGE_NUMBER
from shop.models import OrderEvent
from shop.orders import deliveries, mails, restoring, ticket_links
from shop.orders import requests as requests_service
from shop.orders.requests import RequestView
from shop.payments import checkout
from shop.sales import catalogue
from shop.sales.decision_rates import RATES
from shop.tickets.keys import keeps_logs
from shop.tickets.signing import sign_tickets
from shop.web.delivery_form import DeliveryForm, form_of
from shop.web.languages import QUANTITY
from shop.web.pages import (
    ASKED_COOKIE,
    ASKED_TURNS,
    EMAIL_COOKIE,
    LAST_ASKED_COOKIE,
    PASS_COOKIE,
    PROOF_COOKIE,
    TICKET_COOKIE,
    WAIT_COOKIE,
    cookies_of,
    known_buyer,
    page,
    paging,
    reader_of,
    set_cookie,
    show,
    token_to_give,
)
from shop.web.presses import refuse_foreign_press
from shop.web.sale_presenter import SaleFace
from shop.web.ticket_presenter import TicketFace

IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
TERMS_VERSION = re.compile(r"[0-9]{1,15}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,40}")
# Anyone who has no ticket gets the same page as everybody, from memory: its form has this key, and one press counts.
FIRST_KEY = "first-press"
# Of the sales that are over only the latest are listed; each keeps its page.
MAX_OVER = 12
SECTIONS = {"scheduled": "coming", "closed": "over", "sold_out": "over"}


@require_safe
@page
def sale_list(request: HttpRequest) -> HttpResponse:
    """Show the sales that are listed: open now, coming up, over for less than a day."""
    now = clocks.now()
    groups: dict[str, list[SaleFace]] = {"open": [], "coming": [], "over": []}
    for card in catalogue.list_sales():
        face = SaleFace(card=card, now=now)
        if card.is_listed(now):
            groups[SECTIONS.get(face.state, "open")].append(face)
    groups["open"].sort(key=lambda face: not face.takes_requests)
    groups["over"] = groups["over"][: -MAX_OVER - 1 : -1]
    return show(request, "shop/list.html", {"groups": groups, "now": now})


@require_safe
@page
def past_sales(request: HttpRequest) -> HttpResponse:
    """Show the sales that are listed no more, some at a time: ?page=, from 1."""
    number = request.GET.get("page", "1")
    if not PAGE_NUMBER.fullmatch(number):
        raise InvalidRequest("page must be a whole number from 1")
    cards, more = catalogue.list_past(int(number))
    now = clocks.now()
    context = {
        "faces": [SaleFace(card=card, now=now) for card in cards],
        "now": now,
        **paging(request, int(number), has_older=more),
    }
    return show(request, "shop/past.html", context)


# The page is the same for everybody and carries no token: `ask` looks where the press comes from instead.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@page
def sale(request: HttpRequest, *, slug: str) -> HttpResponse:
    """Show one sale; a POST asks for units in it.

    A browser whose token cannot be verified keeps it, and gets 401 for a POST, until it posts `new_buyer`.
    """
    card = catalogue.find_sale(slug)
    network = network_of(client_address(request))
    was, token = buyers.token_sent(cookies_of(request)), token_to_give(request)
    try:
        buyer = buyers.verify_token(token or was)
    except Unauthenticated as error:
        if request.method != "POST" or not request.POST.get("new_buyer"):
            return sale_page(request, card, error=error if request.method == "POST" else None)
        buyer, token = buyers.replace_buyer(was, key=request.POST.get("idempotency_key", ""), network=network)
    mark = buyers.mark_in(token or was)
    response = ask(request, card, buyer=buyer, mark=mark) if request.method == "POST" else sale_page(request, card)
    if token:
        set_cookie(response, name=buyers.COOKIE_NAME, value=token)
    return response


def ask(request: HttpRequest, card: catalogue.SaleCard, *, buyer: str, mark: str) -> HttpResponse:
    """Put the request in line and lead to its ticket; what stands in the way is said on the sale page.

    mark: of the network to which the buyer's token was given.
    """
    refuse_foreign_press(request)
    try:
        quantity, key, terms_version = read_form(request)
        name = requests_service.name_of(card, buyer=buyer, idempotency_key=key)
        proof = request.COOKIES.get(TICKET_COOKIE, "")
        if proof.startswith(f"{name}."):  # a repeat: should the line have lost it, it keeps its place
            ticket, _ = restoring.restore_asked(proof, request_id=name, quantity=quantity, buyer=buyer)
        else:
            ticket = requests_service.ask(
                card,
                buyer=buyer,
                quantity=quantity,
                idempotency_key=key,
                terms_version=terms_version,
                standby=request.POST.get("standby") == "1",
                network=network_of(client_address(request)),
                code=request.POST.get("code", ""),
                email_proof=request.COOKIES.get(EMAIL_COOKIE, ""),
                pass_text=request.POST.get("pass") or request.COOKIES.get(PASS_COOKIE, ""),
                mark=mark,
            )
    except TermsChanged as error:
        return sale_page(request, catalogue.find_sale(card.slug), error=error)
    except IdempotencyMismatch as error:
        return sale_page(request, card, error=error, asked=name)
    except FairdropError as error:
        return sale_page(request, card, error=error, owned=units_owned(card, buyer=buyer, error=error))
    bind_contextvars(requests=[ticket.request_id])  # as in the lines of settlers
    is_listed = proof.startswith(f"{name}.")
    return _to_ticket(request, card, ticket.request_id, proof=proof_of(ticket, buyer=buyer), is_listed=is_listed)


def units_owned(card: catalogue.SaleCard, *, buyer: str, error: FairdropError) -> int:
    """Return how many units `buyer` has when more would be over the limit, else 0. Raises RedisUnavailable."""
    if type(error) is not LimitReached:
        return 0
    return reading.live_units(redis.connect(), card.sku, sale_id=card.sale_id, buyer=buyer)


def _to_ticket(
    request: HttpRequest, card: catalogue.SaleCard, request_id: str, *, proof: str, is_listed: bool
) -> HttpResponse:
    """Lead to a ticket, with the cookies that show it again. is_listed: it stands in "My tickets" already."""
    address = reverse("ticket", args=[request_id])
    response = HttpResponseRedirect(address, status=303, headers={"X-Request-ID": request_id})
    set_cookie(response, name=TICKET_COOKIE, value=proof, path=reverse("sale", args=[card.slug]))
    set_cookie(response, name=PROOF_COOKIE, value=proof, path=address)
    if PASS_COOKIE in request.COOKIES and not is_listed:  # it let this request in, and its wait would give it again
        response.delete_cookie(PASS_COOKIE, path=reverse("sale", args=[card.slug]))
        response.delete_cookie(WAIT_COOKIE, path=reverse("sale-pass", args=[card.slug]))
    if not is_listed:
        last = ASKED_TURNS.find(request.COOKIES.get(LAST_ASKED_COOKIE, "none"))
        turn = ASKED_TURNS[(last + 1) % len(ASKED_TURNS)]
        set_cookie(response, name=LAST_ASKED_COOKIE, value=turn)
        set_cookie(response, name=f"{ASKED_COOKIE}{turn}", value=proof, path=reverse("my-tickets"))
    return response


def proof_of(view: RequestView, *, buyer: str) -> str:
    """Return the ticket of `buyer`'s request for a cookie: in the short form, because it comes back with every call."""
    return sign_ticket(buyers.ticket_signer(), place_of(view, buyer=buyer))


def place_of(view: RequestView, *, buyer: str) -> Ticket:
    """Return the place of `buyer`'s request, as its ticket says it."""
    waits_so = view.state is State.STANDBY
    return Ticket(view.request_id, buyer, view.quantity, view.seq, view.terms_version, view.ordinal, waits_so)


def ticket_of(view: RequestView, card: catalogue.SaleCard, *, buyer: str) -> str:
    """Return the ticket of `buyer`'s request, for them to keep."""
    return sign_tickets([place_of(view, buyer=buyer)], slug=card.slug, request_key=card.request_id_key())[0]


def read_form(request: HttpRequest) -> tuple[int, str, int]:
    """Return quantity, idempotency key and terms version (0: none) of the form, or raise InvalidRequest."""
    quantity, key = read_quantity(request), request.POST.get("idempotency_key", "")
    version = request.POST.get("terms_version", "0")
    if not quantity or not IDEMPOTENCY_KEY.fullmatch(key) or not TERMS_VERSION.fullmatch(version):
        raise InvalidRequest
    return quantity, key, int(version)


def read_quantity(request: HttpRequest) -> int:
    """Return the quantity of the form, 1 when it has none, 0 when it is not a whole number.

    The address has it after a switch of language.
    """
    text = request.POST.get("quantity", request.GET.get("quantity", "1"))
    return int(text) if QUANTITY.fullmatch(text) else 0


def sale_page(
    request: HttpRequest,
    card: catalogue.SaleCard,
    *,
    error: FairdropError | None = None,
    owned: int = 0,
    asked: str = "",
) -> HttpResponse:
    """Render the sale; after an error the same form, so that trying again is the same request.

    owned: how many units its reader has, where that is why they were refused. asked: a request of theirs whose answer
    this browser may have missed.
    """
    now = clocks.now()
    ticket = asked or request.COOKIES.get(TICKET_COOKIE, "").partition(".")[0]
    face = SaleFace(card=card, now=now, owned=owned)
    context = {
        "face": face,
        "has_log": keeps_logs(),
        "now": now,
        "quantity": read_quantity(request),
        "idempotency_key": kept_key(request, error=error),
        "standby": takes_standby(request, face, error=error),
        "code": request.POST.get("code", "")[:MAX_TYPED],
        "ticket": ticket if REQUEST_ID.fullmatch(ticket) else "",
    }
    return show(request, "shop/sale.html", context, error=error)


def takes_standby(request: HttpRequest, face: SaleFace, *, error: FairdropError | None) -> bool:
    """Say whether the button of a sale asks for standby: where nothing is left, or after the line was full."""
    is_full = isinstance(error, LineFull)
    if not face.left_to_ask or (is_full and request.POST.get("standby") == "1"):
        return False
    return face.state == "sold_out" or (face.takes_requests and (is_full or isinstance(error, SoldOut)))


def kept_key(request: HttpRequest, *, error: FairdropError | None) -> str:
    """Return the form's own key again after an error, unless that key is what was wrong; a new one to who asked before.

    Who never asked here gets the same key as everybody: ids are made of buyer and key, and two tabs are one request.
    """
    key = request.POST.get("idempotency_key", "")
    if error and not isinstance(error, IdempotencyMismatch) and IDEMPOTENCY_KEY.fullmatch(key):
        return key
    if not error and TICKET_COOKIE not in request.COOKIES:
        return FIRST_KEY
    return secrets.token_urlsafe(18)


@require_safe
@page
def ticket(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Show the buyer's own request: place in line, then outcome. Somebody else's is not found."""
    return ticket_page(request, request_id)


def ticket_page(
    request: HttpRequest,
    request_id: str,
    *,
    error: FairdropError | None = None,
    delivery_form: DeliveryForm | None = None,
) -> HttpResponse:
    """Render the buyer's own ticket as it is now; error: what stood in the way of what they wanted to do with it.

    delivery_form: as it was sent, with what is wrong with it.
    """
    # The bill before the order: a payment captured in between shows as paid, not as a hold nobody pays for.
    bill, buyer = checkout.find_bill(request_id), reader_of(request, request_id)
    found = find_or_restore(request, request_id, buyer=buyer)
    card, now = catalogue.find_sale(found.sale_slug), clocks.DATABASE.now()  # by which holds end
    waits, is_own = found.state in WAITING_STATES, buyer == known_buyer(request)
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id) if waits else None
    face = TicketFace(
        ticket=found,
        sale=SaleFace(card=catalogue.as_promised(card, version=found.terms_version), now=now),
        now=now,
        bill=bill,
        figures=figures,
        decided_per_second=RATES.seen(card.sku, decided=figures.decided) if figures else 0.0,
        events=tuple(OrderEvent.objects.filter(order__request_id=request_id)) if not waits else (),
        proof=ticket_of(found, card, buyer=buyer) if waits and is_own else "",
        link=ticket_links.link_to(request_id, root=checkout.root_of(request)),
        by_link=not is_own,
        mail_address=mails.find_address(request_id) if settings.MAIL_ON and is_own else "",
        delivery=deliveries.find_delivery(request_id) if found.hold_expires_at else None,
    )
    offers_mail = settings.MAIL_ON and is_own
    is_still = "still" in request.GET or request.method == "POST"  # what is said of a press must not go by itself
    typed = request.POST.get("address", "").strip()[: MAX_ADDRESS_LENGTH + 1] if error else ""
    context = {"face": face, "now": now, "still": is_still, "offers_mail": offers_mail, "typed": typed}
    context["places"] = catalogue.places_in_log(card.sale_id)
    context |= {"delivery": face.delivery, "delivery_form": delivery_form or form_of(face.delivery)}
    return show(request, "shop/ticket.html", context, error=error, status=400 if delivery_form else 200)


def find_or_restore(request: HttpRequest, request_id: str, *, buyer: str) -> RequestView:
    """Return the buyer's request; one that the line has lost is brought back by the ticket this browser keeps.

    Raises RequestNotFound, Unavailable.
    """
    try:
        return requests_service.look_up(request_id, buyer=buyer)
    except RequestNotFound:
        proof = request.COOKIES.get(PROOF_COOKIE, "")
        if not proof.startswith(f"{request_id}."):
            raise
    try:
        return restoring.restore(proof, buyer=buyer)[0]
    except InvalidRequest:
        raise RequestNotFound from None
