"""A member of staff who chooses Chinese reads no English: every address of the admin is walked in Chinese, and what a
page says is looked at word by word. The switch is on each page, and works without a script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import models
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import translation
from django.utils.translation import trans_real

from inventory import exceptions, redis
from inventory.heartbeats import Heartbeat
from inventory.line import dead_letters
from inventory.models import StockMovement
from inventory.states import Reason, State
from shop.accounts.act_log import AccountAct
from shop.models import Order, Payment, Sale, StaffAct, TermsTemplate
from shop.names import codes
from shop.names.sentences import in_words
from shop.passkeys.models import Passkey
from shop.payments.rows import NoticeResult
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.staff.actions import ACTS, ROOM_ACTS
from shop.staff.lists import order_export, revenue_page
from shop.staff.lists.bulk_acts import BULK_ACTS, BulkReason
from shop.staff.lists.order_acts import ORDER_ACTS
from shop.staff.stock_rows import FILTERS
from tests.integration.shop.staff.test_control_room import set_aside
from tests.support import road
from tests.support.read_text import english_in, texts_of
from tests.support.shopkeeping import make_sale, pay
from tests.support.staff import browser_of, new_user

pytestmark = pytest.mark.usefixtures("shop_database")

CHINESE, REASON = "zh-hans", "理由"
# Texts of other programs, or addresses that only lead elsewhere; and lists that show what other tests have left.
NO_PAGE = re.compile(r"/jsi18n/|/r/|/autocomplete/|/image/|\(\?P<url>|/uploads/|/logout/")
SEARCHED = {"shop_staffact_changelist": "actor", "inventory_stockmovement_changelist": "sku"}


class Desk:
    """One member of staff who reads Chinese, and a sale with something to see on every page."""

    def __init__(self, card: SaleCard) -> None:
        self.card, self.user = card, new_user()
        self.browser = chinese(browser_of(user=self.user))
        actor = self.user.username
        sale_control.pause(card.slug, actor=actor, reason=REASON)
        sale_control.resume(card.slug, actor=actor)
        sale_control.restock(card.slug, units=5, actor=actor, reason=REASON)
        held, paid = road.queue(card, f"{actor}-1", f"{actor}-2")
        road.settle_line(card)
        pay(paid)
        self.order, self.paid = (Order.objects.get(request_id=name) for name in (held, paid))
        self.letter = set_aside(card, f"{actor}-3")
        (self.waiting,) = road.queue(card, f"{actor}-4")
        self.worker = Heartbeat(redis.connect(), "settler")
        self.worker.note(done=1, busy=True)
        self.rows = [
            TermsTemplate.objects.create(name=f"条款{self.order.pk}", price=5),
            Passkey.objects.create(user=self.user, name="钥匙", credential_id=token_hex(9).encode(), public_key=b"k"),
        ]

    def clear(self) -> None:
        self.worker.end()
        for row in reversed(self.rows):
            row.delete()

    def english_on(self, page: HttpResponse) -> list[str]:
        """Return what is English on a page, but for rows of the database."""
        return english_in(page.content.decode(), data=self.data, parts=self.parts)

    @property
    def data(self) -> set[str]:
        return {str(value) for model in admin.site._registry for value in _texts(model) if value}

    @property
    def parts(self) -> set[str]:
        """What may stand inside a sentence too."""
        orders = (self.order, self.paid)
        named = {each for order in orders for each in (order.request_id, order.buyer)}
        return named | {
            "first delivery",
            self.card.slug,
            self.card.sku,
            self.card.title,
            self.user.username,
            self.letter,
            self.waiting,
        }


def _texts(model: type[models.Model]) -> Iterator[Any]:
    """Yield the texts that are in the rows of a table, and what each row calls itself."""
    for field in model._meta.fields:
        is_text = isinstance(field, models.CharField | models.TextField) and not field.choices
        if is_text and model is not StaffAct and field.name not in ("reason", "result"):
            yield from model._default_manager.order_by("-pk").values_list(field.name, flat=True)[:2000]
    if model is StaffAct:
        for name in ("actor", "reason"):
            yield from StaffAct.objects.order_by("-pk").values_list(name, flat=True)[:2000]


def chinese(browser: Client) -> Client:
    """Return `browser` after a press on the switch."""
    assert browser.post("/language/", {"language": CHINESE, "next": "/admin/"})["Location"] == "/admin/"
    return browser


@pytest.fixture
def desk(new_sku: Callable[[], str]) -> Iterator[Desk]:
    # Before the desk's, whose rows have to be the newest.
    in_yen = make_sale(new_sku(), units=1)
    Sale.objects.filter(pk=in_yen.sale_id).update(price=1500, currency="JPY")
    made = Desk(make_sale(new_sku(), units=3))
    yield made
    made.clear()


def routes(patterns: list[Any] | None = None, *, prefix: str = "/") -> Iterator[tuple[str, str]]:
    """Yield name and route of every address of the admin."""
    for each in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(each.pattern).lstrip("^")
        if isinstance(each, URLResolver):
            yield from routes(each.url_patterns, prefix=route)
        elif isinstance(each, URLPattern) and route.startswith("/admin/") and not NO_PAGE.search(route):
            yield each.name or "", route.rstrip("$")


def addresses(desk: Desk) -> Iterator[str]:
    """Yield every address of the admin, with what is there: rows of the desk, and every act."""
    labels = sorted({model._meta.app_label for model in admin.site._registry})
    newest = {
        f"/{model._meta.app_label}/{model._meta.model_name}/": model._default_manager.order_by("-pk").first()
        for model in admin.site._registry
    }
    for name, route in routes():
        row = next((row for part, row in newest.items() if part in route and row is not None), None)
        pk = desk.user.pk if "/auth/user/" in route else row.pk if row is not None else 0
        filled = route.replace("<int:sale_id>", f"{desk.card.sale_id}").replace("<int:order_id>", f"{desk.order.pk}")
        filled = re.sub(r"<(path:object_id|id|int:pk)>", f"{pk}", filled)
        filled = re.sub(r"<int:\w+>", f"{desk.rows[1].pk}", filled)
        filled = re.sub(r"\(\?P<app_label>.*?\)", "<app_label>", filled)
        names = [*ROOM_ACTS] if "/room/" in route else [*BULK_ACTS] if "/bulk/" in route else [*ORDER_ACTS]
        for value in labels if "<app_label>" in filled else names if "<slug:name>" in filled else [""]:
            path = re.sub(r"<app_label>|<slug:name>", value, filled)
            found = SEARCHED.get(name, "")
            yield path + (f"?q={desk.user.username if found == 'actor' else desk.card.sku}" if found else "")


def more_addresses(desk: Desk) -> Iterator[str]:
    """Yield what an address shows when it is asked another way."""
    room, live = reverse("admin:shop_sale_room", args=[desk.card.sale_id]), reverse("stock-live")
    yield from (f"{room}?watch=1", f"{room}?span=sale", f"{live}?watch=1", f"{live}?q={desk.card.sku}")
    yield from (f"{live}?state={name}" for name in FILTERS)
    orders = reverse("admin:shop_order_changelist")
    yield f"{orders}?q={desk.order.request_id}"
    yield f"{orders}?q={desk.letter}"
    yield f"{orders}?from_day=%E6%98%8E"
    yield reverse("revenue") + "?from_day=2026-12-31&until_day=2020-01-01"
    yield reverse("admin:shop_order_change", args=[desk.paid.pk])


def presses(desk: Desk) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield forms to send: acts of a list, their pages, and everything that is refused."""
    sales, orders = reverse("admin:shop_sale_changelist"), reverse("admin:shop_order_changelist")
    for name in ACTS:
        yield sales, {"action": name, "_selected_action": [desk.card.sale_id]}
    for name in BULK_ACTS:
        yield orders, {"action": name, "_selected_action": [desk.order.pk, desk.paid.pk]}
        yield reverse("admin:shop_order_bulk", args=[name]), {"orders": "x"}
    for model, model_admin in admin.site._registry.items():
        if model_admin.has_add_permission(_request_of(desk)):
            yield reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add"), {}
    for name in ROOM_ACTS:
        yield reverse("admin:shop_sale_room_act", args=[desk.card.sale_id, name]), {}
    for name in ORDER_ACTS:
        yield reverse("admin:shop_order_act", args=[desk.order.pk, name]), {"reason": ""}
    yield reverse("admin:shop_sale_preview_new"), {}
    yield reverse("admin:password_change"), {"old_password": "x", "new_password1": "1", "new_password2": "2"}


