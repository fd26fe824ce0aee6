"""The control room: what it shows, that many viewers share one audit, that each act is confirmed and logged, and
that a stale form is refused. Real servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client, override_settings
from django.urls import reverse

from inventory import reconcile_requests, redis
from inventory.line.writing import MAX_HAND_OUTS, REFUSAL_TRIES
from inventory.models import Stock, StockMovement
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.redis import keys
from shop.models import Sale, StaffAct
from shop.sales.catalogue import SaleCard
from shop.staff import control_room, line_actions, readings, shared_reading
from shop.staff.actions import ROOM_ACTS
from shop.staff.room import history, speed
from shop.staff.shared_reading import shared
from tests.support.road import held_lock, own_connection, queue, run, settle_line, take
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.staff import browser_of, count_queries
from workers.embedded.server import free_port
from workers.reconciler import recorder
from workers.reconciler.loop import Reconciler
from workers.reconciler.requested import compare_asked

pytestmark = pytest.mark.usefixtures("shop_database")

REASON = "because a test says so"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


@pytest.fixture
def manager() -> Client:
    return browser_of("manager")


def no_cache() -> override_settings:
    """Let the cache be away."""
    away = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{free_port()}/0",
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 0.2, "IGNORE_EXCEPTIONS": True},
    }
    return override_settings(CACHES={"default": away})


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look be a new reading: for tests that look, act and look again."""
    monkeypatch.setattr(control_room, "ROOM_SECONDS", 0)
    monkeypatch.setattr(shared_reading, "TIMES_AS_LONG", 0)
    monkeypatch.setattr(speed, "SPEED_SECONDS", 3600)  # a busy machine may take long from a decision to the look at it

    def forget(name: str, make: Callable[..., Any], *, every_seconds: float) -> dict[str, Any]:
        cache.delete(f"{name}:reading")
        return shared(name, make, every_seconds=every_seconds)

    monkeypatch.setattr(control_room, "shared", forget)


def room(card: SaleCard) -> str:
    return reverse("admin:shop_sale_room", args=[card.sale_id])


def live(browser: Client, card: SaleCard, **query: Any) -> dict[str, Any]:
    answer = browser.get(reverse("admin:shop_sale_room_live", args=[card.sale_id]), query)
    assert answer.status_code == 200
    said: dict[str, Any] = answer.json()
    return said


def act_of(card: SaleCard, name: str) -> str:
    return reverse("admin:shop_sale_room_act", args=[card.sale_id, name])


def do(browser: Client, card: SaleCard, name: str, **values: Any) -> Any:
    """Fill in the form of an act as it is shown, and confirm it."""
    form = browser.get(act_of(card, name))
    seen = {"seen_act": form.context["seen_act"], "seen_token": form.context["form"].initial["seen_token"]}
    return browser.post(act_of(card, name), {"reason": REASON, **seen, **values}, follow=True)


def set_aside(card: SaleCard, buyer: str) -> str:
    """Let a request be handed out so often, each time to a holder that dies, that it is set aside undecided."""
    (name,) = queue(card, buyer)
    for _ in range(MAX_HAND_OUTS + REFUSAL_TRIES + 1):
        lock = held_lock(card.sku)
        take(lock, batch=1)
        lock.release()
    return name


def test_it_shows_counts_line_invariants_movements_and_acts(manager: Client, card: SaleCard, fresh: None) -> None:
    queue(card, "ann")
    settle_line(card)
    queue(card, "bob")
    do(manager, card, "pause", reason="a fault at packing")
    said = live(manager, card)
    parts = said["parts"]
    assert set(parts) == set(control_room.PARTS)
    assert re.findall(r"<dt>(free|held|in line)</dt><dd>(\d+)", parts["numbers"]) == [
        ("free", "2"),
        ("held", "1"),
        ("in line", "1"),
    ]
    assert "Paused: a fault at packing" in parts["numbers"]
    assert parts["invariants"].count("live-good") >= 20
    assert "hold" in parts["movements"]
    assert "a fault at packing" in parts["acts"]
    assert said["summary"] == "The sale is paused. Every invariant holds."
    assert said["ok"]
    shown = manager.get(room(card)).content.decode()
    for part in (parts["movements"], parts["acts"]):
        assert part in shown  # without script it is the same


