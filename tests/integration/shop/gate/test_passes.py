"""Passes over HTTP: a program works for one and is let in with it, and whatever is not a good pass is refused and
changes nothing. Uses a real web process, with challenges that are soon solved.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inventory import redis
from inventory.line import reading
from inventory.redis import keys
from shop.access import passes
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from tests.races.crowd import at_once
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.passes import challenge_of, earn, hand_in, press, solved
from tests.support.road import run
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

FAR = 4_000_000_000
PRESSES = 200
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
MakeSale = Callable[..., SaleCard]
# A rush is not over before a slow machine has looked at it, and is within the time that a test waits for the calm.
LONG_RUSH = f"{PATIENT_WEB}import shop.access.rush\nshop.access.rush.RUSH_SECONDS = 100.0\n"


@pytest.fixture(scope="module")
def own_web(shop_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Run a web process with little work for a pass."""
    environment = {**shop_environment, "FAIRDROP_PASS_WORK": "3"}
    folder = tmp_path_factory.mktemp("passes")
    with web_process(environment, folder=folder, program=program_with(LONG_RUSH)) as caller:
        yield caller


@pytest.fixture
def make(own_web: Caller, shop_database: None, new_sku: Callable[[], str]) -> MakeSale:
    """Return a function that makes a sale that the process shows; it always asks for a pass unless told otherwise."""
    shown = shown_sales(own_web, new_sku)
    return lambda **terms: shown(**{"units": 5, "limit": 3, "pass_mode": "always", **terms})


def assert_refused(answer: Answer, *, because: str) -> None:
    assert (answer.status, answer.json()["code"]) == (403, "pass_required"), answer
    assert because in answer.json()["detail"]


def admitted(card: SaleCard) -> int:
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert figures is not None
    return figures.admitted


def written(card: SaleCard) -> list[object]:
    """Return all that Redis has of those who ask."""
    makers = (keys.line, keys.records, keys.live_units, keys.networks, keys.passes)
    return [run(("ZCARD" if make is keys.line else "HLEN", make(card.sku))) for make in makers]


def requires(web: Caller, card: SaleCard) -> list[str]:
    found: list[str] = web.get(f"/api/v1/sales/{card.slug}").json()["requires"]
    return found


def test_who_worked_for_a_pass_is_let_in_once(own_web: Caller, make: MakeSale) -> None:
    card, ann = make(), own_web.new_buyer()
    assert requires(own_web, card) == ["pass"]
    assert_refused(press(own_web, card.slug, ann), because="asks for a pass")
    text = earn(own_web, card.slug, ann)
    placed = press(own_web, card.slug, ann, text=text)
    assert placed.status == 202
    for again in (press(own_web, card.slug, ann), press(own_web, card.slug, ann, text=text)):
        assert (again.status, again.json()["seq"]) == (200, placed.json()["seq"])
    assert_refused(press(own_web, card.slug, ann, text=text, key="second"), because="let another request in")
    assert press(own_web, card.slug, ann, text=earn(own_web, card.slug, ann), key="second").status == 202
    body, headers = json.dumps({"ticket": placed.json()["ticket"]}), {**JSON, **ann.headers}
    assert own_web.call("POST", "/api/v1/tickets/restore", body=body, headers=headers).status == 200
    assert admitted(card) == 2


def test_one_pass_pressed_at_once_over_http_lets_one_in(own_web: Caller, make: MakeSale) -> None:
    card, ann = make(units=PRESSES, limit=PRESSES), own_web.new_buyer()
    text = earn(own_web, card.slug, ann)

    def enter(number: int) -> int:
        return press(own_web, card.slug, ann, text=text, key=f"press-{number}").status

    assert Counter(at_once(enter, PRESSES)) == {202: 1, 403: PRESSES - 1}
    assert admitted(card) == 1


