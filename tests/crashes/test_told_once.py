"""Proves that nothing a buyer was told is taken back when Redis is frozen while they pay and cancel, or loses its last
writes. A real web process on a Valkey of its own. Controls: an answer from the database alone, with a line that was not
told; a priming that tells Redis nothing of what it lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from django.db import connection, transaction

from inventory import redis
from inventory.exceptions import LineNotTold, NotPayable
from inventory.line import reading
from inventory.states import RANK, State
from shop.models import Order, PaymentNotice
from shop.orders import holds, requests
from shop.payments import captures, checkout
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.crashes.extra_shop import OwnStore, own_valkey
from tests.support.crashes.worker_shop import drifts
from tests.support.http_calls import Answer, Buyer, Caller, answer_to
from tests.support.paying import begin, happen, hear, quiet_sandbox, state_of
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, pay, shop_of
from tests.support.waiting import wait_until

BUYERS = 12
PAUSE_SECONDS, MORE_LOOKS = 0.05, 10
ROOT = "http://127.0.0.1:9"
TELLING_NOTHING = "import shop.sales.priming\nshop.sales.priming._tell_latest = lambda *_: None\n"


@dataclass
class Customer:
    """One buyer with a hold: acts until the shop says that it is done, and looks all the time. told: every state."""

    web: Caller
    buyer: Buyer
    request_id: str
    act: str
    told: list[str] = field(default_factory=list)
    unavailable: int = 0
    done: bool = False

    def live_until(self, stop: threading.Event) -> None:
        """Act and look by turns."""
        while not stop.is_set():
            if not self.done:
                self.done = self._hear(self._post()) == 200
            self._hear(self.web.status(self.request_id, self.buyer))
            self._read_page()
            time.sleep(PAUSE_SECONDS)

    def _post(self) -> Answer:
        return self.web.call("POST", f"/api/v1/requests/{self.request_id}/{self.act}", headers=self.buyer.headers)

    def _hear(self, answer: Answer) -> int:
        assert answer.status in (200, 503), answer
        if answer.status == 200:
            self.told.append(answer.json()["state"])
        else:
            assert (answer.json()["code"], answer.headers["retry-after"]) == ("unavailable", "1")
            self.unavailable += 1
        return answer.status

    def _read_page(self) -> None:
        page = self.web.get(f"/requests/{self.request_id}/", headers={"Cookie": f"buyer={self.buyer.token}"})
        assert page.status in (200, 503), page.status
        state = page.body.decode().partition('data-state="')[2].partition('"')[0]
        if page.status == 200:
            self.told.append(state)

    @property
    def taken_back(self) -> list[tuple[str, str]]:
        """Every state that was told after a higher one."""
        pairs = zip(self.told, self.told[1:], strict=False)
        return [(before, after) for before, after in pairs if RANK[State(after)] < RANK[State(before)]]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnStore]:
    with own_valkey(tmp_path) as store:
        yield store


@pytest.fixture
def environment(process_environment: dict[str, str], valkey: OwnStore) -> Iterator[dict[str, str]]:
    """Let this process and what it starts work on that Valkey."""
    environment = {**process_environment, "REDIS_URL": valkey.url}
    with shop_of(environment):
        yield environment


@pytest.fixture
def card(environment: dict[str, str], new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=BUYERS)


def test_nobody_who_paid_or_cancelled_is_told_held_after_it(
    environment: dict[str, str], valkey: OwnStore, card: SaleCard, tmp_path: Path
) -> None:
    with web_process(environment, folder=tmp_path) as web, ExitStack() as running:
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)
        people = [web.new_buyer() for _ in range(BUYERS)]
        names = [answer_to(partial(web.ask, card.slug, buyer)).json()["request_id"] for buyer in people]
        road.settle_line(card)
        acts = ("payment", "cancel")
        customers = [
            Customer(web, *pair, acts[number % 2]) for number, pair in enumerate(zip(people, names, strict=True))
        ]
        stop = threading.Event()
        with valkey.frozen():
            threads = [threading.Thread(target=each.live_until, args=(stop,)) for each in customers]
            for thread in threads:
                thread.start()
            running.callback(lambda: [thread.join(timeout=120) for thread in threads])
            running.callback(stop.set)
            wait_until(
                lambda: all(state_of(name) in ("paid", "cancelled") for name in names),
                what="every act is committed behind the frozen server",
            )
            wait_until(lambda: all(each.unavailable for each in customers), what="everybody met the frozen server")
            assert not any(each.done for each in customers)
        wait_until(lambda: all(each.done for each in customers), what="everybody is told")
        told = [len(each.told) for each in customers]
        wait_until(
            lambda: all(len(each.told) > before + MORE_LOOKS for each, before in zip(customers, told, strict=True)),
            what="everybody has looked again",
        )
    assert [each.told for each in customers if each.taken_back] == []
    assert {each.told[-1] for each in customers} == {"paid", "cancelled"}
    assert all(each.unavailable for each in customers)
    assert_books_balance(card)


def buy(card: SaleCard, valkey: OwnStore, name: str) -> list[State]:
    """Pay a hold while the line is frozen, then look: return what was told, in order, by the call and by the line."""
    told = []
    redis.connect().script_flush()  # else the script that was sent in vain runs when the server goes on
    with valkey.frozen(), suppress(LineNotTold):
        checkout.pay_at_once(name, buyer="buyer-0000000", provider_name="sandbox", root=ROOT)
        told.append(requests.look_up(name, buyer="buyer-0000000").state)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    return [*told, place.record.state]


def test_an_answer_that_the_line_did_not_hear_of_is_taken_back(
    card: SaleCard, valkey: OwnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: telling that swallows its failure, and an answer read from the database alone."""
    with quiet_sandbox():
        (name,) = road.queue(card, "buyer-0000000")
        road.settle_line(card)
        whole = holds.publish

        def tell_or_not(changes: holds.Changes) -> None:
            with suppress(LineNotTold):
                whole(changes)

        monkeypatch.setattr(captures, "publish", tell_or_not)
        monkeypatch.setattr(holds, "catch_up", lambda order: None)
        assert buy(card, valkey, name) == [State.PAID, State.HELD]
        monkeypatch.undo()
        assert requests.look_up(name, buyer="buyer-0000000").state == State.PAID
        (place,) = reading.places(redis.connect(), card.sku, [name])
        assert place is not None
        assert place.record.state == State.PAID


