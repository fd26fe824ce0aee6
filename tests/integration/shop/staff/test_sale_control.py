"""What staff do to a running sale, from the admin and from a shell: every act once, logged, and never below the truth.
Uses the real servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from secrets import token_hex
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from inventory import redis
from inventory.exceptions import InvalidRequest
from inventory.line import reading
from inventory.line.admission import Code
from inventory.models import Stock, StockMovement
from inventory.states import State
from shop.models import Order, Sale, StaffAct
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support.road import admit, ask, queue, settle_line
from tests.support.shopkeeping import assert_books_balance, make_sale, pay_all
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Two units; one a buyer."""
    return make_sale(new_sku(), units=2)


@pytest.fixture
def staff() -> Client:
    """Return a browser with a superuser in it."""
    return browser_of()


def command(*arguments: str) -> dict[str, Any]:
    """Run `manage.py sale` and return its JSON."""
    out = StringIO()
    call_command("sale", *arguments, "--actor", "olga", "--json", stdout=out)
    row: dict[str, Any] = json.loads(out.getvalue())
    return row


def told(card: SaleCard, names: list[str]) -> list[State]:
    return [place.record.state for place in reading.places(redis.connect(), card.sku, names) if place]


def press(staff: Client, card: SaleCard, action: str, **fields: Any) -> Any:
    """Choose an admin action for a sale, and confirm it when fields are given."""
    data = {"action": action, "_selected_action": card.sale_id, **fields}
    if fields:  # what the page says in hidden fields
        newest = StaffAct.objects.filter(sale_id=card.sale_id).first()
        data[f"seen_act_{card.sale_id}"] = newest.pk if newest else 0
        data["seen_total"] = Stock.objects.get(sku=card.sku).total
    return staff.post("/admin/shop/sale/", data | ({"confirm": "yes"} if fields else {}), follow=True)


def test_a_pause_stops_the_door_and_the_line_and_a_resume_goes_on(card: SaleCard) -> None:
    names = queue(card, "ann", "bob")
    command("pause", card.slug, "--reason", "a fault at packing")
    assert admit(card, ask(card, "eve"))[0].code == Code.PAUSED
    settle_line(card)
    assert told(card, names) == [State.QUEUED, State.QUEUED]
    command("resume", card.slug)
    settle_line(card)
    assert told(card, names) == [State.HELD, State.HELD]
    assert_books_balance(card)


def test_without_the_pause_the_same_line_is_decided(card: SaleCard) -> None:
    """The control of the one above."""
    names = queue(card, "ann", "bob")
    settle_line(card)
    assert told(card, names) == [State.HELD, State.HELD]