def test_the_same_solution_gets_the_same_pass(own_web: Caller, make: MakeSale) -> None:
    card, ann = make(), own_web.new_buyer()
    payload = solved(challenge_of(own_web, card.slug, ann))
    first, again = (hand_in(own_web, card.slug, ann, {"payload": payload}) for _ in range(2))
    assert (first.status, again.status, again.json()) == (201, 201, first.json())
    assert first.json().keys() == {"pass", "expires_at"}


BAD = ("none", "rubbish", "long", "not ASCII", "cut", "over", "calm", "of another buyer", "of another sale")


def bad_pass(kind: str, web: Caller, card: SaleCard, other: SaleCard, ann: Buyer) -> str:
    good = earn(web, card.slug, ann)
    made = {
        "none": lambda: "",
        "rubbish": lambda: "rubbish",
        "long": lambda: "p" * 5_000,
        "not ASCII": lambda: "é",
        "cut": lambda: good[:-1],
        "over": lambda: passes.make_pass(card, buyer=ann.name, proof="work", until=1_000).text,
        "calm": lambda: passes.make_pass(card, buyer=ann.name, proof="work", until=FAR, kind="c").text,
        "of another buyer": lambda: earn(web, card.slug, web.new_buyer()),
        "of another sale": lambda: earn(web, other.slug, ann),
    }
    return made[kind]()


@pytest.mark.parametrize("kind", BAD)
def test_a_pass_that_is_not_good_is_refused_and_changes_nothing(kind: str, own_web: Caller, make: MakeSale) -> None:
    """The control is a good one, made in the same way."""
    card, other, ann = make(), make(), own_web.new_buyer()
    text, before = bad_pass(kind, own_web, card, other, ann), written(card)
    because = {"none": "asks for a pass", "over": "has ended", "calm": "without a proof"}.get(kind, passes.NOT_OURS)
    assert_refused(press(own_web, card.slug, ann, text=text), because=because)
    page = own_web.call(
        "POST", f"/sales/{card.slug}/", body=f"quantity=1&idempotency_key=first-press&pass={text[:900]}",
        headers={**FORM, "Cookie": f"buyer={ann.token}"},
    )  # fmt: skip
    assert (page.status, b"A pass is needed here" in page.body) == (403, True)
    assert written(card) == before
    good = passes.make_pass(card, buyer=ann.name, proof="work", until=FAR).text
    assert press(own_web, card.slug, ann, text=good).status == 202


