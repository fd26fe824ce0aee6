"""A flood of checks of passes, in a real web process that ends none of them before it is told to: the queue is bounded,
and whatever else the shop is asked it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from shop.access import passes
from shop.gate.passes import MAX_WAITING
from tests.support.http_calls import Caller
from tests.support.passes import challenge_of, hand_in, press, solved
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

FAR = 4_000_000_000
# Serves, and ends no check of a solution before the file that the environment names is there.
HOLDING = """
import os, time
from shop.access import challenges
redeem = challenges.redeem
def held(*arguments, **named):
    while not os.path.exists(os.environ["HELD_UNTIL"]):
        time.sleep(0.01)
    return redeem(*arguments, **named)
challenges.redeem = held
"""
# The control: checks on the event loop.
ON_THE_LOOP = """
import shop.gate.passes
class OnTheLoop(shop.gate.passes.ThreadPool):
    async def run(self, call):
        return call()
shop.gate.passes.ThreadPool = OnTheLoop
"""


def test_while_a_flood_of_checks_waits_the_door_answers(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """As many wait as may, and not one is done; more are told to come again, and buyers with a pass are let in."""
    go_on, refused = tmp_path / "go on", 20
    given = {**process_environment, "FAIRDROP_PASS_WORK": "3", "HELD_UNTIL": str(go_on)}
    with (
        web_process(given, folder=tmp_path, program=program_with(PATIENT_WEB + HOLDING)) as web,
        ThreadPoolExecutor(MAX_WAITING + refused) as hands,
    ):
        card, ann, bob = shown_sales(web, new_sku)(units=5, pass_mode="always"), web.new_buyer(), web.new_buyer()
        payload = {"payload": solved(challenge_of(web, card.slug, ann))}
        flood = [hands.submit(hand_in, web, card.slug, ann, payload) for _ in range(MAX_WAITING + refused)]
        try:
            wait_until(lambda: sum(map(Future.done, flood)) >= refused, what="the queue is full")
            text = passes.make_pass(card, buyer=bob.name, proof="work", until=FAR).text
            assert press(web, card.slug, bob, text=text).status == 202
            assert web.get(f"/api/v1/sales/{card.slug}").status == 200
            told = [answer.result() for answer in flood if answer.done()]
            assert {(answer.status, "retry-after" in answer.headers) for answer in told} == {(503, True)}
        finally:
            go_on.touch()
        assert Counter(answer.result().status for answer in flood) == {201: MAX_WAITING, 503: refused}


def test_control_one_check_on_the_event_loop_stops_the_door(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    go_on = tmp_path / "go on"
    given = {**process_environment, "FAIRDROP_PASS_WORK": "3", "HELD_UNTIL": str(go_on)}
    program = program_with(PATIENT_WEB + HOLDING + ON_THE_LOOP)
    with web_process(given, folder=tmp_path, program=program) as web, ThreadPoolExecutor(1) as hands:
        card, ann = shown_sales(web, new_sku)(units=5, pass_mode="always"), web.new_buyer()
        payload = {"payload": solved(challenge_of(web, card.slug, ann))}
        check = hands.submit(hand_in, web, card.slug, ann, payload)
        try:
            wait_until(lambda: not answers(web), what="the door is shut")
        finally:
            go_on.touch()
        assert check.result().status == 201
        wait_until(lambda: answers(web), what="the door is open again")


def answers(web: Caller) -> bool:
    try:
        return web.call("GET", "/healthz", timeout_seconds=1).status == 200
    except OSError:
        return False