def test_a_pause_that_is_committed_has_not_failed(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process primes the SKU for longer than a lock is waited for; the boards tell Redis afterwards."""

    def wait_too_long(_slug: str) -> None:
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(priming, "prime_sale", wait_too_long)
    sale_control.pause(card.slug, actor="olga", reason="a fault")
    assert Sale.objects.get(slug=card.slug).operator_state == Sale.OperatorState.PAUSED


def test_closing_gives_what_is_free_and_tells_the_rest(card: SaleCard) -> None:
    names = queue(card, "ann", "bob", "eve")
    command("close", card.slug)
    assert admit(card, ask(card, "joe"))[0].code == Code.CLOSED
    settle_line(card)
    assert told(card, names) == [State.HELD, State.HELD, State.SOLD_OUT]
    assert_books_balance(card)


def test_what_is_restocked_goes_to_the_head_of_the_line(card: SaleCard) -> None:
    names = queue(card, "ann", "bob", "eve", "joe")
    settle_line(card)
    row = command("restock", card.slug, "--units", "1", "--reason", "found one")
    assert (row["quantity"], row["available"], row["held"]) == (3, 1, 2)
    settle_line(card)
    assert told(card, names) == [State.HELD, State.HELD, State.HELD, State.WAITLISTED]
    assert_books_balance(card)


def test_a_sale_that_was_sold_out_sells_again_after_a_restock(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    settle_line(card)
    pay_all(card)
    assert admit(card, ask(card, "eve"))[0].code == Code.SOLD_OUT
    command("restock", card.slug, "--units", "5")
    queue(card, "eve")
    settle_line(card)
    assert_books_balance(card)


def test_an_adjustment_is_never_below_what_is_held_and_sold(card: SaleCard) -> None:
    queue(card, "ann")
    settle_line(card)
    with pytest.raises(CommandError, match=r"1 units of .* are held or sold"):
        command("adjust", card.slug, "--units", "-2", "--reason", "one was broken")
    assert Stock.objects.get(sku=card.sku).total == 2
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()
    assert command("adjust", card.slug, "--units", "-1", "--reason", "one was broken")["available"] == 0
    movement = StockMovement.objects.get(stock__sku=card.sku, kind="adjust")
    assert (movement.delta, movement.actor, movement.reason) == (-1, "olga", "one was broken")
    assert_books_balance(card)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("pause",), "say why"),
        (("resume",), "is not paused"),
        (("open",), "only a scheduled sale"),
        (("restock",), "needs --units"),
        (("restock", "--units", "0"), "at least 1"),
        (("adjust", "--units", "1"), "needs an actor and a reason"),
        (("adjust", "--units", "0", "--reason", "x"), "must not be 0"),
        (("close", "--units", "1"), "takes no --units"),
        (("terms",), "name a new price"),
        (("terms", "--price", "-1"), "greater than or equal to 0"),
        (("terms", "--limit", "0"), "greater than or equal to 1"),
        (("close", "--reason", "x" * 201), "at most 200"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    card: SaleCard, arguments: tuple[str, ...], why: str
) -> None:
    before = Sale.objects.filter(pk=card.sale_id).values().get()
    with pytest.raises(CommandError, match=why):
        command(arguments[0], card.slug, *arguments[1:])
    assert Sale.objects.filter(pk=card.sale_id).values().get() == before
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


def test_a_scheduled_sale_opens_when_staff_say_so(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1, opens_in_seconds=3600, closes_in_seconds=7200)
    assert admit(card, ask(card, "ann"))[0].code == Code.NOT_OPEN
    command("open", card.slug)
    assert admit(card, ask(card, "ann"))[0].code == Code.ADMITTED


def test_new_terms_are_for_those_who_ask_from_now_on(card: SaleCard) -> None:
    (before,) = queue(card, "ann")
    command("terms", card.slug, "--price", "99.00", "--limit", "2")
    (after,) = queue(card, "bob")
    settle_line(card)
    prices = {name: Order.objects.get(request_id=name) for name in (before, after)}
    assert (prices[before].unit_price, prices[before].buyer_limit) == (Decimal("15.00"), 1)
    assert (prices[after].unit_price, prices[after].buyer_limit) == (Decimal("99.00"), 2)


def test_every_act_is_one_row_of_the_log(card: SaleCard) -> None:
    command("pause", card.slug, "--reason", "why")
    command("resume", card.slug)
    command("restock", card.slug, "--units", "3")
    rows = StaffAct.objects.filter(sale_id=card.sale_id).order_by("id").values_list("act", "actor", "reason", "detail")
    assert list(rows) == [
        ("pause", "olga", "why", "switch on → paused"),
        ("resume", "olga", "", "switch paused → on"),
        ("restock", "olga", "", "+3 units, total 2 → 5"),
    ]


def test_what_is_over_is_not_closed_early(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(closes_at=Now())
    with pytest.raises(InvalidRequest, match="is closed"):
        sale_control.close(card.slug, actor="anna")
    assert Sale.objects.get(pk=card.sale_id).operator_state == "on"


def test_nobody_acts_without_a_name(card: SaleCard) -> None:
    with pytest.raises(InvalidRequest, match="actor"):
        sale_control.close(card.slug, actor="")


def test_the_admin_asks_before_it_acts(staff: Client, card: SaleCard) -> None:
    page = press(staff, card, "pause")
    assert "Buyers read the reason" in page.content.decode()
    assert Sale.objects.get(pk=card.sale_id).operator_state == "on"
    assert "This field is required" in press(staff, card, "pause", reason="").content.decode()
    press(staff, card, "pause", reason="a fault at packing")
    sale = Sale.objects.get(pk=card.sale_id)
    assert (sale.operator_state, sale.pause_reason) == ("paused", "a fault at packing")
    assert StaffAct.objects.get(sale=sale).actor.startswith("superuser-")


def test_of_several_sales_one_that_somebody_paused_again_stays_paused(
    staff: Client, card: SaleCard, new_sku: Callable[[], str]
) -> None:
    other = make_sale(new_sku(), units=1)
    for each in (card, other):
        sale_control.pause(each.slug, actor="anna", reason="a fault at packing")

    def post(**fields: Any) -> str:
        chosen = {"action": "resume", "_selected_action": [card.sale_id, other.sale_id], **fields}
        return str(staff.post("/admin/shop/sale/", chosen, follow=True).content.decode())

    def seen_in(page: str) -> dict[str, str]:
        return dict(re.findall(r'name="(seen_act_\d+)" value="(\d+)"', page))

    seen = seen_in(post())
    sale_control.resume(card.slug, actor="olga")
    sale_control.pause(card.slug, actor="olga", reason="another fault")
    # Shown again for a reason that is too long, it does not know more than it had shown.
    assert seen_in(post(confirm="yes", reason="x" * 201, **seen)) == seen
    # An act on an order of the other one changes nothing that the form had shown.
    StaffAct.objects.create(sale_id=other.sale_id, act="mail_order", actor="olga")
    page = post(confirm="yes", reason="", **seen)
    assert f"{card.slug[1:]}: olga did “pause” at" in page  # a message begins with a capital letter
    states = dict(Sale.objects.filter(pk__in=[card.sale_id, other.sale_id]).values_list("slug", "operator_state"))
    assert states == {card.slug: "paused", other.slug: "on"}


@pytest.mark.parametrize("fields", [{}, {"confirm": "yes", "reason": "a fault"}], ids=["asked", "confirmed"])
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("opens_at__gte=tomorrow", "The filter in the address is not valid: nothing was done"),
        ("switch__exact=paused", "Nothing that was chosen is in the list as it is filtered; nothing was done."),
    ],
)
def test_an_act_under_a_filter_that_shows_none_of_them_says_so(
    staff: Client, card: SaleCard, query: str, told: str, fields: dict[str, str]
) -> None:
    chosen = {"action": "pause", "_selected_action": card.sale_id, **fields}
    page = staff.post(f"/admin/shop/sale/?{query}", chosen, follow=True).content.decode()
    assert (told in page, Sale.objects.get(pk=card.sale_id).operator_state) == (True, "on")
    assert "Buyers read the reason" in press(staff, card, "pause").content.decode()  # the control: no filter


def test_the_admin_restocks_and_says_what_it_refuses(staff: Client, card: SaleCard) -> None:
    press(staff, card, "restock", units=4, reason="")
    assert Stock.objects.get(sku=card.sku).total == 6
    text = press(staff, card, "adjust", units=-7, reason="gone").content.decode()
    assert "only 6 can be taken away" in text
    assert Stock.objects.get(sku=card.sku).total == 6


def test_who_may_only_look_has_no_acts(card: SaleCard) -> None:
    client = Client()
    user = User.objects.create_user(f"viewer-{token_hex(4)}", is_staff=True)
    client.force_login(user)
    assert press(client, card, "close", reason="").status_code == 403
    assert Sale.objects.get(pk=card.sale_id).operator_state == "on"


def sale_form(card: SaleCard, **changes: Any) -> dict[str, Any]:
    """Return what the sale's form sends when somebody has it open now."""
    sale = Sale.objects.get(pk=card.sale_id)
    form = {
        "title": sale.title,
        "price": str(sale.price),
        "currency": sale.currency,
        "opens_at_0": sale.opens_at.date(),
        "opens_at_1": sale.opens_at.strftime("%H:%M:%S"),
        "closes_at_0": sale.closes_at.date(),
        "closes_at_1": sale.closes_at.strftime("%H:%M:%S"),
        "per_buyer_limit": sale.per_buyer_limit,
        "per_network_limit": sale.per_network_limit,
        "hold_seconds": sale.hold_seconds,
        "line_capacity": sale.line_capacity,
        "seen_version": sale.revision,
    }
    return form | changes


def test_a_stale_form_is_refused_and_explained(staff: Client, card: SaleCard) -> None:
    stale = sale_form(card, title="A newer title")
    sale_control.change_terms(card.slug, actor="olga", price=Decimal("7.00"))
    answer = staff.post(f"/admin/shop/sale/{card.sale_id}/change/", stale)
    assert "was changed after you had opened this page" in answer.content.decode()
    sale = Sale.objects.get(pk=card.sale_id)
    assert (sale.title, sale.price) == ("Paper kite", Decimal("7.00"))


def test_no_form_opens_a_sale_that_is_over(staff: Client, card: SaleCard) -> None:
    """Those who waited were told, and so was its public log. The control: before its end it may be moved."""
    later = timezone.now() + timedelta(hours=2)
    form = {"closes_at_0": later.date(), "closes_at_1": "23:59:59"}
    page = f"/admin/shop/sale/{card.sale_id}/change/"
    assert staff.post(page, sale_form(card, **form)).status_code == 302
    ended = timezone.now() - timedelta(seconds=1)
    Sale.objects.filter(pk=card.sale_id).update(closes_at=ended)
    answer = staff.post(page, sale_form(card, **form))
    assert list(answer.context["adminform"].form.errors) == ["closes_at"]
    assert Sale.objects.get(pk=card.sale_id).closes_at == ended
    # Everything else can still be changed.
    assert staff.post(page, sale_form(card, title="A kite of last week")).status_code == 302


def test_a_price_that_nobody_could_pay_is_refused(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(currency="JPY")
    with pytest.raises(InvalidRequest, match="no such amount in JPY"):
        sale_control.change_terms(card.slug, actor="olga", price=Decimal("1500.50"))
    sale_control.change_terms(card.slug, actor="olga", price=Decimal("1500.00"))
    assert Sale.objects.get(pk=card.sale_id).price == Decimal("1500.00")


def test_a_form_never_writes_stock_however_old_it_is(staff: Client, card: SaleCard) -> None:
    form = sale_form(card, title="A newer title", available=99, operator_state="closed")
    queue(card, "ann", "bob")
    settle_line(card)
    assert staff.post(f"/admin/shop/sale/{card.sale_id}/change/", form).status_code == 302
    sale = Sale.objects.select_related("stock").get(pk=card.sale_id)
    assert (sale.title, sale.operator_state) == ("A newer title", "on")
    assert (sale.stock.available, sale.stock.held) == (0, 2)
    assert StaffAct.objects.get(sale=sale).detail == "title Paper kite → A newer title"
    assert_books_balance(card)
