"""Random histories of a queue and of a SKU's line on a real server, each step compared with a small pure model.
Every invariant is checked after every step; the controls show that a take without its record is found.
Runs on every kind of Redis, longest on the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from secrets import token_hex

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from inventory import redis
from inventory.audit import line
from inventory.exceptions import LockLost
from inventory.line import admission, priming, writing
from inventory.line.admission import Ask, Code, SaleLine
from inventory.line.priming import SaleTerms
from inventory.line.writing import MAX_HAND_OUTS, REFUSAL_TRIES, Handed, Settled
from inventory.queues.checks import check_line, check_queue
from inventory.queues.queue import Dequeued, Queue
from inventory.records import Record, StockFigures
from inventory.redis import keys
from inventory.states import State
from loadtest.mutants.layers import Script
from tests.support.road import answer_batch, run
from tests.support.servers.server_matrix import KINDS

BOUNDS = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
FEWER_EXAMPLES = 8  # on the other kinds: the scripts are the same, what differs is how they get there
IDS = st.sampled_from([f"id-{number}" for number in range(8)])
BATCH = st.integers(1, 4)
LATER_MS = 3_600_000
FIGURES = StockFigures(available=50, held=0, sold=0, version=1)
NUMBERS = count(1)
ANSWERED = "stock[3] == ARGV[1] .. '#' .. ARGV[10]"
RECORDED = "redis.call('ZADD', KEYS[3], unpack(moved))"


class Holder:
    """The holder of a lock, set and lost at once: only the server's word counts to the scripts."""

    def __init__(self, name: str) -> None:
        self.name, self.token, self.call = name, "", 0

    def change(self) -> None:
        """Let a new holder come: the one before it is dead or frozen."""
        self.token, self.call = f"holder-{token_hex(6)}", 0
        run(("SET", keys.lock(self.name), self.token))

    def expire(self) -> None:
        """Let the lock's life end; its holder does not know."""
        run(("DEL", keys.lock(self.name)))


class HandOuts:
    """What take does, said in Python: in flight first, whole once, then one at a time, then the dead letters."""

    def __init__(self, *, give_up: int) -> None:
        self.give_up = give_up
        self.waiting: list[str] = []
        self.flight: list[str] = []
        self.dead: list[str] = []
        self.aside: list[str] = []
        self.outs: dict[str, int] = {}
        self.given_back = False

    def take(self, batch: int) -> tuple[str, list[str]]:
        """Hand out the next batch."""
        counted, self.given_back = not self.given_back, False
        left = self.flight[:batch]
        if left and not self.outs:
            self.outs = dict.fromkeys(left, 1) if counted else {}
            return "again", left
        for name in left:
            outs = self.outs.get(name, 0) + counted
            if outs:
                self.outs[name] = outs
            if outs < MAX_HAND_OUTS:
                return "again", [name]
            self.dead += [name] if name not in self.dead else []
            if outs < self.give_up:
                return "dead", [name]
            self.flight.remove(name)
            self.outs.pop(name)
            self.aside.append(name)
        if self.flight:
            return "again", []
        self.flight, self.waiting = self.waiting[:batch], self.waiting[batch:]
        return "fresh", list(self.flight)

    def settle(self, names: list[str]) -> int:
        """Take the settled out of flight."""
        settled = [name for name in dict.fromkeys(names) if name in self.flight]
        self.flight = [name for name in self.flight if name not in settled]
        self.outs = {name: outs for name, outs in self.outs.items() if name not in settled}
        return len(settled)

    def put_back(self, names: list[str], *, seqs: dict[str, int]) -> None:
        """Put those who stay back in line, and behind them all in flight but one whose refusal is due."""
        back = [name for name in self.flight if name in names or self.outs.get(name, 0) < MAX_HAND_OUTS]
        self.flight = [name for name in self.flight if name not in back]
        self.waiting = sorted(self.waiting + back, key=seqs.__getitem__)
        self.outs = {name: outs for name, outs in self.outs.items() if name not in back}