def _request_of(desk: Desk) -> Any:
    return desk.browser.get("/admin/").wsgi_request


def test_no_page_of_staff_has_english_left(desk: Desk) -> None:
    faults, seen = dict[str, str](), 0
    for path in [*addresses(desk), *more_addresses(desk)]:
        page = desk.browser.get(path, follow=True)
        if page.get("Content-Type", "").startswith("text/html"):
            seen += 1
            faults |= dict.fromkeys(desk.english_on(page), path)
    assert seen > 90
    assert faults == {}, "\n".join(f"{path}: {text}" for text, path in faults.items())


def test_no_form_that_was_sent_has_english_left(desk: Desk) -> None:
    faults: dict[str, str] = {}
    for path, values in presses(desk):
        page = desk.browser.post(path, values, follow=True)
        faults |= dict.fromkeys(desk.english_on(page), f"{path} {values}")
    assert faults == {}, "\n".join(f"{path}: {text}" for text, path in faults.items())


def test_what_a_live_page_is_told_is_chinese(desk: Desk) -> None:
    said = desk.browser.get(reverse("admin:shop_sale_room_live", args=[desk.card.sale_id])).json()
    page = "".join([*said["parts"].values(), f"<p>{said['summary']}</p>"])
    assert english_in(page, data=desk.data, parts=desk.parts) == []
    assert "活动进行中" in said["summary"]


