"""Proves that an upgrade of a running shop loses nobody: the stores of an old shop, then the present code.

The old stores are those in tests/crashes/old_shop. The upgrade goes as docs/operations.md says: the old workers are
stopped, migrate, start the new workers, then the new web process. Control: one place is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from inventory import redis
from inventory.line.dead_letters import dead_letters
from inventory.redis import keys
from inventory.states import Reason
from shop.models import Order, OrderEvent, Payment, Sale
from shop.sales import catalogue
from tests.crashes import old_shop
from tests.crashes.old_shop import Person
from tests.support.crashes.worker_shop import WorkerShop, drifts, own_stores, worker_shop
from tests.support.http_calls import JSON, Answer, Caller, answer_to
from tests.support.servers.shop_processes import migrate, web_process
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

PEOPLE = {person.name: person for person in old_shop.people()}
# Who waited in the old shop, undecided, in the order of each line.
WAITED = {
    "lamp": ["waits-1", "waits-2", "waits-3"],
    "clock": ["heir-1", "heir-2"],
    "vase": [f"vase-{number}" for number in range(1, 8)],
    "kite": [f"kite-{number}" for number in range(1, 6)],
    "globe": ["at-15-1", "at-15-2", "at-20-1", "at-20-2"],
    "chess": ["chess-1", "chess-2", "chess-3"],
}
ENDED = "the old payment is ended, which its age of more than five days allows"


@pytest.fixture
def shop(process_environment: dict[str, str], tmp_path: Path) -> Iterator[WorkerShop]:
    """Run both stores as the old shop left them, but for what a test leaves out. No process runs yet."""
    environment = {
        **process_environment,
        **old_shop.KEYS,
        "FAIRDROP_SETTLE_BATCH": "3",
        "FAIRDROP_BUYER_DAYS": "3650",  # the old shop's tokens are as old as its files
        "FAIRDROP_RETIRE_AFTER_SECONDS": str(100 * 365 * 86_400),  # the reconciler must not do it before the test
    }
    with (
        own_stores(environment, folder=tmp_path, targets=old_shop.TARGETS) as stores,
        worker_shop(stores, folder=tmp_path) as own,
    ):
        yield own


@contextmanager
def upgraded(shop: WorkerShop, *, without: list[str] | None = None) -> Iterator[Caller]:
    """Load the old stores, migrate, start the new workers, then the web process; without: who Redis does not know."""
    lost = [PEOPLE[name].request_id for name in without or []]
    old_shop.load(database_url=shop.postgres.url, without=lost)
    migrate(environment=shop.environment)
    for worker in ("settler", "expirer", "reconciler", "payments"):
        shop.start(worker)
    with web_process(shop.environment, folder=shop.folder) as web:
        wait_until(lambda: web.get("/api/v1/sales/chess").status == 200)
        yield web


def post(web: Caller, person: Person, path: str, body: dict[str, Any]) -> Answer:
    return web.call("POST", path, body=json.dumps(body), headers={**JSON, **person.buyer.headers})


def act(web: Caller, name: str, what: str) -> str:
    """Pay or cancel what `name` holds; return the state."""
    path = f"/api/v1/requests/{PEOPLE[name].request_id}/{what}"
    answer = answer_to(lambda: post(web, PEOPLE[name], path, {}))
    assert answer.status == 200, answer.body
    return answer.json()["state"]


def show_ticket(web: Caller, name: str) -> Answer:
    return post(web, PEOPLE[name], "/api/v1/tickets/restore", {"ticket": PEOPLE[name].ticket})


def shown_ticket(web: Caller, name: str) -> Answer:
    """Show a ticket until the shop knows its sale again."""
    return wait_until(lambda: (answer := show_ticket(web, name)).status != 503 and answer)


def state(web: Caller, name: str) -> str:
    answer = web.status(PEOPLE[name].request_id, PEOPLE[name].buyer)
    return answer.json()["state"] if answer.status == 200 else str(answer.status)


def wait_for(web: Caller, wanted: str, *names: str) -> None:
    """Return when each of `names` is told `wanted`."""
    wait_until(lambda: {state(web, name) for name in names} == {wanted}, what=f"{names} are {wanted}")


def wait_for_hold(*names: str) -> None:
    """Return when each of `names` had a hold: one of a few seconds may be over before a slow machine looks at it."""
    held = OrderEvent.objects.filter(order__request_id__in=[PEOPLE[name].request_id for name in names], to_state="held")
    wait_until(lambda: held.count() == len(names), what=f"{names} have had a hold")


def command(*words: str) -> None:
    """Run a command of manage.py in this process, which works on the stores of the test."""
    call_command(*words, stdout=StringIO())


def settle_letters(web: Caller) -> None:
    """Do with the old dead letters what staff may do: retry the sound one, discard the damaged one and the decided.

    The damaged one comes back by its ticket.
    """
    listed = {letter.request_id for letter in dead_letters(redis.connect(), "drum")}
    assert listed == {PEOPLE[name].request_id for name in ("refused", "set-aside", "damaged")}
    for mode, name in (("retry", "set-aside"), ("discard", "damaged"), ("discard", "refused")):
        command("dead_letters", mode, PEOPLE[name].request_id)
    assert show_ticket(web, "damaged").status == 202
    wait_for(web, "held", "set-aside", "damaged")
    assert dead_letters(redis.connect(), "drum") == []


def close_all(web: Caller) -> None:
    """Let the paused sale go on, end every sale, and wait until everybody is decided."""
    command("sale", "resume", "chess")
    wait_for(web, "held", "chess-1", "chess-2")
    for sale in WAITED:
        command("sale", "close", sale)
    waited = [PEOPLE[name].request_id for names in WAITED.values() for name in names]
    wait_until(lambda: Order.objects.filter(request_id__in=waited).count() == len(waited), what="all are decided")


def assert_nobody_was_lost(web: Caller) -> None:
    """Fail unless everybody has an outcome, asked again gets it, each line kept its order, and the books balance."""
    orders = {order.request_id: order for order in Order.objects.all()}
    assert {name for name, person in PEOPLE.items() if person.request_id not in orders} == set()
    for name, person in PEOPLE.items():
        again = answer_to(partial(web.ask, person.sale, person.buyer, key=f"key-{name}"))
        assert again.status == 200, (name, again.body)
        told, order = again.json(), orders[person.request_id]
        assert (told["request_id"], told["state"]) == (person.request_id, order.state), name
        assert (order.buyer, order.quantity) == (person.buyer.name, 1)
        assert order.seq == person.seq
    for names in WAITED.values():
        decided = [orders[PEOPLE[name].request_id] for name in names]
        assert [order.seq for order in decided] == sorted(order.seq for order in decided)
        in_turn = [order.pk for order in decided if not order.restored]
        assert in_turn == sorted(in_turn)
    for slug in Sale.objects.values_list("slug", flat=True):
        wait_until(lambda slug=slug: drifts(slug) == [], what=f"nothing of {slug} is left to mend")
        assert_books_balance(catalogue.find_sale(slug))


def assert_an_old_sale_can_be_retired(web: Caller) -> None:
    """Fail unless Redis forgets a sale of before, and the same ask still gets its outcome."""
    client = redis.connect()
    for pattern in ("fd:{*}:sale:*", "fd:{*}:holds"):  # what docs/operations.md tells to remove
        client.unlink(*client.scan_iter(pattern))
    command("sale", "retire", "print")
    wait_until(lambda: client.keys("fd:{print}:*") == [], what="Redis has forgotten it")
    person = PEOPLE["bought"]

    def asked_again() -> Answer | None:
        answer = web.ask("print", person.buyer, key="key-bought")
        return None if answer.status == 503 else answer  # until the web process has heard of it

    answer = wait_until(asked_again)
    assert (answer.status, answer.json()["state"]) == (200, "paid")


def old_open_payments() -> list[Payment]:
    """Return the payments that buyers began in the old shop and never finished: one, of days ago."""
    return list(Payment.objects.filter(order__request_id=PEOPLE["paying"].request_id).order_by("id")[:1])


def states_of(*names: str) -> list[str]:
    """Return what became of `names`, by the database."""
    found = dict(Order.objects.values_list("request_id", "state"))
    return [found[PEOPLE[name].request_id] for name in names]


def test_an_upgrade_of_a_running_shop_loses_nobody(shop: WorkerShop) -> None:
    with upgraded(shop) as web:
        # Holds of before: two had ended, and those next in line get the units; one is paid; one is given back.
        wait_for(web, "expired", "lapsed-1", "lapsed-2")
        wait_for_hold("heir-1", "heir-2")
        wait_for(web, "waitlisted", "waits-1", "waits-2", "waits-3")
        assert [act(web, "holding", "payment"), act(web, "paying", "payment")] == ["paid", "paid"]
        assert act(web, "cancelling", "cancel") == "cancelled"
        wait_for(web, "held", "waits-1")
        assert {state(web, name) for name in ("waits-2", "waits-3")} == {"waitlisted"}
        # What settlers had in hand when they died, and what waited after it.
        wait_for(web, "held", *WAITED["vase"][:5], *WAITED["kite"])
        wait_for(web, "held", *WAITED["globe"])
        prices = Order.objects.filter(sale__slug="globe").order_by("seq").values_list("unit_price", flat=True)
        assert [float(price) for price in prices] == [15, 15, 20, 20]
        assert {state(web, name) for name in WAITED["chess"]} == {"queued"}
        settle_letters(web)
        close_all(web)
        wait_until(lambda: {payment.reason for payment in old_open_payments()} == {Reason.NEVER_COLLECTED}, what=ENDED)
        assert states_of("paid", "bought", "too-late", "after-them") == ["paid", "paid", "sold_out", "cancelled"]
        assert states_of("vase-6", "vase-7", "chess-3", "waits-2", "waits-3") == ["sold_out"] * 5
        assert_nobody_was_lost(web)
        assert_an_old_sale_can_be_retired(web)
        shop.assert_all_run()


def test_tickets_of_before_bring_their_places_back_after_a_loss(shop: WorkerShop) -> None:
    waiting = {"lamp": WAITED["lamp"], "vase": WAITED["vase"][5:], "chess": WAITED["chess"]}
    with upgraded(shop) as web:
        wait_for(web, "held", *WAITED["vase"][:5], *WAITED["kite"], *WAITED["globe"])
        wait_for_hold(*WAITED["clock"])
        settle_letters(web)
        redis.connect().flushall()
        lost = [name for names in waiting.values() for name in names]
        wait_for(web, "404", *lost)
        newcomer = web.new_buyer()
        wait_until(lambda: web.ask("lamp", newcomer).status in (200, 202), what="the line is open again")
        assert [shown_ticket(web, name).json()["seq"] for name in reversed(lost)] == [
            PEOPLE[name].seq for name in reversed(lost)
        ]
        for sale, names in waiting.items():
            in_line = redis.connect().zrange(keys.line(sale), 0, -1)[: len(names)]
            assert in_line == [PEOPLE[name].request_id for name in names]
        close_all(web)
        wait_until(lambda: {payment.reason for payment in old_open_payments()} == {Reason.NEVER_COLLECTED}, what=ENDED)
        assert_nobody_was_lost(web)
        shop.assert_all_run()


def test_a_place_that_is_missing_would_be_found(shop: WorkerShop) -> None:
    """The control: Redis of the old shop did not know one of those who waited."""
    with upgraded(shop, without=["at-15-2"]) as web:
        wait_for(web, "held", "at-15-1", "at-20-1", "at-20-2")
        with pytest.raises(AssertionError, match="at-15-2"):
            assert_nobody_was_lost(web)