class QueueMachine(RuleBasedStateMachine):
    """A queue under everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.name = f"model-{next(NUMBERS)}-{token_hex(4)}"
        self.queue = Queue(redis.connect(), self.name, max_depth=6)
        self.holder = Holder(self.name)
        self.holder.change()
        self.model = HandOuts(give_up=MAX_HAND_OUTS)
        self.later: list[str] = []
        self.due: dict[str, int] = {}
        self.handed: list[str] = []
        self.locked = True
        self.fates = dict.fromkeys(("enqueued", "settled", "popped", "dequeued", "discarded"), 0)

    @rule(names=st.lists(IDS, min_size=1, max_size=4, unique=True), later=st.booleans())
    def enqueue(self, names: list[str], later: bool) -> None:
        model, target = self.model, self.later if later else self.model.waiting
        expected = []
        for name in names:
            if name in self.places():
                expected.append("present")
            elif len(model.waiting) + len(self.later) + len(model.flight) >= 6:
                expected.append("full")
            else:
                expected.append("new")
                target.append(name)
        answers = self.queue.enqueue(names, delay_ms=LATER_MS if later else 0)
        assert [answer.code for answer in answers] == expected
        self.fates["enqueued"] += expected.count("new")
        self.due |= {answer.task_id: answer.due_us for answer in answers if answer.code == "new"}

    @rule(names=st.lists(IDS, min_size=1, max_size=3, unique=True))
    def enqueue_delivered_twice(self, names: list[str]) -> None:
        known = [name for name in names if name in self.places()]
        if known:
            assert {(each.code, each.due_us == self.due[each.task_id]) for each in self.queue.enqueue(known)} == {
                ("present", True)
            }

    @rule(name=IDS, again=st.booleans())
    def dequeue(self, name: str, again: bool) -> None:
        waits = name in self.model.waiting or name in self.later
        answer = self.queue.dequeue(name, due_us=self.due.get(name, 1) - again)
        assert answer is (Dequeued.GONE if not waits else Dequeued.REQUEUED if again else Dequeued.REMOVED)
        if answer is Dequeued.REMOVED:
            (self.later if name in self.later else self.model.waiting).remove(name)
            self.fates["dequeued"] += 1

    @rule(amount=BATCH, lost_reply=st.booleans())
    def pop(self, amount: int, lost_reply: bool) -> None:
        expected, self.model.waiting = self.model.waiting[:amount], self.model.waiting[amount:]
        call = token_hex(8)
        for _ in range(1 + (lost_reply and bool(expected))):
            assert [task.task_id for task in self.queue.pop(amount, call=call)] == expected
        self.fates["popped"] += len(expected)

    @rule(batch=BATCH, lost_reply=st.booleans())
    def take(self, batch: int, lost_reply: bool) -> None:
        self.holder.call += 1
        expected: tuple[str, list[str]] | None = None
        for _ in range(1 + lost_reply):
            if not self.locked:
                with pytest.raises(LockLost):
                    self.queue.take(token=self.holder.token, call=self.holder.call, batch=batch)
                return
            expected = expected or self.model.take(batch)
            taken = self.queue.take(token=self.holder.token, call=self.holder.call, batch=batch)
            self.handed = [name for name, _ in taken.tasks]
            assert (taken.kind, self.handed) == expected

    @rule(lost_reply=st.booleans(), part=st.booleans())
    def settle(self, lost_reply: bool, part: bool) -> None:
        names = self.handed[:1] if part else self.handed
        for _ in range(1 + lost_reply):
            if not self.locked:
                with pytest.raises(LockLost):
                    self.queue.settle(names, token=self.holder.token)
                return
            settled = self.model.settle(names)
            assert self.queue.settle(names, token=self.holder.token) == settled
            self.fates["settled"] += settled

    @rule()
    def give_back(self) -> None:
        if self.locked:
            self.queue.give_back(token=self.holder.token)
            self.model.given_back = True
            self.handed = []

    @rule()
    def crash(self) -> None:
        self.holder.change()
        self.locked, self.handed = True, []

    @rule()
    def expire_lock(self) -> None:
        self.holder.expire()
        self.locked = False

    @rule(discard=st.booleans())
    def look_at_dead(self, discard: bool) -> None:
        for name in list(self.model.dead):
            assert (self.queue.discard_dead if discard else self.queue.retry_dead)(name)
            self.model.dead.remove(name)
            self.fates["discarded"] += discard
            if not discard:
                self.model.waiting.append(name)
                self.model.waiting.sort(key=self.due.__getitem__)

    def places(self) -> list[str]:
        model = self.model
        return model.waiting + self.later + model.flight + model.dead

    @invariant()
    def the_queue_is_as_the_model_says(self) -> None:
        members = [
            run(("ZRANGE", key(self.name), 0, -1))[0]
            for key in (keys.queue_waiting, keys.queue_in_flight, keys.queue_dead_letters)
        ]
        model = self.model
        assert members == [model.waiting + self.later, model.flight, sorted(model.dead, key=self.due.__getitem__)]
        assert [task.task_id for task in self.queue.top(8)] == model.waiting
        counters = self.queue.counters()._asdict()
        assert {fate: counters[fate] for fate in self.fates} == self.fates
        assert check_queue(redis.connect(), self.name) == []

    def teardown(self) -> None:
        run(("DEL", keys.lock(self.name)), ("SREM", keys.queues(), self.name))


class LineMachine(RuleBasedStateMachine):
    """A SKU's line under everything that may happen to it; the database is played by the answers of settle."""

    def __init__(self) -> None:
        super().__init__()
        self.sku = f"model-{next(NUMBERS)}-{token_hex(4)}"
        self.sale = SaleLine(1, self.sku)
        prime(self.sku)
        self.holder = Holder(self.sku)
        self.holder.change()
        self.model = HandOuts(give_up=MAX_HAND_OUTS + REFUSAL_TRIES)
        self.wishes: dict[str, int] = {}
        self.seqs: dict[str, int] = {}
        self.decided: set[str] = set()
        self.handed = Handed("fresh", [])
        self.locked = True

    @rule(names=st.lists(IDS, min_size=1, max_size=4, unique=True), quantity=st.integers(1, 2))
    def admit(self, names: list[str], quantity: int) -> None:
        answers = admission.admit(redis.connect(), self.sale, [Ask(name, f"of-{name}", quantity) for name in names])
        for name, answer in zip(names, answers, strict=True):
            if name not in self.wishes:
                assert answer.code == Code.ADMITTED
                assert answer.seq > max(self.seqs.values(), default=0)
                self.model.waiting.append(name)
                self.wishes[name], self.seqs[name] = quantity, answer.seq
            elif self.wishes[name] != quantity:
                assert answer.code == Code.OTHER_QUANTITY
            else:
                state = State.HELD if name in self.decided else State.QUEUED
                assert (admission.state_of(answer.code), answer.seq) == (state, self.seqs[name])

    @rule(batch=BATCH, lost_reply=st.booleans())
    def take(self, batch: int, lost_reply: bool) -> None:
        self.holder.call += 1
        call = {"token": self.holder.token, "call": self.holder.call, "batch": batch}
        expected: tuple[str, list[str]] | None = None
        for _ in range(1 + lost_reply):
            if not self.locked:
                with pytest.raises(LockLost):
                    writing.take(redis.connect(), self.sku, **call)
                return
            expected = expected or self.model.take(batch)
            self.handed = writing.take(redis.connect(), self.sku, **call)
            assert (self.handed.kind, [name for name, _ in self.handed.requests]) == expected

    @rule(lost_reply=st.booleans(), part=st.booleans())
    def settle(self, lost_reply: bool, part: bool) -> None:
        requests = self.handed.requests[:1] if part else self.handed.requests
        settled = [Settled(name, held(record)) for name, record in requests]
        for _ in range(1 + lost_reply):
            if not self.locked:
                with pytest.raises(LockLost):
                    self.send(settled)
                return
            names = [name for name, _ in requests]
            inside = set(names) & set(self.model.flight)
            assert self.send(settled) == self.model.settle(names)
            self.decided |= inside

    def send(self, settled: list[Settled]) -> int:
        holder = {"token": self.holder.token, "call": self.holder.call}
        return answer_batch(redis.connect(), self.sku, **holder, figures=FIGURES, settled=settled)

    @precondition(lambda self: self.locked)
    @rule(stay=st.integers(1, 4), batch=BATCH, lost_reply=st.booleans())
    def settle_and_take(self, stay: int, batch: int, lost_reply: bool) -> None:
        """The last `stay` of the batch keep their places. What Redis knows says that they fit, so the line goes on."""
        if not self.handed.requests:
            self.take(batch=batch, lost_reply=False)
        if self.handed.kind == "dead":
            return  # nobody lets a refusal wait
        decided, staying = self.handed.requests[:-stay], [name for name, _ in self.handed.requests[-stay:]]
        inside = {name for name, _ in self.handed.requests} & set(self.model.flight)
        self.decided |= inside - set(staying)
        self.model.settle([name for name, _ in decided])
        if inside:
            self.model.put_back(staying, seqs=self.seqs)
        expected = self.model.take(batch)
        self.holder.call += 1
        for _ in range(1 + lost_reply):
            self.handed = writing.settle_and_take(
                redis.connect(),
                self.sku,
                token=self.holder.token,
                call=self.holder.call,
                batch=batch,
                figures=FIGURES,
                settled=[Settled(name, held(record)) for name, record in decided],
                staying=staying,
            )
            assert (self.handed.kind, [name for name, _ in self.handed.requests]) == expected

    @rule()
    def give_back(self) -> None:
        if self.locked:
            writing.give_back(redis.connect(), self.sku, token=self.holder.token)
            self.model.given_back = True
            self.handed = Handed("fresh", [])

    @rule()
    def crash(self) -> None:
        self.holder.change()
        self.locked, self.handed = True, Handed("fresh", [])

    @rule()
    def expire_lock(self) -> None:
        self.holder.expire()
        self.locked = False

    @invariant()
    def the_line_is_as_the_model_says(self) -> None:
        waiting, flight = run(*(("ZRANGE", key(self.sku), 0, -1) for key in (keys.line, keys.in_flight)))
        assert (waiting, flight) == (self.model.waiting, self.model.flight)
        seen = line.look(redis.connect(), self.sku)
        undecided = sum(self.wishes[name] for name in (*waiting, *flight))
        assert (seen.admitted, seen.decided, seen.queued) == (len(self.wishes), len(self.decided), undecided)
        assert (seen.both, seen.aside) == (0, len(self.model.aside))
        assert check_line(redis.connect(), self.sku) == []

    def teardown(self) -> None:
        run(("DEL", keys.lock(self.sku)), ("SREM", keys.skus(), self.sku))


