"""Proves that a pass outlives the process that gave it, lets in one request whichever process takes it, and that a
request that was let in needs none after a kill. Web processes are killed between each step and the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inventory.line import admission
from inventory.states import State
from tests.support.crashes.extra_shop import own_valkey
from tests.support.crashes.lossy_road import Road, digest
from tests.support.http_calls import Caller
from tests.support.passes import earn, press
from tests.support.road import ask, settle_line
from tests.support.servers.shop_processes import web_child
from tests.support.shopkeeping import assert_books_balance, make_sale, shop_of
from tests.support.shown_sales import wait_until_shown


@contextmanager
def doomed_web(environment: dict[str, str], folder: Path) -> Iterator[Caller]:
    """Run a web process that is killed at the end of the block."""
    with web_child(environment, folder=folder) as (child, caller):
        yield caller
        child.kill_group()


def test_a_pass_is_good_in_the_next_process_and_spent_in_all(
    process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    with own_valkey(tmp_path) as valkey:
        # Each is asked once, and no store is frozen: a machine that stands still for seconds takes none for away.
        patient = {"FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
        own = {**process_environment, **patient, "REDIS_URL": valkey.url, "FAIRDROP_PASS_WORK": "3"}
        with shop_of(own):
            card = make_sale(new_sku(), units=5, limit=3, pass_mode="always")
            with doomed_web(own, tmp_path) as web:
                wait_until_shown(web, card)
                ann = web.new_buyer()
                text = earn(web, card.slug, ann)
            with doomed_web(own, tmp_path) as web:
                wait_until_shown(web, card)
                placed = press(web, card.slug, ann, text=text)
                assert placed.status == 202
            with doomed_web(own, tmp_path) as web:
                wait_until_shown(web, card)
                again = press(web, card.slug, ann)
                assert (again.status, again.json()["seq"]) == (200, placed.json()["seq"])
                assert press(web, card.slug, ann, text=text, key="second").status == 403
            settle_line(card)  # nobody else would: a line waits so long only when something is wrong
            assert_books_balance(card)


def test_a_call_whose_reply_was_lost_is_let_in_once_by_its_pass(road: Road) -> None:
    """The client sends the script again; the second time the pass is spent, by the same request."""
    line = admission.SaleLine(road.card.sale_id, road.card.sku)
    rule = road.proxy.drop_replies(digest("admit"))
    wishes = [ask(road.card, f"holder-{number}")._replace(pass_id=f"pass-{number}") for number in range(3)]
    answers = admission.admit(road.client, line, wishes)
    assert rule.dropped == 1
    assert [admission.state_of(answer.code) for answer in answers] == [State.QUEUED] * 3
    (other,) = admission.admit(road.client, line, [ask(road.card, "thief")._replace(pass_id="pass-0")])
    assert other.code == admission.Code.PASS_SPENT