def test_the_control_one_message_less_is_found(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.english_on(desk.browser.get("/admin/")) == []
    catalogues: Any = trans_real.translation(CHINESE)._catalog  # type: ignore[attr-defined]
    for each in catalogues._catalogs:
        monkeypatch.delitem(each, "Live stock", raising=False)
    assert desk.english_on(desk.browser.get("/admin/")) == ["Live stock"]


def test_the_same_pages_are_english_for_others(desk: Desk) -> None:
    """The control: nothing is Chinese by itself, and a reading that all share speaks to each in their own language."""
    room = reverse("admin:shop_sale_room", args=[desk.card.sale_id])
    assert "The sale is open." in " ".join(texts_of(browser_of().get(room).content.decode()))
    assert "活动进行中" in " ".join(texts_of(desk.browser.get(room).content.decode()))


@pytest.mark.parametrize("path", ["/admin/", "/admin/login/", "/admin/second-factor/enrol/", "/admin/shop/sale/?q=x"])
def test_each_page_has_the_switch_as_a_plain_form(path: str) -> None:
    browser = Client() if "login" in path else browser_of()
    for language, button in (("zh-Hans", "简体中文"), ("en", "English")):
        page = browser.get(path).content.decode()
        tongue = r'<form class="tongue" method="post" action="(/language/[^"]*)">(.*?)</form>'
        ((choose, form),) = re.findall(tongue, page, re.DOTALL)
        code = language.lower()
        assert f'<button name="language" value="{code}" lang="{language}">{button}</button>' in form
        answer = browser.post(choose, {"language": code})
        assert (answer.status_code, answer["Location"]) == (303, path)
        # After a press that was refused, the browser asks for the same address.
        assert browser.get(choose)["Location"] == path
        assert f'<html lang="{code}"' in browser.get(path).content.decode()


def test_exports_for_spreadsheets_have_heads_in_the_readers_language(desk: Desk) -> None:
    orders = reverse("admin:shop_order_export") + f"?q={desk.order.request_id}"
    head, row = b"".join(desk.browser.get(orders)).decode("utf-8-sig").splitlines()  # type: ignore[call-overload]
    assert head.split(",")[:3] == ["订单号", "请求编号", "活动"]
    assert ",held," in row  # a program that reads on finds the same values in every language
    english = b"".join(browser_of().get(orders)).decode()  # type: ignore[call-overload]
    assert english.splitlines()[0] == ",".join(order_export.COLUMNS)
    assert set(order_export.COLUMNS) | set(revenue_page.COLUMNS) == set(codes.COLUMNS)


def test_what_is_stored_is_the_same_in_every_language(desk: Desk) -> None:
    """A log of acts is for everybody who reads it, no matter who acted."""
    name = f"新条款{token_hex(3)}"
    values = {"name": name, "price": "5", "currency": "EUR", "per_buyer_limit": 1, "hold_seconds": 60}
    values |= {"line_capacity": 5}
    desk.browser.post(reverse("admin:shop_termstemplate_add"), values)
    newest = StaffAct.objects.filter(actor=desk.user.username, act=AccountAct.FORM).first()
    assert newest is not None
    assert newest.detail == f"termstemplate: Added “{name}”."
    TermsTemplate.objects.get(name=name).delete()


def test_every_name_code_and_default_refusal_is_in_the_catalogue() -> None:
    with translation.override(CHINESE):
        said = [str(model._meta.verbose_name) for config in apps.get_app_configs() for model in config.get_models()]
        said += [str(model._meta.verbose_name_plural) for model in admin.site._registry]
        said += [str(field.verbose_name) for model in admin.site._registry for field in model._meta.fields]
        codes_of = (AccountAct, Reason, State, NoticeResult, BulkReason, Payment.State, StockMovement.Kind)
        codes_of += (Sale.OperatorState,)
        said += [translation.gettext(code) for each in codes_of for code in each]
        said += [translation.gettext(reason) for reason in dead_letters.REASONS.values()]
    assert [text for text in said if re.search("[a-z]{2}", text)] == []
    with translation.override("en"):
        assert in_words(exceptions.SaleNotFound().detail) == "There is no such sale."


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("from 10.0.0.1", "来自 10.0.0.1"),
        ("no such account; from 10.0.0.1", "没有此账号；来自 10.0.0.1"),
        ("price 5.00 → 6.00, line_capacity 3 → 4", "价格 5.00 → 6.00，队列容量 3 → 4"),
        ("room 3 → 4", "队列容量 3 → 4"),  # as acts of before say it
        ("switch on → paused", "开关 启用 → 已暂停"),
        ("+5 units, total 3 → 8", "+5 件，总数 3 → 8"),
        ("sale: Added “x”.", "活动：添加了“x”。"),
        ("product: Changed “x” — Changed Title and Picture.", "商品：修改了“x”—更改了标题、图片。"),
        ("there is no stock of a-b", "没有 a-b 的库存"),
        ("something of a person's own", "something of a person's own"),
        ("", ""),
    ],
)
def test_what_is_stored_in_english_is_shown_in_chinese(stored: str, shown: str) -> None:
    with translation.override(CHINESE):
        assert in_words(stored) == shown
    with translation.override("en"):
        assert in_words(stored) == stored
