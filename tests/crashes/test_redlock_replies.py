"""Proves that a Redlock survives lost, late and missing answers, and leaves no lock behind that nobody holds.
Each guard has its control.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from inventory.exceptions import LockLost, RedisUnavailable
from inventory.locks.redlock import Redlock
from inventory.redis import keys
from tests.support.crashes.redlock_nodes import NODE_TIMEOUT_SECONDS, Nodes, redlock_nodes
from tests.support.renewals import renew_until
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
ALL = (0, 1, 2)


@pytest.fixture(scope="module")
def running_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Run three servers for the length of the module."""
    with redlock_nodes(3, tmp_path_factory.mktemp("redlock")) as nodes:
        yield nodes


@pytest.fixture
def nodes(running_nodes: Nodes, new_sku: Callable[[], str]) -> Iterator[Nodes]:
    """Give the servers a new name to lock; nothing of it may be left behind."""
    running_nodes.name = new_sku()
    yield running_nodes
    running_nodes.calm_down()
    wait_until(lambda: running_nodes.holders() == [None] * 3, what="nothing is left behind")


def assert_free(nodes: Nodes, *, ttl_ms: int = 30_000) -> None:
    """Fail unless another can have the lock now."""
    heir = nodes.lock(ttl_ms=ttl_ms)
    # Any time before the lock of the one before would end by itself: a slow machine loses votes.
    wait_until(heir.acquire, what="the lock is free")
    assert heir.release()


# --- lost replies ---------------------------------------------------------------------------------------------------


def test_one_lost_reply_is_a_vote_less_and_no_ghost(nodes: Nodes) -> None:
    lock, rules = nodes.lock(), nodes.lose_next(0)
    assert lock.acquire()
    assert [rule.dropped for rule in rules] == [1]
    assert set(nodes.holders()) == {lock.token}  # the server whose word was lost had said yes
    rules = nodes.lose_next(0)
    assert lock.extend(500_000)
    assert [rule.dropped for rule in rules] == [1]
    rules = nodes.lose_next(0)
    assert lock.release()
    assert [rule.dropped for rule in rules] == [1]
    assert nodes.holders() == [None] * 3


def test_when_every_vote_is_lost_the_lock_is_not_ours_and_not_left(nodes: Nodes) -> None:
    lock, rules = nodes.lock(), nodes.lose_next(*ALL)
    assert not lock.acquire()
    assert [rule.dropped for rule in rules] == [1, 1, 1]
    assert nodes.holders() == [None] * 3
    assert_free(nodes)


def test_a_release_without_an_answer_has_released(nodes: Nodes) -> None:
    lock, heir = nodes.lock(), nodes.lock()
    assert lock.acquire()
    rules = nodes.lose_next(*ALL)
    lock.release()
    assert [rule.dropped for rule in rules] == [1, 1, 1]
    assert heir.acquire()
    lock.release()  # once more does the heir no harm
    assert set(nodes.holders()) == {heir.token}
    assert heir.release()


@pytest.mark.parametrize("mode", ["set", "add"])
def test_a_lengthening_without_an_answer_is_told_and_done_once(nodes: Nodes, mode: str) -> None:
    lock = nodes.lock(ttl_ms=30_000)
    assert lock.acquire()
    rules = nodes.lose_next(*ALL)
    with pytest.raises(RedisUnavailable):
        lock.extend(90_000, mode=mode)  # type: ignore[arg-type]
    assert [rule.dropped for rule in rules] == [1, 1, 1]
    most = 90_000 + (30_000 if mode == "add" else 0)
    assert all(30_000 < life <= most for life in nodes.lives())
    lock.check()
    assert lock.release()


def test_a_shorter_life_without_an_answer_is_counted(nodes: Nodes) -> None:
    """The control is the test above: a longer one takes nothing away."""
    lock, heir = nodes.lock(), nodes.lock()
    assert lock.acquire()
    nodes.lose_next(*ALL)
    with pytest.raises(RedisUnavailable):
        lock.extend(1000)
    assert heir.acquire(timeout_seconds=120)
    with pytest.raises(LockLost):
        lock.check()
    assert heir.release()


# --- late replies ---------------------------------------------------------------------------------------------------


def late_votes(nodes: Nodes, *, refuse_late_release: bool) -> Redlock:
    """Fail to take the lock because two servers hear of it too late; return it when they have.

    refuse_late_release: nobody hears of a release any more, whichever of them comes first.
    """
    lock = nodes.lock()
    held = [nodes.proxies[number].hold_requests(nodes.word) for number in (0, 1)]
    assert not lock.acquire()
    # All were told to release, also those two, that have not heard of the lock yet.
    assert [rule.met for rule in held] == [1, 1]
    assert nodes.holders() == [None] * 3
    refused = [nodes.proxies[number].refuse_requests(b"") for number in (0, 1)] if refuse_late_release else []
    for rule in held:
        rule.let_go()
    for rule in refused:
        wait_until(lambda rule=rule: rule.met, what="the late release is on its way")  # type: ignore[misc]
    return lock


def test_an_answer_that_comes_too_late_leaves_no_lock_behind(nodes: Nodes) -> None:
    lock = late_votes(nodes, refuse_late_release=False)
    for number in (0, 1):
        wait_until(partial(nodes.has_heard, number), what="the late votes have arrived")
    wait_until(lambda: nodes.holders() == [None] * 3, what="the late locks are given back")
    assert_free(nodes)
    assert not lock.is_valid()


