"""A dead letter is listed, goes back only undecided, and never stops its SKU. Uses the real settler and settlement.
Every test has a SKU of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inventory import redis
from inventory.audit import line as audit_line
from inventory.exceptions import InvalidRequest, RedisUnavailable
from inventory.line import reading, writing
from inventory.line.admission import Code, state_of
from inventory.line.dead_letters import REASONS, change_letters, dead_letters
from inventory.line.writing import MAX_HAND_OUTS, REFUSAL_TRIES
from inventory.queues.checks import check_line
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.models import Order
from shop.orders import holds, requests, restoring
from shop.sales.catalogue import SaleCard
from shop.staff import line_actions
from tests.support.road import (
    admit,
    answer_batch,
    answered,
    ask,
    figures,
    held_lock,
    queue,
    run,
    settle_line,
    settler,
    take,
)
from tests.support.shopkeeping import assert_books_balance, audit_of, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")

ENOUGH_TURNS = MAX_HAND_OUTS + REFUSAL_TRIES + 4


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of ten units, one a buyer."""
    return make_sale(new_sku(), units=10)


def command(*words: str) -> Any:
    """Run `manage.py dead_letters` and return what it printed as JSON."""
    out = StringIO()
    call_command("dead_letters", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


def let_die(card: SaleCard, *, hand_outs: int) -> None:
    """Hand the first request of a line out so often, each time to a holder that dies."""
    for _ in range(hand_outs):
        lock = held_lock(card.sku)
        take(lock, batch=1)
        lock.release()


def set_aside_first(card: SaleCard) -> None:
    """Let the first request of a line be set aside, as if its refusal could not be written."""
    let_die(card, hand_outs=MAX_HAND_OUTS + REFUSAL_TRIES + 1)


def damage(card: SaleCard, name: str, text: str) -> None:
    run(("HSET", keys.records(card.sku), name, text))


@pytest.mark.parametrize("text", ["", "nonsense", "q|1|0|{sale}|ann", "z|1|1|{sale}|ann", "q|1|1|{sale}|ann|1.x"])
def test_a_damaged_record_ends_in_the_dead_letters_and_the_line_goes_on(card: SaleCard, text: str) -> None:
    broken, *sound = queue(card, "ann", "bob", "eve")
    damage(card, broken, text.format(sale=card.sale_id))
    with settler() as worker:
        for _ in range(ENOUGH_TURNS):
            worker.work_once()
    decided = set(Order.objects.filter(sale_id=card.sale_id).values_list("request_id", flat=True))
    assert decided == set(sound)
    (letter,) = dead_letters(redis.connect(), card.sku)
    assert (letter.request_id, letter.in_flight) == (broken, False)
    assert audit_line.look(redis.connect(), card.sku).queued == 0
    (kept,) = change_letters(redis.connect(), card.sku, [broken], mode="retry", actor="anna")
    assert (kept.done, kept.reason) == (False, REASONS["damaged"])
    (discarded,) = change_letters(redis.connect(), card.sku, [broken], mode="discard", actor="anna")
    assert discarded.done
    assert_books_balance(card)


def test_a_damaged_request_comes_back_by_its_ticket_and_the_books_balance(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    record = place.record
    ticket = sign_ticket(ticket_signer(), Ticket(name, "ann", 1, record.seq, record.terms_version, record.ordinal))
    set_aside_first(card)
    damage(card, name, "nonsense")
    (discarded,) = change_letters(redis.connect(), card.sku, [name], mode="discard", actor="anna")
    assert discarded.done
    assert_books_balance(card)
    view, restored = restoring.restore(ticket, buyer="ann")
    assert (view.state, restored) == (State.QUEUED, True)
    settle_line(card)
    assert Order.objects.get(request_id=name).ordinal == record.ordinal
    assert_books_balance(card)


def test_the_audit_says_that_a_request_set_aside_is_undecided(card: SaleCard) -> None:
    """The control of the one above: until somebody has looked, an admitted request has no order."""
    queue(card, "ann")
    set_aside_first(card)
    assert [each["id"] for each in audit_of(card)["invariants"] if not each["ok"]] == ["I4"]


def test_a_letter_shows_its_hand_outs_and_since_when(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    set_aside_first(card)
    (letter,) = command("list", "--sku", card.sku)
    assert (letter["request_id"], letter["sku"], letter["hand_outs"]) == (name, card.sku, MAX_HAND_OUTS)
    assert letter["since"] is not None
    assert [each["request_id"] for each in command("list") if each["sku"] == card.sku] == [name]


def test_an_undecided_letter_goes_back_to_its_own_place(card: SaleCard) -> None:
    unlucky, other = queue(card, "ann", "bob")
    set_aside_first(card)
    (later,) = queue(card, "eve")
    settle_line(card)
    (last,) = queue(card, "joe")
    assert command("retry", unlucky, "--sku", card.sku) == [{"request_id": unlucky, "done": True, "reason": ""}]
    assert check_line(redis.connect(), card.sku) == []
    with settler() as worker:
        worker.work_once()
        worker.work_once()
    decided = Order.objects.filter(sale_id=card.sale_id, state=State.HELD).order_by("id")
    assert list(decided.values_list("request_id", "restored")) == [
        (other, False), (later, False), (unlucky, True), (last, False),
    ]  # fmt: skip
    assert [order.request_id for order in decided.order_by("seq")] == [unlucky, other, later, last]
    assert dead_letters(redis.connect(), card.sku) == []
    assert_books_balance(card)


def test_who_was_told_waitlisted_is_told_so_after_a_retry(each_server: str, new_sku: Callable[[], str]) -> None:
    """The control is who asked after a unit came back: nobody told them "waitlisted"."""
    card = make_sale(new_sku(), units=1)
    holder, name = queue(card, "holder", "ann")
    settle_line(card)
    assert told(card, name) == [State.WAITLISTED]
    holds.cancel(holder, buyer="holder")
    (late,) = queue(card, "late")
    assert told(card, name, late) == [State.WAITLISTED, State.QUEUED]
    set_aside_first(card)
    assert command("retry", name, "--sku", card.sku) == [{"request_id": name, "done": True, "reason": ""}]
    assert told(card, name, late) == [State.WAITLISTED, State.QUEUED]
    settle_line(card)  # the holder that died last had taken the other one
    assert told(card, name, late) == [State.WAITLISTED, State.HELD]
    assert_books_balance(card)


def test_who_waits_behind_a_big_request_stays_waitlisted_when_a_small_one_comes_back(
    each_server: str, new_sku: Callable[[], str]
) -> None:
    """The small one's place is before the big one's, so the line's first fits again."""
    card = make_sale(new_sku(), units=2, limit=2)
    queue(card, "holder")
    settle_line(card)
    (small,) = queue(card, "ann")
    set_aside_first(card)
    big, behind = ask(card, "bob", quantity=2), ask(card, "eve")
    admit(card, big, behind)
    assert told(card, big.request_id, behind.request_id) == [State.WAITLISTED] * 2
    assert command("retry", small, "--sku", card.sku) == [{"request_id": small, "done": True, "reason": ""}]
    assert told(card, big.request_id, behind.request_id) == [State.WAITLISTED] * 2
    settle_line(card)
    assert told(card, small) == [State.HELD]


def told(card: SaleCard, *names: str) -> list[State | None]:
    return [place and place.record.state for place in reading.places(redis.connect(), card.sku, names)]


def test_a_letter_that_was_refused_never_goes_back(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    let_die(card, hand_outs=MAX_HAND_OUTS)
    with settler() as worker:
        worker.work_once()
    assert Order.objects.get(request_id=name).state == State.REFUSED
    (kept,) = change_letters(redis.connect(), card.sku, [name], mode="retry", actor="anna")
    assert (kept.done, "outcome was told" in kept.reason) == (False, True)
    assert command("discard", name) == [{"request_id": name, "done": True, "reason": ""}]
    assert command("list", "--sku", card.sku) == []
    assert_books_balance(card)


def test_a_letter_whose_refusal_is_under_way_is_left_alone(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    let_die(card, hand_outs=MAX_HAND_OUTS + 1)
    for mode in ("retry", "discard"):
        (kept,) = change_letters(redis.connect(), card.sku, [name], mode=mode, actor="anna")
        assert (kept.done, "under way" in kept.reason) == (False, True)


def test_a_discarded_undecided_request_is_refused_for_good(card: SaleCard) -> None:
    """Its ticket, its page and the same ask all say so; before, its ticket brought it back to the head of the line."""
    names = queue(card, "ann", "bob", "eve")
    (place,) = reading.places(redis.connect(), card.sku, names[:1])
    assert place is not None
    ticket = sign_ticket(ticket_signer(), Ticket(names[0], "ann", 1, place.record.seq))
    set_aside_first(card)
    assert command("discard", names[0]) == [{"request_id": names[0], "done": True, "reason": ""}]
    view, restored = restoring.restore(ticket, buyer="ann")
    assert (view.state, restored) == (State.REFUSED, False)
    assert requests.look_up(names[0], buyer="ann").state == State.REFUSED
    (answer,) = admit(card, ask(card, "ann"))
    assert state_of(answer.code) == State.REFUSED
    (place,) = reading.places(redis.connect(), card.sku, names[:1])
    assert place is not None
    assert (place.record.state, place.position) == (State.REFUSED, 0)
    assert dead_letters(redis.connect(), card.sku) == []
    order = Order.objects.get(request_id=names[0])
    assert (order.state, order.reason, order.actor) == ("refused", "discarded_by_staff", getpass.getuser())
    (other,) = admit(card, ask(card, "ann", key="another"))  # the units of the refused one are free
    assert other.code == Code.ADMITTED
    settle_line(card)
    assert_books_balance(card)


def test_without_the_refusal_the_ticket_of_a_discarded_request_brings_it_back(card: SaleCard) -> None:
    """The control: the letter leaves the list and the record goes with it, and nothing stands in the database."""
    names = queue(card, "ann", "bob", "eve")
    (place,) = reading.places(redis.connect(), card.sku, names[:1])
    assert place is not None
    ticket = sign_ticket(ticket_signer(), Ticket(names[0], "ann", 1, place.record.seq))
    set_aside_first(card)
    damage(card, names[0], "")  # else the script asks for the refusal
    (discarded,) = change_letters(redis.connect(), card.sku, names[:1], mode="discard", actor="anna")
    assert discarded.done
    view, restored = restoring.restore(ticket, buyer="ann")
    assert (view.state, restored) == (State.QUEUED, True)
    # The last holder that died has taken bob: of those who wait, ann is the first.
    assert [place and place.position for place in reading.places(redis.connect(), card.sku, names)] == [2, 1, 3]


def test_a_discard_that_the_line_did_not_hear_of_is_finished_by_the_next(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = queue(card, "ann")
    set_aside_first(card)
    with monkeypatch.context() as away:
        away.setattr(writing, "publish_changes", raise_unavailable)
        with pytest.raises(CommandError, match="ask again"):
            command("discard", name)
    assert [each.request_id for each in dead_letters(redis.connect(), card.sku)] == [name]
    assert command("discard", name) == [{"request_id": name, "done": True, "reason": ""}]
    assert Order.objects.get(request_id=name).state == "refused"
    assert_books_balance(card)


@pytest.mark.parametrize("moment", ["before", "before, and settled", "after"])
def test_a_retry_while_another_discards_the_same_letter_decides_it_once(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The command and the control room may act at once: each step looks again, in one script or one transaction."""
    name, _ = queue(card, "ann", "bob")
    set_aside_first(card)
    refuse, kept = holds.refuse, list[str]()

    def meet(*args: Any, **named: Any) -> None:
        if moment == "after":
            refuse(*args, **named)
        (retried,) = change_letters(redis.connect(), card.sku, [name], mode="retry", actor="anna")
        kept.append(retried.reason)
        if moment == "before, and settled":
            settle_line(card)
        if moment != "after":
            refuse(*args, **named)

    monkeypatch.setattr(holds, "refuse", meet)
    (discarded,) = line_actions.change_letters(card.sku, [name], mode="discard", actor="olga")
    assert (kept[0], discarded.reason) == ((REASONS["decided"], "") if moment == "after" else ("", REASONS["unknown"]))
    settle_line(card)
    decided = State.HELD if "settled" in moment else State.REFUSED
    assert ([Order.objects.get(request_id=name).state], told(card, name)) == ([decided], [decided])
    assert dead_letters(redis.connect(), card.sku) == []
    assert_books_balance(card)


def raise_unavailable(*_args: object, **_named: object) -> None:
    raise RedisUnavailable


def test_a_refusal_given_back_stays_a_refusal(card: SaleCard) -> None:
    """The database was away in that moment: the request was handed out too often all the same."""
    queue(card, "ann")
    let_die(card, hand_outs=MAX_HAND_OUTS + 1)
    lock = held_lock(card.sku)
    writing.give_back(redis.connect(), card.sku, token=lock.token)
    handed = take(lock, call=2)
    assert handed.kind == "dead"
    answer_batch(
        redis.connect(),
        card.sku,
        token=lock.token,
        call=2,
        figures=figures(available=10, version=1),
        settled=answered(handed, State.REFUSED),
    )
    lock.release()


def test_a_letter_beyond_those_that_are_listed_can_be_named(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = queue(card, "ann", "bob")
    for _ in range(2):
        set_aside_first(card)
    monkeypatch.setattr("inventory.line.dead_letters.MAX_LISTED", 1)
    assert [each["request_id"] for each in command("list", "--sku", card.sku)] == [first]
    assert [each["request_id"] for each in command("list", second, second)] == [second]
    assert command("discard", second) == [{"request_id": second, "done": True, "reason": ""}]
    assert Order.objects.get(request_id=second).state == "refused"
    with pytest.raises(InvalidRequest, match="at least one"):
        line_actions.change_letters(card.sku, [], mode="discard", actor="anna")
    assert not Order.objects.filter(request_id=first).exists()  # who names none refuses none
    assert [each.request_id for each in dead_letters(redis.connect(), card.sku)] == [first]


def test_what_cannot_be_changed_ends_with_an_error(card: SaleCard) -> None:
    with pytest.raises(CommandError, match="1 of 1 unchanged"):
        command("retry", "no-such-request", "--sku", card.sku)
    with pytest.raises(CommandError, match="name the ids"):
        command("discard", "--sku", card.sku)
    with pytest.raises(InvalidRequest, match="actor"):
        change_letters(redis.connect(), card.sku, ["any"], mode="discard", actor="")