def test_a_broken_invariant_is_a_red_light(manager: Client, card: SaleCard, fresh: None) -> None:
    assert live(manager, card)["ok"]
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    said = live(manager, card)
    assert not said["ok"]
    assert "Broken: I15." in said["summary"]
    assert "1 units queued at rest" in said["parts"]["invariants"]


def test_the_points_of_the_charts_go_on_from_where_the_page_is(
    manager: Client, card: SaleCard, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(history, "GAP", timedelta(hours=1))
    worker = recorder.Recorder(redis.connect())
    assert live(manager, card)["points"] == []
    worker.work_once()
    first = live(manager, card)
    assert [point[1:5] for point in first["points"]] == [[3, 0, 0, 0]]
    for _ in range(3):  # the first look knew no pace; then the same row lasts longer
        worker.work_once()
    rested = live(manager, card, after=first["points"][-1][0])["points"]
    assert [point[1:5] for point in rested] == [[3, 0, 0, 0]] * 2
    worker.work_once()
    (longer,) = live(manager, card, after=rested[-1][0])["points"]
    assert longer[1:] == rested[-1][1:]
    queue(card, "ann")
    settle_line(card)
    worker.work_once()
    (point,) = live(manager, card, after=longer[0])["points"]
    assert point[1:5] == [2, 1, 0, 0]
    assert point[5] > 0
    assert 0 < point[6] <= point[7]
    assert live(manager, card, after="nonsense")["points"][0] == first["points"][0]


def test_it_says_what_it_earned_how_long_it_runs_and_what_to_do(manager: Client, card: SaleCard, fresh: None) -> None:
    names = queue(card, "ann", "bob")
    run(("DEL", keys.workers()))  # those of other tests may have spoken a moment ago
    parts = live(manager, card)["parts"]
    assert "No settler runs" in parts["now"]
    settle_line(card)
    pay(names[0])
    run(("DEL", keys.workers()))  # where none is known nobody is told to start one; those of other tests may be
    parts = live(manager, card)["parts"]
    assert re.search(r"Closes in (59|58|57):\d\d\.", parts["now"])
    assert "Nothing: the sale runs." in parts["now"]
    assert re.findall(r"<dt>(sold|orders paid|revenue)</dt><dd>([^<]+)", parts["numbers"]) == [
        ("sold", "1"),
        ("orders paid", "1"),
        ("revenue", "€15.00"),
    ]
    do(manager, card, "pause")
    assert "Resume the sale" in live(manager, card)["parts"]["now"]
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    assert "The books do not agree. Pause the sale" in live(manager, card)["parts"]["now"]


def test_engineering_is_folded_below_what_people_need(manager: Client, card: SaleCard) -> None:
    shown = manager.get(room(card)).content.decode()
    below = shown.index('<details class="room-engineering">')
    for part in ("now", "buttons", "numbers", "acts"):
        assert shown.index(f'data-part="{part}"') < below, part
    for part in ("invariants", "workers", "lock", "letters", "movements"):
        assert shown.index(f'data-part="{part}"') > below, part


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The audits that were made for rooms."""
    made: list[str] = []
    real = readings.audit_sale

    def counting(slug: str) -> dict[str, Any]:
        made.append(slug)
        return real(slug)

    monkeypatch.setattr(readings, "audit_sale", counting)
    return made


def test_many_viewers_share_one_audit(
    manager: Client, card: SaleCard, audits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_room, "ROOM_SECONDS", 300)
    browsers = [manager, browser_of("viewer"), browser_of("operator")]
    for browser in browsers * 2:
        live(browser, card)
        browser.get(room(card))
    assert len(audits) == 1


def test_when_its_time_is_over_a_new_one_is_made(
    manager: Client, card: SaleCard, audits: list[str], fresh: None
) -> None:
    """The control: with no time between, each look is an audit."""
    live(manager, card)
    live(manager, card)
    assert len(audits) == 2


def test_without_the_cache_each_process_shares_with_itself(
    manager: Client, card: SaleCard, audits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_room, "ROOM_SECONDS", 300)
    with no_cache():
        live(manager, card)
        live(manager, card)
    assert len(audits) == 1


def test_without_redis_the_database_is_shown(manager: Client, card: SaleCard) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        shown = manager.get(room(card))
        forms = [manager.get(act_of(card, name)).status_code for name in ROOM_ACTS]
    assert shown.status_code == 200
    assert "Redis does not answer" in shown.content.decode()
    assert set(forms) == {200}


def test_a_look_costs_the_same_for_few_orders_and_for_many(manager: Client, card: SaleCard, fresh: None) -> None:
    queue(card, "first")
    settle_line(card)
    manager.get(room(card))
    few = count_queries(lambda: manager.get(room(card)))
    queue(card, *(f"buyer-{number}" for number in range(40)))
    settle_line(card)
    assert count_queries(lambda: manager.get(room(card))) == few


@pytest.mark.parametrize("name", ROOM_ACTS)
def test_every_act_is_logged_with_actor_and_reason(card: SaleCard, name: str, new_sku: Callable[[], str]) -> None:
    if name == "open_now":
        card = make_sale(new_sku(), units=3, opens_in_seconds=600)
    manager = browser_of("superuser")
    if name == "resume":
        do(manager, card, "pause")
    if name == "retire":
        do(manager, card, "close")
    values = {"units": 2} if name in ("restock", "adjust") else {}
    if name in ("retry", "discard"):
        values = {"letters": [set_aside(card, "ann")]}
    if name in ("revoke", "unrevoke"):
        values = {"network": "192.0.2.0/24"}
    if name == "unrevoke":
        do(manager, card, "revoke", **values)
    lock = held_lock(card.sku) if name == "force_release" else None
    answer = do(manager, card, name, **values)
    assert answer.redirect_chain, answer.content.decode()
    act = StaffAct.objects.filter(sale_id=card.sale_id).first()
    logged = {"open_now": "open", "retry": "retry_letters", "discard": "discard_letters"}.get(name, name)
    assert act is not None
    assert (act.act, act.reason) == (logged, REASON)
    assert act.actor.startswith("superuser-")
    assert act.actor in manager.get(room(card)).content.decode()
    if lock is not None:
        assert not lock.is_locking(remote=True)
        lock.release()


def test_an_act_does_what_it_says(manager: Client, card: SaleCard) -> None:
    do(manager, card, "pause")
    assert Sale.objects.get(pk=card.sale_id).operator_state == "paused"
    do(manager, card, "resume")
    do(manager, card, "restock", units=4)
    do(manager, card, "adjust", units=-1)
    assert Stock.objects.get(sku=card.sku).available == 3 + 4 - 1
    do(manager, card, "close")
    assert Sale.objects.get(pk=card.sale_id).operator_state == "closed"
    assert [act.act for act in StaffAct.objects.filter(sale_id=card.sale_id)] == [
        "close", "adjust", "restock", "resume", "pause",
    ]  # fmt: skip
    assert_books_balance(card)


def test_dead_letters_go_back_or_go(manager: Client, card: SaleCard) -> None:
    name = set_aside(card, "ann")
    assert name in manager.get(act_of(card, "retry")).content.decode()
    assert do(manager, card, "retry", letters=["no-such"]).status_code == 200  # it is no choice of the form
    assert "1 of 1 changed" in do(manager, card, "retry", letters=[name]).content.decode()
    settle_line(card)
    assert_books_balance(card)
    other = set_aside(card, "bob")
    do(manager, card, "discard", letters=[other])
    assert run(("ZCARD", keys.dead_letters(card.sku))) == [0]
    assert_books_balance(card)


def test_an_act_on_more_letters_than_it_can_name_says_so(card: SaleCard) -> None:
    """The control: one that names them all."""
    few, many = ["a-letter"], [f"letter-{number:030}" for number in range(9)]
    for letters in (few, many):
        line_actions.retry_letters(card.slug, letters=letters, actor="olga", reason=REASON)
    cut, whole = StaffAct.objects.filter(sale_id=card.sale_id).values_list("detail", flat=True)
    assert whole == "1: a-letter"
    assert cut == f"9: {' '.join(many)}"[:199] + "…"


def test_a_form_without_a_reason_or_units_changes_nothing(manager: Client, card: SaleCard) -> None:
    for name, values in (("pause", {"reason": ""}), ("restock", {"units": ""}), ("close", {"reason": ""})):
        answer = do(manager, card, name, **values)
        assert answer.context["form"].errors, name
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


def test_what_a_service_refuses_is_said(manager: Client, card: SaleCard) -> None:
    for name, values, text in (
        ("resume", {}, "is not paused"),
        ("adjust", {"units": -9}, "free"),
        ("restock", {"units": 0}, "units must be at least 1"),
    ):
        answer = do(manager, card, name, **values)
        assert answer.status_code == 409, name
        assert text in answer.content.decode()
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


def test_a_stale_form_is_refused_and_explained(manager: Client, card: SaleCard) -> None:
    form = {"reason": REASON, "units": 5, "seen_act": manager.get(act_of(card, "restock")).context["seen_act"]}
    colleague = browser_of("manager")
    do(colleague, card, "pause", reason="a fault at packing")
    answer = manager.post(act_of(card, "restock"), form)
    assert answer.status_code == 409
    text = answer.content.decode()
    assert "did “pause” at" in text
    assert "nothing was done now" in text
    assert Stock.objects.get(sku=card.sku).available == 3
    # Anyone who has read that may confirm once more: the form knows of it now.
    again = manager.post(act_of(card, "restock"), {**form, "seen_act": answer.context["seen_act"]})
    assert again.status_code == 302
    assert Stock.objects.get(sku=card.sku).available == 8


def test_one_delivery_is_not_counted_by_two_sales_of_its_sku(manager: Client, card: SaleCard) -> None:
    first = Sale.objects.get(pk=card.sale_id)
    window = {"opens_at": first.closes_at, "closes_at": first.closes_at + timedelta(hours=1)}
    second = Sale.objects.create(
        slug=f"{card.sku}-2", product=first.product, stock=first.stock, title="Paper kite", price=15, **window
    )
    address = reverse("admin:shop_sale_room_act", args=[second.pk, "restock"])
    page = manager.get(address).context
    seen = {"seen_act": page["seen_act"], "seen_total": page["form"]["seen_total"].value()}
    form = {"reason": REASON, "units": 5, **seen}
    do(browser_of("manager"), card, "restock", units=5)
    answer = manager.post(address, form)
    assert answer.status_code == 409
    assert "was changed after you had looked" in answer.content.decode()
    assert Stock.objects.get(sku=card.sku).total == 8
    # It is shown again with the count as it is, so it may be confirmed once more.
    shown = re.search(r'name="seen_total" value="(\d+)"', answer.content.decode())
    assert shown is not None
    assert manager.post(address, {**form, "seen_total": shown[1]}).status_code == 302
    assert Stock.objects.get(sku=card.sku).total == 13


def test_a_form_that_is_sent_twice_acts_once(manager: Client, card: SaleCard) -> None:
    form = {"reason": REASON, "units": 5, "seen_act": 0}
    assert manager.post(act_of(card, "restock"), form).status_code == 302
    assert manager.post(act_of(card, "restock"), form).status_code == 409
    assert StockMovement.objects.filter(stock__sku=card.sku, delta=5).count() == 1


def test_two_acts_at_once_are_one(manager: Client, card: SaleCard) -> None:
    with own_connection() as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", [TwoKeyAdvisoryLock.CONTROL_ROOM, card.sale_id])
        answer = manager.post(act_of(card, "pause"), {"reason": REASON, "seen_act": 0})
    assert answer.status_code == 409
    assert "another act on this sale is under way" in answer.content.decode()
    assert manager.post(act_of(card, "pause"), {"reason": REASON, "seen_act": 0}).status_code == 302


def test_only_the_holder_that_was_seen_loses_the_lock(manager: Client, card: SaleCard) -> None:
    first = held_lock(card.sku)
    seen = manager.get(act_of(card, "force_release")).context["form"].initial["seen_token"]
    assert seen == first.token
    first.release()
    form = {"reason": REASON, "seen_act": 0, "seen_token": seen}
    assert "nobody holds this lock now" in manager.post(act_of(card, "force_release"), form).content.decode()
    second = held_lock(card.sku)
    answer = manager.post(act_of(card, "force_release"), form)
    assert answer.status_code == 409
    assert "went on to another holder" in answer.content.decode()
    assert second.is_locking(remote=True)
    second.release()
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


def test_who_gets_the_lock_while_the_act_is_written_down_keeps_it(
    manager: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, note, later = held_lock(card.sku), line_actions._note, []

    def write_slowly(*args: Any, **values: Any) -> None:
        note(*args, **values)
        if not later:
            first.release()
            later.append(held_lock(card.sku))

    form = {"reason": REASON, "seen_act": 0, "seen_token": first.token}
    monkeypatch.setattr(line_actions, "_note", write_slowly)
    answer = manager.post(act_of(card, "force_release"), form)
    assert "went on to another holder" in answer.content.decode()
    (second,) = later
    assert second.is_locking(remote=True)
    second.release()
    told = [act.detail for act in StaffAct.objects.filter(sale_id=card.sale_id).order_by("id")]
    assert [each.partition(" from ")[0] for each in told][1:] == ["nothing taken"]  # written last: it did not happen


def test_a_comparison_is_asked_for_made_and_told(manager: Client, card: SaleCard, fresh: None) -> None:
    run(("HINCRBY", keys.stock(card.sku), "available", 7))
    do(manager, card, "reconcile")
    assert "Comparison asked" in live(manager, card)["parts"]["workers"]
    client = redis.connect()
    # Others of this run may have asked too; each is answered.
    assert compare_asked(Reconciler(client, stopping=lambda: False), client) >= 1
    assert run(("HGET", keys.stock(card.sku), "available")) == ["3"]
    assert "repaired 1 × stock_differs" in live(manager, card)["parts"]["workers"]
    assert card.sku not in reconcile_requests.waiting(client)


def test_a_comparison_that_was_broken_off_is_begun_anew(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis.connect()
    reconcile_requests.begin(client, card.sku, actor="anna")
    assert card.sku not in reconcile_requests.waiting(client)
    monkeypatch.setattr(reconcile_requests, "BROKEN_OFF_SECONDS", -5)
    assert card.sku in reconcile_requests.waiting(client)


def test_what_people_typed_is_text(manager: Client, card: SaleCard, fresh: None) -> None:
    do(manager, card, "pause", reason="<script>alert(1)</script>")
    for text in (live(manager, card)["parts"]["acts"], manager.get(room(card)).content.decode()):
        assert "<script>alert" not in text
        assert "&lt;script&gt;" in text


def test_it_works_without_script_and_keeps_the_policy(manager: Client, card: SaleCard) -> None:
    plain, watched = manager.get(room(card)), manager.get(room(card), {"watch": "1"})
    assert "Refresh" not in plain.headers
    assert watched.headers["Refresh"] == "2"
    pages = [plain, *(manager.get(act_of(card, name)) for name in ROOM_ACTS)]
    for page in pages:
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page.content.decode())


def test_what_is_not_there_is_404(manager: Client, card: SaleCard) -> None:
    assert manager.get(reverse("admin:shop_sale_room", args=[10**9])).status_code == 404
    assert manager.get(reverse("admin:shop_sale_room_live", args=[10**9])).status_code == 404
    assert manager.get(act_of(card, "burn")).status_code == 404
    assert Client().get(room(card)).status_code == 302