BODIES = (
    ("[]", 400), ("no JSON", 400), ('{"payload": 1}', 400), ('{"payload": null}', 400), ('{"other": "x"}', 400),
    ('{"payload": "x", "other": 1}', 400), ('{"payload": ""}', 403), ('{"payload": "x"}', 403), ("{}", 403),
    ('{"payload": "' + "x" * 3_000 + '"}', 403), ('{"payload": "' + "x" * 5_000 + '"}', 413),
    ('{"payload": "e30="}', 403), ('{"payload": "W10="}', 403),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_body_that_is_no_solution_gets_no_pass(number: int, own_web: Caller, make: MakeSale) -> None:
    body, status = BODIES[number]
    card, ann = make(), own_web.new_buyer()
    answer = hand_in(own_web, card.slug, ann, body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer


def test_who_asks_and_where_is_looked_at_first(own_web: Caller, make: MakeSale) -> None:
    card, over, ann = make(), make(opens_in_seconds=-20, closes_in_seconds=-10), own_web.new_buyer()
    paths = [f"/api/v1/sales/{card.slug}/{name}" for name in ("challenge", "passes")]
    calls = [("GET", paths[0], None), ("POST", paths[1], "{}")]
    for method, path, body in calls:
        assert own_web.call(method, path, body=body, headers=JSON).status == 401
        headers = {**JSON, **ann.headers}
        for slug, status in (("no-such", 404), (over.slug, 410)):
            assert own_web.call(method, path.replace(card.slug, slug), body=body, headers=headers).status == status
        assert own_web.call("PUT", path, body=body, headers=headers).status == 405
    evil = {**JSON, "Cookie": f"buyer={ann.token}", "Origin": "https://evil.example"}
    assert own_web.call("POST", paths[1], body="{}", headers=evil).status == 403
    not_json = own_web.call("POST", paths[1], body="{}", headers=ann.headers)
    assert not_json.status == 400


def test_a_sale_that_asks_for_none_gives_one_for_nothing(own_web: Caller, make: MakeSale) -> None:
    card, ann = make(pass_mode="never"), own_web.new_buyer()
    assert requires(own_web, card) == []
    given = hand_in(own_web, card.slug, ann, {})
    assert given.status == 201
    assert press(own_web, card.slug, ann, text=given.json()["pass"]).status == 202
    assert press(own_web, card.slug, own_web.new_buyer(), text="rubbish").status == 202
    assert run(("HLEN", keys.passes(card.sku))) == [0]


def test_in_a_rush_a_pass_is_needed_and_in_the_calm_none(own_web: Caller, make: MakeSale) -> None:
    card, ann, bob = make(pass_mode="rush", units=5_000), own_web.new_buyer(), own_web.new_buyer()
    Sale.objects.filter(pk=card.sale_id).update(pass_rush=1_000_000)
    # Whatever else calls this process meanwhile: so many it never is.
    wait_until(lambda: requires(own_web, card) == [])
    given = hand_in(own_web, card.slug, bob, {}).json()["pass"]
    assert press(own_web, card.slug, ann).status == 202
    Sale.objects.filter(pk=card.sale_id).update(pass_rush=1)
    wait_until(lambda: press(own_web, card.slug, own_web.new_buyer()).status == 403, what="the threshold is known")
    assert requires(own_web, card) == ["pass"]
    cat = own_web.new_buyer()
    assert_refused(press(own_web, card.slug, cat), because="asks for a pass")
    assert_refused(hand_in(own_web, card.slug, cat, {}), because="asks for a pass")
    assert_refused(press(own_web, card.slug, bob, text=given, key="later"), because="without a proof")
    assert press(own_web, card.slug, ann).status == 200
    assert press(own_web, card.slug, cat, text=earn(own_web, card.slug, cat)).status == 202


def test_a_press_of_the_page_takes_the_pass_of_the_form(own_web: Caller, make: MakeSale) -> None:
    card, ann = make(), own_web.new_buyer()
    text = earn(own_web, card.slug, ann)
    page = own_web.call(
        "POST", f"/sales/{card.slug}/", body=f"quantity=1&idempotency_key=first-press&pass={text}",
        headers={**FORM, "Cookie": f"buyer={ann.token}"},
    )  # fmt: skip
    assert page.status == 303
    assert admitted(card) == 1


def test_a_refused_request_has_not_spent_its_pass(own_web: Caller, make: MakeSale) -> None:
    later, ann = make(opens_in_seconds=900), own_web.new_buyer()
    text = earn(own_web, later.slug, ann)  # before the opening, as it should be
    assert press(own_web, later.slug, ann, text=text).status == 425
    assert run(("HLEN", keys.passes(later.sku))) == [0]


def test_challenges_are_counted_by_address(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    given = {"FAIRDROP_RATE_OF_BUYERS": "4:0.001", "FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8"}
    with web_process({**process_environment, **given}, folder=tmp_path) as web:
        card, ann = shown_sales(web, new_sku)(units=5, pass_mode="always"), web.new_buyer()
        path = f"/api/v1/sales/{card.slug}/challenge"
        found = [web.get(path, headers={**ann.headers, "X-Forwarded-For": "192.0.2.1"}) for _ in range(5)]
        assert [answer.status for answer in found] == [200] * 4 + [429]
        assert web.get(path, headers={**ann.headers, "X-Forwarded-For": "198.51.100.1"}).status == 200