def prime(sku: str) -> None:
    """Put a sale of fifty units into Redis that is open for an hour."""
    now = datetime.now(tz=UTC)
    hour = timedelta(hours=1)
    terms = SaleTerms(
        sale_id=1,
        sku=sku,
        operator_state="on",
        opens_at=now - hour,
        closes_at=now + hour,
        per_buyer_limit=9,
        line_capacity=50,
        revision=1,
        terms_version=1,
        ordinal_base=0,
    )
    priming.prime(redis.connect(), terms, versions={}, figures=FIGURES, last_seq=0, fence=0, begins=True)


def held(record: Record) -> Record:
    """Return the record as if the request had got its units."""
    return record._replace(state=State.HELD, hold_expires_ms=1)


@contextmanager
def broken(script: str, *, guard: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take a guard out of a script for the length of a block."""
    with monkeypatch.context() as patch:
        Script(says="a guard of the queue", script=script, part=guard, other=instead).take_away(patch.setattr)
        yield


EACH_MACHINE = pytest.mark.parametrize("machine", [QueueMachine, LineMachine])


def bounds(kind: str) -> settings:
    """Return how long to look for a wrong history on one kind of Redis."""
    return BOUNDS if kind == KINDS[0] else settings(BOUNDS, max_examples=FEWER_EXAMPLES)


@EACH_MACHINE
def test_every_history_goes_as_the_model_says(machine: type[RuleBasedStateMachine], each_server: str) -> None:
    run_state_machine_as_test(machine, settings=bounds(each_server))


@EACH_MACHINE
def test_a_take_that_loses_its_record_is_found(
    machine: type[RuleBasedStateMachine], each_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the record of what is in flight the same model fails."""
    script = "queue_take" if machine is QueueMachine else "take"
    with broken(script, guard=RECORDED, instead="", monkeypatch=monkeypatch):
        assert_found(machine)


def test_a_settle_sent_again_that_undoes_the_take_after_it_is_found(
    each_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: when settle takes a later batch for the one it answers, the same model fails."""
    with broken("settle", guard=ANSWERED, instead="true", monkeypatch=monkeypatch):
        assert_found(LineMachine)


def assert_found(machine: type[RuleBasedStateMachine]) -> None:
    """Fail unless some history goes otherwise than the model says."""
    with pytest.raises((AssertionError, ExceptionGroup, FlakyFailure)):
        # Many, because a draw may leave out the one rule that matters; it ends at the first that fails.
        run_state_machine_as_test(machine, settings=settings(BOUNDS, max_examples=500, phases=[Phase.generate]))