def test_a_payment_that_the_line_did_not_hear_of_is_told_to_nobody(card: SaleCard, valkey: OwnStore) -> None:
    with quiet_sandbox():
        (name,) = road.queue(card, "buyer-0000000")
        road.settle_line(card)
        assert buy(card, valkey, name) == [State.HELD]
        checkout.pay_at_once(name, buyer="buyer-0000000", provider_name="sandbox", root=ROOT)
        assert requests.look_up(name, buyer="buyer-0000000").state == State.PAID
        (place,) = reading.places(redis.connect(), card.sku, [name])
        assert place is not None
        assert place.record.state == State.PAID


def test_a_notice_is_taken_only_when_the_line_has_heard_of_it(card: SaleCard, valkey: OwnStore) -> None:
    """The provider sends again what was not taken; then the line is told, and the books change no more."""
    with quiet_sandbox():
        (name,) = road.queue(card, "buyer-0000000")
        road.settle_line(card)
        notice = happen(begin(name), "captured")
        with valkey.frozen(), pytest.raises(LineNotTold):
            hear(notice)
        assert (state_of(name), PaymentNotice.objects.filter(event_id=notice.event_id).count()) == ("paid", 1)
        assert hear(notice) == "paid"
        (place,) = reading.places(redis.connect(), card.sku, [name])
        assert place is not None
        assert place.record.state == State.PAID
        assert_books_balance(card)


def expire(card: SaleCard, name: str) -> holds.Changes:
    """Let a hold end, as the expirer does, and tell nobody."""
    let_holds_end(name)
    with transaction.atomic(), connection.cursor() as cursor:
        return holds.expire_due(cursor, sku=card.sku, request_ids=[name])


def test_too_late_is_said_only_when_the_line_says_so_too(card: SaleCard) -> None:
    """The expirer could not tell the line; anyone who then pays hears from the database that the hold is over."""
    (name,) = road.queue(card, "buyer-0000000")
    road.settle_line(card)
    assert expire(card, name).changed
    with pytest.raises(NotPayable, match="expired"):
        checkout.pay_at_once(name, buyer="buyer-0000000", provider_name="sandbox", root=ROOT)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.record.state == State.EXPIRED
    assert Order.objects.get(request_id=name).state == "expired"


@pytest.fixture
def states_across_a_loss(
    environment: dict[str, str], valkey: OwnStore, card: SaleCard, tmp_path: Path
) -> Callable[[str], tuple[list[str], list[str]]]:
    """Return a function that lets Redis lose a payment, the end of a hold and a decision of which the buyers were told.

    It returns what they were told before, and once a newcomer was let in; neither a settler nor a reconciler runs.
    """

    def lose(change: str) -> tuple[list[str], list[str]]:
        with web_process(environment, folder=tmp_path, program=program_with(PATIENT_WEB + change)) as web:
            wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)
            people = [web.new_buyer() for _ in range(4)]

            def ask(buyer: Buyer) -> str:
                # Once Redis is there again, the web process has to find that, and the loss.
                answer = wait_until(lambda: (each := web.ask(card.slug, buyer)).status != 503 and each, what="taken")
                assert answer.status in (200, 202), answer  # 200: the answer of before was lost
                return str(answer.json()["request_id"])

            def states() -> list[str]:
                answers = [answer_to(partial(web.status, *pair)) for pair in zip(names, people, strict=False)]
                return [answer.json()["state"] for answer in answers]

            names = [ask(buyer) for buyer in people[:2]]
            road.settle_line(card)
            names.append(ask(people[2]))
            (log,) = tmp_path.glob("**/appendonlydir/*.incr.aof")
            kept = log.stat().st_size
            pay(names[0])
            holds.publish(expire(card, names[1]))
            road.settle_line(card)
            before = states()
            valkey.kill()
            os.truncate(log, kept)
            valkey.start_again()
            ask(people[3])
            return before, states()

    return lose


def test_what_redis_lost_is_told_again_before_it_lets_anyone_in(
    card: SaleCard, states_across_a_loss: Callable[[str], tuple[list[str], list[str]]]
) -> None:
    before, after = states_across_a_loss("")
    assert before == after == ["paid", "expired", "held"]
    assert drifts(card.slug) == []
    assert_books_balance(card)


def test_a_priming_that_tells_redis_nothing_takes_all_of_it_back(
    states_across_a_loss: Callable[[str], tuple[list[str], list[str]]],
) -> None:
    """The control."""
    before, after = states_across_a_loss(TELLING_NOTHING)
    assert (before, after) == (["paid", "expired", "held"], ["held", "held", "queued"])
