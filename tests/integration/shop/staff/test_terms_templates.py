"""Proves that terms of a sale are kept under a name, and that the next sale begins with them. Real servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from secrets import token_hex
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from inventory.models import Stock
from shop.models import Sale, TermsTemplate
from tests.integration.shop.staff.test_new_sale import ADD, filled
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of, new_user

pytestmark = pytest.mark.usefixtures("shop_database")
PASSWORD = "a long and secret password"


def test_terms_are_kept_and_a_new_sale_begins_with_them(new_sku: Callable[[], str]) -> None:
    client, name, sku = browser_of("manager"), f"Evening & night {token_hex(4)}", new_sku()
    assert client.post(ADD, filled(sku, keep_terms_as=name, per_buyer_limit=3)).status_code == 302
    kept = TermsTemplate.objects.get(name=name)
    assert (str(kept.price), kept.currency, kept.per_buyer_limit, kept.hold_seconds, kept.line_capacity) == (
        "49.00", "EUR", 3, 600, 200,
    )  # fmt: skip
    page = client.get(ADD).content.decode()
    links = re.findall(r'href="\?([^"]*)" data-fills>([^<]*)<', page)
    (query,) = [query for query, text in links if text == name.replace("&", "&amp;")]
    form = client.get(f"{ADD}?{query.replace('&amp;', '&')}").context["adminform"].form
    for field, (value,) in parse_qs(query.replace("&amp;", "&")).items():
        assert str(form[field].value()) == value
    assert str(form["per_buyer_limit"].value()) == "3"


def test_the_same_name_replaces_and_no_sale_changes_with_it(new_sku: Callable[[], str]) -> None:
    client, name, first, second = browser_of("manager"), f"Ours {token_hex(4)}", new_sku(), new_sku()
    assert client.post(ADD, filled(first, keep_terms_as=name)).status_code == 302
    assert client.post(ADD, filled(second, keep_terms_as=name, price="7")).status_code == 302
    assert str(TermsTemplate.objects.get(name=name).price) == "7.00"
    assert str(Sale.objects.get(slug=f"{first}-drop").price) == "49.00"
    kept = TermsTemplate.objects.get(name=name)
    assert client.post(f"/admin/shop/termstemplate/{kept.pk}/delete/", {"post": "yes"}).status_code == 302
    assert str(Sale.objects.get(slug=f"{second}-drop").price) == "7.00"


def test_a_form_that_is_refused_keeps_nothing_and_kept_terms_have_the_same_bounds(new_sku: Callable[[], str]) -> None:
    client, name = browser_of("manager"), f"Ours {token_hex(4)}"
    assert client.post(ADD, filled(new_sku(), keep_terms_as=name, currency="zz")).status_code == 200
    wrong = {"currency": "zz", "per_buyer_limit": 0, "hold_seconds": 1, "line_capacity": 10**7}
    answer = client.post("/admin/shop/termstemplate/add/", {"name": name, "price": "1", **wrong})
    assert set(answer.context["adminform"].form.errors) == wrong.keys()
    assert not TermsTemplate.objects.filter(name=name).exists()


def test_a_running_sale_gives_its_terms_too(new_sku: Callable[[], str]) -> None:
    client, card, name = browser_of("manager"), make_sale(new_sku(), units=3, limit=4), f"Ours {token_hex(4)}"
    sale = Sale.objects.get(slug=card.slug)
    form = client.get(f"/admin/shop/sale/{sale.pk}/change/").context["adminform"].form
    data = {each: form.initial.get(each) for each in form.fields if not each.endswith("_at")} | {"keep_terms_as": name}
    for each in ("opens_at", "closes_at"):
        moment = getattr(sale, each)
        data |= {f"{each}_0": moment.date(), f"{each}_1": moment.strftime("%H:%M:%S")}
    assert client.post(f"/admin/shop/sale/{sale.pk}/change/", data).status_code == 302
    assert TermsTemplate.objects.get(name=name).per_buyer_limit == 4


def test_only_managers_keep_terms(new_sku: Callable[[], str]) -> None:
    user, sku, name = new_user("none"), new_sku(), f"Ours {token_hex(4)}"
    codes = ["add_sale", "add_product", "change_stock"]
    user.user_permissions.set(Permission.objects.filter(codename__in=codes, content_type__app_label="shop"))
    client = browser_of(user=user)
    assert 'name="keep_terms_as"' not in client.get(ADD).content.decode()
    assert client.post(ADD, filled(sku, keep_terms_as=name)).status_code == 302
    assert not TermsTemplate.objects.filter(name=name).exists()
    assert browser_of("viewer").get("/admin/shop/termstemplate/").status_code == 403
    assert browser_of("manager").get("/admin/shop/termstemplate/").status_code == 200


def test_the_password_of_a_new_sale_is_hashed_before_its_transaction(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends one that rests for some seconds. The control is the form that compares it itself."""
    seen, user = [], new_user("manager")

    def compare(_user: User, _password: str) -> bool:
        seen.append(connection.in_atomic_block)
        return True

    monkeypatch.setattr(User, "check_password", compare)
    for is_early in (True, False):
        if not is_early:
            monkeypatch.setattr("shop.admin.is_own_password", lambda _request, _password: True)
        client = browser_of(user=user)
        session = client.session
        del session["password_at"]
        session.save()
        assert client.post(ADD, filled(new_sku(), password=PASSWORD)).status_code == 302
    assert seen == [False, True]


def test_a_new_product_asks_for_the_password_again(new_sku: Callable[[], str]) -> None:
    """Its units come into the shop. A sale of a product there is asks for none."""
    sku, card, user = new_sku(), make_sale(new_sku(), units=3), new_user("manager")
    user.set_password(PASSWORD)
    user.save()
    client = browser_of(user=user)
    session = client.session
    del session["password_at"]
    session.save()
    assert 'type="password" name="password"' in client.get(ADD).content.decode()
    for guess in ({}, {"password": ""}, {"password": "a guess"}):
        answer = client.post(ADD, filled(sku) | guess)
        assert list(answer.context["adminform"].form.errors) == ["password"]
        assert "a guess" not in answer.content.decode()
        assert not Stock.objects.filter(sku=sku).exists()
    only = {"product": card.sale_id and Sale.objects.get(slug=card.slug).product_id, "sku": "", "units": "",
            "list_price": "", "tagline": "", "picture": ""}  # fmt: skip
    later = {"opens_at_0": "2100-01-01", "closes_at_0": "2100-01-02"}
    assert client.post(ADD, filled(new_sku(), **only, **later)).status_code == 302
    # Right, and then not asked again for some minutes, also when another field is wrong.
    answer = client.post(ADD, filled(sku, currency="zz", password=PASSWORD))
    assert list(answer.context["adminform"].form.errors) == ["currency"]
    assert 'type="password"' not in client.get(ADD).content.decode()
    assert client.post(ADD, filled(sku)).status_code == 302
    assert Stock.objects.get(sku=sku).total == 12