def test_without_that_release_the_servers_stay_locked(nodes: Nodes) -> None:
    """The control: the late release is swallowed, and nobody can have the lock until its life ends."""
    lock = late_votes(nodes, refuse_late_release=True)
    wait_until(lambda: None not in nodes.holders()[:2], what="the late locks are there")
    assert lock.token not in nodes.holders()  # the next try has a token of its own
    assert not nodes.lock(past_proxies=True).acquire()
    for number in (0, 1):
        nodes.empty(number)


def test_a_late_vote_for_a_lock_given_back_meanwhile_leaves_nothing(nodes: Nodes) -> None:
    lock = nodes.lock()
    held = nodes.proxies[0].hold_requests(nodes.word)
    assert lock.acquire()
    assert lock.release()
    held.let_go()
    wait_until(lambda: nodes.has_heard(0), what="the late vote has arrived")
    wait_until(lambda: nodes.holders() == [None] * 3, what="the late lock is given back")


# --- servers that are away ------------------------------------------------------------------------------------------


def test_a_minority_in_a_black_hole_changes_nothing(nodes: Nodes) -> None:
    lock, heir = nodes.lock(), nodes.lock()
    nodes.proxies[2].black_hole = True
    assert lock.acquire()
    assert lock.extend(500_000)
    assert lock.is_locking(remote=True)
    assert not heir.acquire()
    assert lock.release()
    # Any time before the lock of the one before would end by itself: a slow machine loses votes.
    wait_until(heir.acquire, what="the lock is free")
    assert heir.release()


def refused(lock: Redlock, *, timeout_seconds: float = 0) -> None:
    """Fail when the lock is given."""
    assert not lock.acquire(timeout_seconds=timeout_seconds)


def test_a_majority_in_a_black_hole_is_refused_in_time(nodes: Nodes) -> None:
    lock = nodes.lock()
    for number in (1, 2):
        nodes.proxies[number].black_hole = True
    # One round to ask, one to give back: never as long as a socket may be silent.
    assert_waits_at_most(2 * NODE_TIMEOUT_SECONDS + 1, lambda: seconds_of(lambda: refused(lock)))
    assert_waits_at_most(1 + 2 * NODE_TIMEOUT_SECONDS + 1, lambda: seconds_of(lambda: refused(lock, timeout_seconds=1)))


def test_a_majority_that_refuses_connections_is_refused_at_once(nodes: Nodes) -> None:
    lock = nodes.lock()
    rules = [nodes.proxies[number].refuse_requests(b"") for number in (1, 2)]
    assert_waits_at_most(2 * NODE_TIMEOUT_SECONDS + 1, lambda: seconds_of(lambda: refused(lock)))
    assert all(rule.met for rule in rules)


def test_a_holder_that_loses_its_majority_hears_of_it(nodes: Nodes) -> None:
    lock = nodes.lock(ttl_ms=5000)
    assert lock.acquire()
    for number in (0, 1):
        nodes.proxies[number].black_hole = True
    assert lock.lost.wait(timeout=120)
    with pytest.raises(LockLost):
        lock.check()


# --- validity and top-up --------------------------------------------------------------------------------------------


def test_votes_that_take_longer_than_the_lock_lives_are_no_lock(nodes: Nodes) -> None:
    """L18: every server said yes, and it is worth nothing any more."""
    ttl_ms = 200
    assert ttl_ms / 1000 < NODE_TIMEOUT_SECONDS
    for proxy in nodes.proxies:
        proxy.delay_seconds = 0.11  # on the way there and on the way back
    assert not nodes.lock(ttl_ms=ttl_ms).acquire()
    assert_free(nodes, ttl_ms=30_000)  # the control: with a longer life the same votes count


def test_a_renewal_that_takes_longer_than_the_lock_lives_is_a_loss(nodes: Nodes) -> None:
    lock = nodes.lock()
    assert lock.acquire()
    for proxy in nodes.proxies:
        proxy.delay_seconds = 0.11
    assert not lock.extend(150)
    assert not lock.is_valid()
    lock.release()


def test_an_emptied_server_is_topped_up_and_another_loss_is_survived(nodes: Nodes) -> None:
    lock = nodes.lock()
    assert lock.acquire()
    for number in ALL:  # one after another: without a top-up the second would end it (L17)
        nodes.empty(number)
        renew_until(lambda: nodes.holders() == [lock.token] * 3, lock=lock, what="it is topped up")
        lock.check()
    assert lock.release()


def test_without_a_top_up_the_second_loss_ends_it(nodes: Nodes) -> None:
    """The control: the top-ups never arrive."""
    lock = nodes.lock()
    assert lock.acquire()
    refused = [nodes.proxies[number].refuse_requests(keys.fence(nodes.name).encode()) for number in ALL]
    nodes.empty(0)
    renew_until(lambda: refused[0].met, lock=lock, what="a top-up was tried")
    lock.check()
    nodes.empty(1)
    renew_until(lock.lost.is_set, lock=lock, what="it is lost")
    nodes.empty(2)


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_a_top_up_under_way_does_not_outlive_the_release(nodes: Nodes, late: bool) -> None:
    lock = nodes.lock()
    assert lock.acquire()
    nodes.empty(0)
    # A renewal names no fence, taking the lock does.
    held = nodes.proxies[0].hold_requests(keys.fence(nodes.name).encode())
    renew_until(lambda: held.met, lock=lock, what="the top-up is under way")
    if late:  # nobody waits for its answer any more
        time.sleep(NODE_TIMEOUT_SECONDS + 0.2)
    assert lock.release()
    nodes.forget_fence(0)
    held.let_go()
    wait_until(lambda: nodes.has_heard(0), what="the late top-up has arrived")
    nodes.let_live(0)
    wait_until(lambda: nodes.holders() == [None] * 3, what="it is given back, and did not end by itself")
