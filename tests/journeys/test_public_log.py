"""The public log in a real browser, with a real notary: a ticket's page checks its own place and says ✓ only after all
of it; the log's page replays the sale. Controls: with a part of the proof or of the log tampered with, both say so.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from shop.models import Order
from shop.salelog.models import SaleLog
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.staff.lists.order_acts import do_act
from tests.journeys.visits import DESKTOP, PHONE, Visit
from tests.support import road
from tests.support.http_calls import Caller
from tests.support.sale_logs import leaves, told
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import let_holds_end
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
Change = Callable[[dict[str, Any]], dict[str, Any]]
VERDICTS = {"en-GB": "Every rule holds.", "zh-CN": "所有规则均成立"}
NO_ED25519 = "crypto.subtle.importKey = () => Promise.reject(new Error('unknown'));"


@pytest.fixture(scope="module", autouse=True)
def notary(
    whole_shop: Caller, lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("notary")
    command = [sys.executable, "manage.py", "run_worker", "notary"]
    with running_process("notary", command, environment=lasting_environment, folder=folder):
        yield


def sees_part(one: Visit, part: str, *, why: str = "") -> None:
    """Wait until the ticket says this of its place in the log, and nothing else."""
    expect(one.page.locator(f"[data-part={part}]")).to_be_visible()
    expect(one.page.locator("[data-part]:visible")).to_have_count(1)
    if why:
        expect(one.page.locator(f"[data-why={why}]")).to_be_visible()
        expect(one.page.locator("[data-why]:visible")).to_have_count(1)


def tamper(one: Visit, address: str, change: Change) -> None:
    """Let every answer of the shop to `address`, a pattern, come changed."""

    def changed(route: Route) -> None:
        answer = route.fetch()
        if not answer.ok:
            return route.fulfill(response=answer)
        return route.fulfill(response=answer, body=json.dumps(change(answer.json())))

    one.page.route(re.compile(address), changed)


def test_the_ticket_checks_its_own_place(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = open_sale(units=2), visit()
    road.queue(card, "somebody-0000000000000001")
    one.get_one(card)
    sees_part(one, "good")
    expect(one.page.locator("[data-part=good]")).to_have_text("Place 2 of 2, in the public log ✓")
    one.check_page()
    one.picture("ticket-in-log")
    kept = f"JSON.parse(localStorage.getItem('fairdrop:log:{card.log_kept_as}')).size"
    before = one.page.evaluate(kept)
    road.queue(card, *(f"later-{number:020d}" for number in range(30)))
    wait_until(lambda: [each[0] for each in told(card)].count("admitted") == 32, what="more is published")
    one.reload()
    sees_part(one, "good")
    expect(one.page.locator("[data-part=good]")).to_have_text("Place 2 of 32, in the public log ✓")
    assert one.page.evaluate(kept) > before
    one.page.locator("[data-part=good] a").click()
    one.page.wait_for_url(f"**/sales/{card.slug}/verify/")


def test_ordinals_that_were_lost_count_as_no_places(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = open_sale(units=3), visit()
    road.queue(card, "somebody-0000000000000001")
    one.get_one(card)
    sees_part(one, "good")
    wait_until_held(card, 2)  # now the notary writes no more of this log
    SaleLog.objects.filter(sale_id=card.sale_id).update(lost=[[1, 1], [3, 1_000_000]], ordinal=1_000_004)
    one.reload()
    sees_part(one, "good")
    expect(one.page.locator("[data-part=good]")).to_have_text("Place 1 of 5, in the public log ✓")


def test_the_line_stays_when_the_page_puts_the_ticket_in_again(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = open_sale(units=1), visit(locale="zh-CN")
    (holder,) = road.queue(card, "holder-0000000000000001")
    one.wait_in_line(card)
    sees_part(one, "good")
    expect(one.page.locator("[data-part=good]")).to_have_text("第 2 位，共 2 位，已在公开日志中 ✓")
    one.page.evaluate("window.stayed = true")
    let_holds_end(holder)
    one.sees_state("held")
    sees_part(one, "good")
    assert one.page.evaluate("window.stayed")


def test_until_it_is_published_the_ticket_says_so(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = open_sale(units=1), visit()
    one.page.add_init_script("performance.now = () => 0")  # it says after a minute that its place may be late
    answered, may_tell = list[int](), threading.Event()

    def not_yet(route: Route) -> None:
        if may_tell.is_set():
            answer = route.fetch()
            answered.append(answer.status)
            return route.fulfill(response=answer)
        answered.append(404)
        problem = {"code": "request_not_found", "status": 404}
        return route.fulfill(status=404, json=problem, content_type="application/problem+json")

    one.page.route("**/proof", not_yet)
    one.get_one(card)
    wait_until(lambda: one.page.title() and len(answered) >= 2, what="it asks again")
    sees_part(one, "waits")
    may_tell.set()
    sees_part(one, "good")
    assert answered == [404] * (len(answered) - 1) + [200]


def change_leaf(**words: Any) -> Change:
    return lambda proof: {**proof, "leaf": json.dumps({**json.loads(proof["leaf"]), **words}, separators=(",", ":"))}


def other_root(proof: dict[str, Any]) -> dict[str, Any]:
    lines = proof["checkpoint"].split("\n")
    return {**proof, "checkpoint": "\n".join([*lines[:2], b64encode(bytes(32)).decode(), *lines[3:]])}


PROOF, KEYS = r"/proof$", r"/\.well-known/fairdrop-keys$"
TAMPERED: dict[str, tuple[str, Change, str]] = {
    "another seq": (PROOF, change_leaf(seq=1), "leaf"),
    "another quantity": (PROOF, change_leaf(quantity=2), "leaf"),
    "another request": (PROOF, change_leaf(request="1-AAAAAAAAAAAAAAAAAAAAAA"), "leaf"),
    "another kind": (PROOF, change_leaf(kind="decided"), "leaf"),
    "an earlier place": (PROOF, change_leaf(ordinal=1), "tree"),
    "another pseudonym": (PROOF, change_leaf(holder="friend"), "tree"),
    "a path too short": (PROOF, lambda proof: {**proof, "path": proof["path"][1:]}, "tree"),
    "another index": (PROOF, lambda proof: {**proof, "index": proof["index"] - 1}, "tree"),
    "another root": (PROOF, other_root, "signed"),
    "a checkpoint cut short": (PROOF, lambda proof: {**proof, "checkpoint": proof["checkpoint"][:40]}, "read"),
    "no proof at all": (PROOF, lambda _: {}, "read"),
    "no key": (KEYS, lambda _: [], "signed"),
    "a key of nobody": (KEYS, lambda keys: [{**each, "public": "A" * 43} for each in keys], "signed"),
}  # fmt: skip


@pytest.mark.parametrize("status", [200, 403, 404])
@pytest.mark.parametrize("address", [PROOF, KEYS], ids=["proof", "keys"])
def test_an_answer_that_is_not_the_shops_accuses_nobody(
    open_sale: MakeSale, visit: OpenVisit, address: str, status: int
) -> None:
    card, one = open_sale(units=1), visit()
    asked: list[str] = []

    def log_in_first(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=status, content_type="text/html", body="<!doctype html><title>Log in</title>")

    one.page.route(re.compile(address), log_in_first)
    one.get_one(card)
    wait_until(lambda: one.page.title() and len(asked) >= 2, what="it asks again")
    sees_part(one, "waits")
    one.page.unroute(re.compile(address))
    sees_part(one, "good")


@pytest.mark.parametrize("name", TAMPERED)
def test_a_proof_that_was_tampered_with_is_never_confirmed(open_sale: MakeSale, visit: OpenVisit, name: str) -> None:
    address, change, why = TAMPERED[name]
    card, one = open_sale(units=2), visit()
    road.queue(card, "somebody-0000000000000001")
    tamper(one, address, change)
    one.get_one(card)
    sees_part(one, "wrong", why=why)
    expect(one.page.locator("[data-part=wrong]")).to_contain_text("does not agree with the public log")
    if name == "another root":
        one.check_page()
        one.picture("ticket-not-in-log")


KEPT: dict[str, str] = {
    "another root": "kept.root = btoa(String.fromCharCode(...new Uint8Array(32)))",
    "a longer log": "kept.size += 1000",
    "another key": "kept.keys = { '00000000': 'A'.repeat(43) }",
    "another shop": "kept.origin = `other.example/sales/x`",
}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_a_log_that_is_not_the_one_seen_before_is_said(
    open_sale: MakeSale, visit: OpenVisit, name: str, *, grows: bool
) -> None:
    card, one = open_sale(units=1), visit()
    one.get_one(card)
    sees_part(one, "good")
    where = f"'fairdrop:log:{card.log_kept_as}'"
    one.page.evaluate(
        f"const kept = JSON.parse(localStorage.getItem({where})); {KEPT[name]};"
        f" localStorage.setItem({where}, JSON.stringify(kept));"
    )
    if grows:
        before = len(leaves(card))
        road.queue(card, "later-00000000000000000001")
        wait_until(lambda: len(leaves(card)) > before, what="more is published")
    one.reload()
    sees_part(one, "wrong", why="kept")


@pytest.mark.parametrize("terms", [{"java_script_enabled": False}, {}])
def test_a_browser_that_cannot_check_says_where_to(
    open_sale: MakeSale, visit: OpenVisit, terms: dict[str, Any]
) -> None:
    card, one = open_sale(units=1), visit(**terms)
    if not terms:
        one.context.add_init_script(NO_ED25519)
    one.get_one(card)
    sees_part(one, "cannot")
    wait_until(lambda: SaleLog.objects.filter(sale_id=card.sale_id, size__gt=0).exists(), what="it is published")
    one.page.get_by_role("link", name="how to check it").click()
    expect(one.page.locator("h1")).to_have_text("The public log of this sale")
    one.sees(f"/sales/{card.slug}/ --keep checkpoints")


# --- the page of the log


def wait_until_held(card: SaleCard, times: int) -> None:
    """Wait until the log says so many times that units are held."""

    def held() -> bool:
        is_begun = SaleLog.objects.filter(sale_id=card.sale_id, size__gt=0).exists()
        return is_begun and [each[:2] for each in told(card)].count(("decided", "held")) >= times

    wait_until(held, what=f"{times} were held")


def lively_sale(make: MakeSale) -> SaleCard:
    """Return a sale in which units were given, came back, and went on; all of it is published."""
    card = make(units=3)
    names = road.queue(card, *(f"crowd-{number:020d}" for number in range(12)))
    wait_until_held(card, 3)
    let_holds_end(names[0])
    wait_until_held(card, 4)
    sale_control.restock(card.slug, units=1, actor="anna", reason="one more came")
    wait_until_held(card, 5)
    return card


def see_log(one: Visit, card: SaleCard, verdict: str) -> None:
    one.go(f"/sales/{card.slug}/verify/")
    expect(one.page.locator("[data-verdict]")).to_contain_text(verdict)


def marks(one: Visit) -> dict[str, str]:
    """Return by rule the mark that the page gives it."""
    found = one.page.locator("[data-rule]").all()
    return {str(each.get_attribute("data-rule")): each.locator("[data-mark]").inner_text() for each in found}


@pytest.mark.parametrize("locale", VERDICTS)
def test_the_page_replays_a_sale(open_sale: MakeSale, visit: OpenVisit, locale: str) -> None:
    card, one = lively_sale(open_sale), visit(locale=locale, viewport=DESKTOP)
    see_log(one, card, VERDICTS[locale])
    assert set(marks(one).values()) == {"✓", "–"}
    assert [rule for rule, mark in marks(one).items() if mark == "–"] == ["kept", "answered"]  # it is not over yet
    expect(one.page.locator("[data-fact=came]")).to_have_text("12")
    expect(one.page.locator("[data-fact=got]")).to_have_text("5")
    expect(one.page.locator("[data-fact=voided]")).to_have_text("0")
    expect(one.page.locator(".plot canvas")).to_have_count(2)
    expect(one.page.locator("[data-rows=returns] tr")).to_have_count(1)
    expect(one.page.locator("[data-rows=acts] tr")).to_have_count(1)
    expect(one.page.locator("[data-rows=acts]")).to_contain_text("restock")
    one.page.locator("[data-second]").fill("0")
    expect(one.page.locator("[data-rows=second] tr").first).to_contain_text(
        "The sale opened" if "en" in locale else "发售开始"
    )
    one.check_page()
    one.picture(f"log-{locale}")
    one.reload()
    expect(one.page.locator("[data-rule=kept] [data-mark]")).to_have_text("✓")


@pytest.mark.parametrize(("locale", "words"), [("en-GB", "Suspected fraud: 2"), ("zh-CN", "疑似欺诈: 2")])
def test_voided_orders_are_counted_by_reason(open_sale: MakeSale, visit: OpenVisit, locale: str, words: str) -> None:
    card, one = lively_sale(open_sale), visit(locale=locale, viewport=DESKTOP)
    for reason in ("suspected_fraud: one script", "suspected_fraud", "faulty"):
        order = Order.objects.filter(sale_id=card.sale_id, state="held").earliest("id")
        do_act(order, "void", actor="anna", reason=reason)
    wait_until(lambda: [each[1:] for each in told(card)].count(("void_order", "faulty")) == 1, what="it is published")
    see_log(one, card, VERDICTS[locale])
    expect(one.page.locator("[data-fact=voided]")).to_contain_text(words)
    expect(one.page.locator("[data-fact=voided]")).to_contain_text(": 1")
    one.check_page()
    one.picture(f"log-voided-{locale}")


def test_what_came_back_is_shown_with_where_it_went(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit(viewport=PHONE)
    published = [json.loads(leaf) for leaf in leaves(card)]
    back = next(leaf["n"] for leaf in published if leaf["kind"] == "ended")
    taker = next(leaf["request"] for leaf in published[back:] if leaf.get("outcome") == "held")
    see_log(one, card, "Every rule holds.")
    expect(one.page.locator("[data-rows=returns] tr")).to_contain_text(f"went to {taker}")
    last = int(one.page.locator("[data-second]").get_attribute("max") or 0)
    one.page.locator("[data-second]").fill("0")
    one.page.locator("[data-play]").click()
    expect(one.page.locator("[data-second]")).to_have_js_property("value", str(last))
    expect(one.page.locator("[data-play]")).to_have_text("Play")


def test_the_log_can_be_taken_home(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit()
    see_log(one, card, "Every rule holds.")
    one.page.locator("[data-lines]").click()
    with one.page.expect_download() as download:
        one.page.locator("[data-file]").click()
    assert Path(download.value.path()).read_bytes().splitlines() == leaves(card)
    assert download.value.suggested_filename == f"{card.slug}.jsonl"


def test_a_tile_that_was_tampered_with_is_named(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit()

    def changed(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.body().replace(b'"outcome":"held"', b'"outcome":"hexd"', 1))

    one.page.route("**/tile/entries/**", changed)
    see_log(one, card, "Broken so far: 4 of 13 rules.")
    # What cannot be read decided nobody: who had the place waits on while others are decided, and cannot end.
    assert {rule for rule, mark in marks(one).items() if mark == "✗"} == {"tree", "format", "life", "order"}
    one.check_page()
    one.picture("log-tampered")


def test_a_log_that_cannot_be_read_is_said(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit()
    one.page.route("**/tile/entries/**", lambda route: route.fulfill(status=404))
    see_log(one, card, "The log could not be read to its end")
    assert "✓" not in {mark for rule, mark in marks(one).items() if rule != "signed"}


def test_without_ed25519_the_page_says_what_it_left_out(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit()
    # A worker has a crypto of its own: the module that asks it is changed on its way.
    one.page.route(
        "**/log/note.js",
        lambda route: route.fulfill(
            response=(answer := route.fetch()),
            body=answer.text().replace("crypto.subtle.importKey", "crypto.none.importKey"),
        ),
    )
    see_log(one, card, "this browser cannot check signatures")
    assert marks(one)["signed"] == "–"
    assert one.page.evaluate(f"localStorage.getItem('fairdrop:log:{card.log_kept_as}')") is None


def test_without_script_the_page_says_what_the_shop_says(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, one = lively_sale(open_sale), visit(java_script_enabled=False, viewport=DESKTOP)
    one.see_sale(card)
    one.page.get_by_role("link", name="The public log of this sale").click()
    one.sees("Without script this browser checks nothing.")
    expect(one.page.locator("[data-rows=latest] tr")).to_have_count(min(20, len(leaves(card))))
    one.picture("log-no-script")
