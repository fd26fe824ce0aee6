"""Proves that the log of acts says of what forms of the admin changed what it was and what it is, but for passwords and
files. Uses the real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import translation

from shop.models import Product, StaffAct, TermsTemplate
from shop.names.sentences import in_words
from tests.integration.shop.staff.test_new_sale import ADD, filled
from tests.support.pictures import picture
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of, new_user

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def staff() -> Client:
    """Return a browser with a superuser in it."""
    return browser_of()


def saved(client: Client, name: str, row: Any, **changes: Any) -> str:
    """Send the form of a row with changes; return what the log of acts says of it."""
    path = reverse(f"admin:{name}_change", args=[row.pk])
    form = client.get(path).context["adminform"].form
    data = {each: value for each in form.fields if (value := form[each].value()) not in (None, False)}
    joined = data.pop("date_joined", None)
    data |= {"date_joined_0": joined.date(), "date_joined_1": joined.strftime("%H:%M:%S")} if joined else {}
    answer = client.post(path, data | changes)
    assert answer.status_code == 302, answer.context["errors"]
    act = StaffAct.objects.filter(act="form").first()
    assert act is not None
    return act.detail


def test_a_product_says_what_it_was_and_is(staff: Client, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    product = Product.objects.get(slug=card.sku)
    assert saved(staff, "shop_product", product, title="Paper kite", tagline_zh="手工折成").endswith("手工折成")
    detail = saved(staff, "shop_product", product, title="Tea set", description="x" * 500, list_price="21.5")
    assert detail.startswith("product: Changed “Tea set” — Changed Title, Description and List price.; ")
    told = detail.split("; ")[1]
    assert told.startswith(f"title {product.title} → Tea set, description – → xxx")
    assert told.endswith(f"…, list_price {product.list_price} → 21.5")
    with translation.override("zh-hans"):
        assert "标题 Paper kite → Tea set" in in_words(detail)


def test_of_a_file_the_log_says_its_field_alone(staff: Client, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    file = SimpleUploadedFile("tea.png", picture(), content_type="image/png")
    detail = saved(staff, "shop_product", Product.objects.get(slug=card.sku), upload=file, title="Tea set")
    assert detail == "product: Changed “Tea set” — Changed Title and Picture.; title Paper kite → Tea set"


def test_kept_terms_say_it_by_their_own_form_and_by_that_of_a_sale(staff: Client, new_sku: Callable[[], str]) -> None:
    name = f"Ours {token_hex(4)}"
    assert staff.post(ADD, filled(new_sku(), keep_terms_as=name)).status_code == 302
    assert StaffAct.objects.filter(detail=f"termstemplate: Added “{name}”.").count() == 1
    kept = TermsTemplate.objects.get(name=name)
    detail = saved(staff, "shop_termstemplate", kept, price="5.00", per_buyer_limit=3)
    changed = f"termstemplate: Changed “{name}” — Changed Price and Limit per buyer.; "
    assert detail == f"{changed}price 49.00 → 5.00, per_buyer_limit 2 → 3"
    # By the form of the next sale: back to what it was.
    assert staff.post(ADD, filled(new_sku(), keep_terms_as=name)).status_code == 302
    assert StaffAct.objects.filter(detail=f"{changed}price 5.00 → 49.00, per_buyer_limit 3 → 2").count() == 1
    # The same terms again change nothing, so nothing is written.
    assert staff.post(ADD, filled(new_sku(), keep_terms_as=name)).status_code == 302
    assert StaffAct.objects.filter(detail__contains=name).count() == 3


def test_an_account_and_a_role_say_which_rights_came_and_went(staff: Client) -> None:
    person, role = new_user("viewer"), Group.objects.create(name=f"role-{token_hex(4)}")
    operator = Group.objects.get(name="operator")
    detail = saved(staff, "auth_user", person, first_name="Anna", is_staff="", groups=[operator.pk])
    assert detail.endswith("; first_name – → Anna, is_staff yes → no, groups viewer → operator")
    first, second = Permission.objects.filter(codename__in=["pause_sale", "close_sale"]).order_by("codename")
    role.permissions.add(first)
    detail = saved(staff, "auth_group", role, permissions=[second.pk])
    assert detail.endswith("; permissions close_sale → pause_sale")
    with translation.override("zh-hans"):
        assert in_words("user: Changed “x” — Changed Groups.; is_staff yes → no").endswith("；员工身份 是 → 否")


def test_no_password_is_ever_written(staff: Client) -> None:
    person, word = new_user("viewer"), f"Long-and-{token_hex(8)}"
    path = reverse("admin:auth_user_password_change", args=[person.pk])
    data = {"usable_password": "true", "password1": word, "password2": word}
    assert staff.post(path, data).status_code == 302
    person.refresh_from_db()
    assert person.check_password(word)
    act = StaffAct.objects.filter(act="form").first()
    assert act is not None
    assert act.detail == f"user: Changed “{person.username}” — Changed password."
    # The control: what else the account has is written, and neither word nor digest of it.
    detail = saved(staff, "auth_user", person, last_name="Bell", password=word)
    assert detail.endswith("; last_name – → Bell")
    for text in StaffAct.objects.filter(act="form").values_list("detail", flat=True)[:5]:
        assert word not in text
        assert person.password[:20] not in text
