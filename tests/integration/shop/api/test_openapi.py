"""/api/v1/openapi.json says what the shop does: a buyer who knows nothing else buys, pays and gives back, and 10,000
requests made from it at random get no answer that it does not name. Control: with a field less it refuses what comes.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.urls import URLPattern

from inventory.exceptions import FairdropError
from inventory.states import State
from shop import urls
from shop.api.views import DESCRIPTION
from shop.payments.rows import NoticeResult
from shop.sales.catalogue import SaleCard
from tests.integration.conftest import AUDIT_TOKEN
from tests.rules.sources import ROOT
from tests.support.described_api import DescribedApi
from tests.support.http_calls import JSON, Answer, Buyer, Caller, until_answered
from tests.support.shopkeeping import close_sale
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

MakeSale = Callable[..., SaleCard]
DOCUMENT = json.loads(DESCRIPTION)
REQUESTS, SEED = 10_000, 20_261_122
# They go on until something happens; a test of their own opens them.
STREAMS = {"followSale", "followRequest"}
AUDIT = {"Authorization": f"Bearer {AUDIT_TOKEN}"}
# What no schema would let through.
ODD = ["", "0", "-1", "x", "null", "None", "..", "%00", "a b", "ключ", "1e9", "9" * 40, "<b>", "'; --", "x" * 300]
ODD_VALUES = [None, True, 0, -1, 1001, 1.5, 10**30, "", "1", [], {}, [1], {"a": 1}, "x" * 5000, float("inf")]
ODD_HEADERS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Basic eDp4"},
    {"Authorization": "Bearer x.y.z"},
    {"Cookie": "buyer=x"},
    {"Cookie": "buyer=;;=;"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=utf-7"},
    {"Idempotency-Key": ""},
    {"Idempotency-Key": "x" * 101},
    {"Idempotency-Key": "schl\xfcssel"},
    {"Accept": "text/html"},
    {"Origin": "https://evil.example"},
    {"X-Request-ID": "a b"},
    {"Accept-Language": "zh-Hans"},
]
ODD_BODIES = [None, b"", b"{", b"\xff\xfe", b"[]", b'"x"', b"{}" * 3000, b'{"quantity": 1, "quantity": 2}']
USUAL: dict[str, list[object]] = {
    "quantity": [1, 2], "terms_version": [1], "standby": [True, False], "page": [True, False], "provider": ["sandbox"],
}  # fmt: skip


@pytest.fixture
def api(web: Caller, shop_database: None) -> DescribedApi:
    """Return the API as the running shop describes it."""
    return DescribedApi(web.get("/api/v1/openapi.json").json())


def new_buyer(api: DescribedApi, web: Caller) -> Buyer:
    made = api.call(web, "createBuyer").json()
    return Buyer(made["buyer"], made["token"])


def decided(api: DescribedApi, web: Caller, request_id: str, buyer: Buyer) -> dict[str, Any]:
    """Wait until a request is decided; return its status."""

    def look() -> dict[str, Any] | None:
        status = api.call(web, "readRequest", values={"request_id": request_id}, headers=buyer.headers).json()
        return None if status["state"] == "queued" else status

    return wait_until(look, what="the request is decided")


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def test_a_client_made_from_it_buys_pays_and_gives_back(
    api: DescribedApi, web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    card = shown_sale(units=3, limit=2)
    ann, slug = new_buyer(api, web), {"slug": card.slug}
    assert card.slug in [sale["slug"] for sale in api.call(web, "listSales").json()]
    terms = api.call(web, "readSale", values=slug).json()["terms_version"]
    first = {**slug, "Idempotency-Key": "first"}
    body = {"quantity": 1, "terms_version": terms}
    placed = api.call(web, "ask", values=first, body=body, headers=ann.headers)
    again = api.call(web, "ask", values=first, body=body, headers=ann.headers)
    assert (placed.status, again.status, placed.json()["seq"]) == (202, 200, again.json()["seq"])
    one = {"request_id": placed.json()["request_id"]}
    assert decided(api, web, one["request_id"], ann)["state"] == State.HELD
    known = api.call(web, "restore", body={"ticket": placed.json()["ticket"]}, headers=ann.headers)
    assert (known.status, known.json()["state"]) == (200, State.HELD)
    assert api.call(web, "pay", values=one, headers=ann.headers).json()["state"] == State.PAID
    assert refusal(api.call(web, "cancel", values=one, headers=ann.headers)) == (409, "not_payable")

    second = api.call(web, "ask", values={**slug, "Idempotency-Key": "second"}, body=body, headers=ann.headers).json()
    two = {"request_id": second["request_id"]}
    assert decided(api, web, second["request_id"], ann)["state"] == State.HELD
    begun = api.call(web, "pay", values=two, body={"page": True}, headers=ann.headers).json()
    assert (begun["state"], begun["payment_url"][:4]) == (State.HELD, "http")
    assert api.call(web, "cancel", values=two, headers=ann.headers).json()["state"] == State.CANCELLED
    assert api.call(web, "auditSale", values=slug, headers=AUDIT).json()["ok"]


def test_each_refusal_is_as_described(api: DescribedApi, web: Caller, shown_sale: MakeSale) -> None:
    card, later, over = shown_sale(units=1), shown_sale(units=1, opens_in_seconds=900), shown_sale(units=1)
    close_sale(over)
    ann, slug, one = new_buyer(api, web), {"slug": card.slug}, {"quantity": 1}

    def ask(values: dict[str, object], body: object = one, **headers: str) -> tuple[int, str]:
        return refusal(api.call(web, "ask", values=values, body=body, headers={**ann.headers, **headers}))

    assert api.call(web, "ask", values=slug, body=one, headers=ann.headers).status == 202
    assert ask({"slug": "no-such-sale"}) == (404, "sale_not_found")
    assert ask(slug, {"quantity": 0}) == (400, "invalid_request")
    assert ask(slug, {"quantity": 2}) == (422, "idempotency_mismatch")
    assert ask({**slug, "Idempotency-Key": "another"}) == (409, "limit_reached")
    assert ask({"slug": later.slug}) == (425, "sale_not_open")
    assert ask(slug, {"quantity": 1, "ticket": "x" * 5000}) == (413, "too_large")
    assert refusal(api.call(web, "ask", values=slug, body=one)) == (401, "unauthenticated")
    cookie = {"Cookie": f"buyer={ann.token}", "Origin": "https://evil.example"}
    assert refusal(api.call(web, "ask", values=slug, body=one, headers=cookie)) == (403, "forbidden_origin")
    assert refusal(api.call(web, "readRequest", values={"request_id": "x"}, headers=ann.headers))[0] == 404
    wait_until(lambda: ask({"slug": over.slug}) == (410, "sale_closed"), what="the web process knows that it is over")


def test_the_calls_of_operators_are_as_described(api: DescribedApi, web: Caller) -> None:
    wait_until(lambda: web.get("/readyz").status == 200, what="both stores answer in time")
    for name in ("readHealth", "readReadiness", "readDescription"):
        assert api.call(web, name).status == 200
    assert api.call(web, "readAbout", headers=AUDIT).json()["database"]["name"] == "PostgreSQL"
    assert refusal(api.call(web, "readAbout")) == (401, "unauthenticated")
    assert refusal(api.call(web, "takeNotice", values={"provider": "sandbox"}, body={}))[0] == 400


def test_streams_are_as_described(api: DescribedApi, web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=1)
    with web.follow(f"/api/v1/sales/{card.slug}/events") as (head, lines):
        api.check("followSale", head)
        data = next(line for line in lines if line.startswith("data:"))
    sale = Answer(200, {"content-type": "application/json"}, data.removeprefix("data:").encode(), 0.0)
    api.check("readSale", sale)


def test_the_control_without_a_field_its_answers_are_refused(api: DescribedApi, web: Caller) -> None:
    document = copy.deepcopy(api.document)
    del document["components"]["schemas"]["Buyer"]["properties"]["token"]
    with pytest.raises(AssertionError, match="token"):
        DescribedApi(document).call(web, "createBuyer")
    del document["paths"]["/api/v1/buyers"]["post"]["responses"]["201"]
    with pytest.raises(AssertionError, match="not said to answer 201"):
        DescribedApi(document).call(web, "createBuyer")


# --- made at random ---------------------------------------------------------------------------------------------------


class RandomRequests:
    """Draws requests from the description: mostly as it says, often not. good: values that lead somewhere, by name."""

    def __init__(self, api: DescribedApi, *, good: dict[str, list[str]], tokens: list[str], seed: int) -> None:
        self._draw = random.Random(seed)
        self._api, self._good, self._tokens = api, good, tokens
        self._names = sorted(api.operations.keys() - STREAMS)

    def request(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        """Return the name of an operation, and target, body and headers of one request for it."""
        draw, name = self._draw, self._draw.choice(self._names)
        operation = self._api.operations[name]
        headers = {**draw.choice(ODD_HEADERS)} if draw.random() < 0.3 else {}
        if draw.random() < 0.8:
            headers.setdefault("Authorization", f"Bearer {draw.choice(self._tokens)}")
        path, query = operation.path, []
        for each in operation.parameters:
            value = draw.choice(self._good.get(each["name"], ["1"]) if draw.random() < 0.7 else ODD)
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", quoted(value))
            elif each["in"] == "query" and draw.random() < 0.6:
                query.append(f"{each['name']}={quoted(value)}")
            elif each["in"] == "header" and value.isascii() and draw.random() < 0.6:
                headers.setdefault(each["name"], value)
        body = self._body(operation.body) if operation.body is not None else None
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        return name, f"{path}?{'&'.join(query)}" if query else path, body, headers

    def _body(self, schema: dict[str, Any]) -> bytes | None:
        draw = self._draw
        if draw.random() < 0.1:
            return draw.choice(
                [None, b"", b"{", b"\xff\xfe", b"[]", b'"x"', b"{}" * 3000, b'{"quantity": 1, "quantity": 2}']
            )
        fields = [name for name in schema.get("properties", {}) if draw.random() < 0.8]
        fields += ["odd"] if draw.random() < 0.05 else []
        return json.dumps({name: self._value(name) for name in fields}).encode()

    def _value(self, name: str) -> object:
        if self._draw.random() < 0.3:
            return self._draw.choice(ODD_VALUES)
        return self._draw.choice(USUAL.get(name, [*self._good.get(name, ["x"])]))


def quoted(text: str) -> str:
    """Return `text` percent-encoded, all but `%`: a broken escape is sent as it is."""
    return re.sub(rb"[^A-Za-z0-9._%-]", lambda found: b"%%%02X" % ord(found[0]), text.encode()).decode()


def test_no_request_at_random_gets_an_answer_that_is_not_described(
    api: DescribedApi, web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    cards = [shown_sale(units=50, limit=2), shown_sale(units=1, opens_in_seconds=900)]
    buyers = [new_buyer(api, web) for _ in range(5)]
    first, one = {"slug": cards[0].slug}, {"quantity": 1}
    asks = [api.call(web, "ask", values=first, body=one, headers=each.headers).json() for each in buyers]
    good = {
        "slug": [card.slug for card in cards],
        "request_id": [each["request_id"] for each in asks],
        "ticket": [each["ticket"] for each in asks],
        "Idempotency-Key": ["a", "b", "c"],
        "provider": ["sandbox"],
    }  # fmt: skip
    made, statuses = (
        RandomRequests(api, good=good, tokens=[*(each.token for each in buyers), AUDIT_TOKEN], seed=SEED),
        Counter[int](),
    )
    with web.keeping() as caller:
        for number in range(REQUESTS):
            name, target, body, headers = made.request()
            send = partial(caller, api.operations[name].method, target, body=body, headers=headers)
            try:
                for answer in until_answered(send):
                    api.check(name, answer)
                statuses[answer.status] += 1
                assert answer.status < 500
            except (AssertionError, ValueError) as error:
                raise AssertionError(f"request {number}: {name} {target!r} {body!r} {headers}: {answer}") from error
    # The control: many got in, and many kinds of refusal were met.
    assert statuses[200] + statuses[202] > REQUESTS / 10
    assert {200, 202, 400, 401, 404, 409, 413, 422, 425} <= statuses.keys()


# --- one contract -----------------------------------------------------------------------------------------------------


def errors() -> set[tuple[int, str]]:
    """Return status and code of every error that a call may be answered with; those of commands have no code."""
    left, found = FairdropError.__subclasses__(), set()
    while left:
        each = left.pop()
        left += each.__subclasses__()
        found.add((each.status, each.code))
    return found - {(FairdropError.status, FairdropError.code)}


def test_it_has_the_states_and_codes_of_the_program() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["State"]["enum"] == list(State)
    assert schemas["NoticeResult"]["properties"]["result"]["enum"] == list(NoticeResult)
    assert set(schemas["Problem"]["properties"]["code"]["enum"]) == {code for _, code in errors()}


def test_it_and_the_page_for_people_say_the_same() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    schemas, paths = DOCUMENT["components"]["schemas"], DOCUMENT["paths"]
    fields = {field for name in ("Sale", "Place", "Status", "Ask") for field in schemas[name]["properties"]}
    assert [field for field in sorted(fields) if f"`{field}`" not in page and f'"{field}"' not in page] == []
    # In its examples a parameter is a value, or a variable of the shell.
    shapes = [re.escape(path).replace(r"\{", "{").replace(r"\}", "}") for path in paths]
    wanted = {path: re.sub(r"\{\w+\}", r"[^/\\s]+", shape) for path, shape in zip(paths, shapes, strict=True)}
    assert [path for path, shape in wanted.items() if not re.search(shape, page)] == []
    rows = {(int(status), code) for status, code in re.findall(r"^\| (\d{3}) \| `(\w+)` \|", page, flags=re.MULTILINE)}
    assert {code for _, code in rows} == set(schemas["Problem"]["properties"]["code"]["enum"])
    named = {int(status) for ways in paths.values() for each in ways.values() for status in each["responses"]}
    assert {status for status, _ in rows} - {405} <= named


def test_every_route_of_django_is_in_it() -> None:
    routes = [str(each.pattern) for each in urls.urlpatterns if isinstance(each, URLPattern)]
    mine = {"/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route) for route in routes if route.startswith("api/v1/")}
    named = {path.replace("{provider}", "{provider_name}") for path in DOCUMENT["paths"]}
    assert mine - named == set()


def test_it_is_served_as_openapi_3_1(web: Caller) -> None:
    answer = web.get("/api/v1/openapi.json", headers=JSON)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["openapi"].startswith("3.1.")
