"""The page says what bounds the spike and the overload by what each part used, and a 503 is made once. By pytest."""

from __future__ import annotations

import json

import pytest

from inventory.exceptions import SaleNotFound, Unavailable
from loadtest.bench.harness.machine import GENERATOR, POSTGRES, REDIS, SETTLER, WEB, microseconds_each, used
from loadtest.bench.harness.report import Report, markdown
from loadtest.bench.shop.overload import OverloadRun, Step
from loadtest.bench.shop.spike import Spike
from loadtest.bench.shop.tables import overload_shares, spike_shares
from shop.gate.router import turn_away
from shop.replies import CROWD_RETRY_SECONDS, OVERLOADED, Head, refuse, refuse_crowd


def spike(*, web: float, stores: float = 0.0, waits_ms: dict[int, list[float]]) -> Spike:
    return Spike(
        waits_ms=waits_ms,
        statuses=dict.fromkeys(waits_ms, 500),
        shed=0,
        silent=0,
        cpu_seconds={GENERATOR: 0.2, WEB: web, REDIS: stores},
    )


def test_the_shares_of_a_spike_are_those_of_its_parts() -> None:
    noop = spike(web=0.1, waits_ms={202: [400.0]})
    shop = spike(web=0.6, stores=0.2, waits_ms={202: [500.0], 409: [1_000.0]})
    found = spike_shares([shop], noop, cores=2)
    # 1,000 buyers: 200 µs of generator, 600 of web, of which 200 are the server's as the no-op server's 500 buyers say.
    assert found.rows[1] == ("shop", "200", "600", "0.00", "200", "0.00", "1,000", "2,000")
    assert "generators 20%, the HTTP server 20%, our Python 40%, settler and stores 20%" in found.note
    assert "400 ms" in found.note
    assert "2.50 times" in found.note


def test_the_shares_of_an_overload_name_the_most_the_cores_can_do() -> None:
    cpu_us = {GENERATOR: 20.0, WEB: 80.0, SETTLER: 20.0, REDIS: 20.0, POSTGRES: 60.0}
    found = OverloadRun(
        steps=[], knee=Step(offered=9_000, goodput=9_000, cpu_us=cpu_us), begin=1, end=3, decided=[1, 10, 20, 40],
        p99_ms=[], offered=40_000, goodput=8_000, sent=0.25, normal_p99_ms=1, well_after_seconds=1,
        cpu_us=cpu_us | {WEB: 130.0},
    )  # fmt: skip
    note = overload_shares(found, cores=2).note
    assert [part in note for part in ("at most 10,000 a second", "at most 8,000", "25%", "30.00 were")] == [True] * 4


def test_what_a_part_used_is_the_difference_of_two_readings() -> None:
    found = used({WEB: 1.0, REDIS: 2.0}, {WEB: 1.5, REDIS: 2.25}, generator=0.125)
    assert found == {GENERATOR: 0.125, WEB: 0.5, REDIS: 0.25}
    assert microseconds_each(found, answers=1_000)[WEB] == pytest.approx(500)
    assert microseconds_each(found, answers=1_000)[SETTLER] == 0


def test_the_note_stands_on_the_page() -> None:
    note = spike_shares([spike(web=1, waits_ms={202: [1], 409: [1]})], spike(web=1, waits_ms={202: [1]}), cores=2)
    page = markdown(
        Report(
            title="", command="", date="", revision="", quick=True, figures=[], facts={}, method=[], comparisons=[note]
        )
    )
    assert note.note in page


class Sent:
    """A reply that keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[tuple[Head, bytes]] = []

    def send(self, head: Head, body: bytes, own_id: bytes = b"") -> None:
        self.answers.append((head, body))


def refused(error: Exception) -> tuple[Head, bytes]:
    reply = Sent()
    refuse(reply, error)
    (answer,) = reply.answers
    return answer


def test_a_refusal_with_a_pause_is_made_once_and_keeps_its_pause() -> None:
    first, second = refused(Unavailable()), refused(Unavailable())
    assert [once is again for once, again in zip(first, second, strict=True)] == [True, True]
    assert (first[0].status, dict(first[0].headers)[b"retry-after"]) == (503, b"1")
    # The control: an error that asks for no pause names none.
    assert b"retry-after" not in dict(refused(SaleNotFound())[0].headers)


def test_those_who_are_refused_in_one_moment_come_back_at_different_moments() -> None:
    reply = Sent()
    for _ in range(2 * len(CROWD_RETRY_SECONDS)):
        refuse_crowd(reply, OVERLOADED)
    pauses = [int(dict(head.headers)[b"retry-after"]) for head, _ in reply.answers]
    assert sorted(pauses) == sorted(CROWD_RETRY_SECONDS * 2)
    assert len(set(pauses)) == len(CROWD_RETRY_SECONDS) > 1
    assert {json.loads(body)["code"] for _, body in reply.answers} == {"unavailable"}
    turn_away(reply, None, {b"accept": b"text/html,*/*;q=0.8"}, b"")
    turn_away(reply, None, {b"accept": b"*/*"}, b"")
    of_page, of_program, of_call = (dict(reply.answers[which][0].headers) for which in (-2, -1, 0))
    assert of_page[b"refresh"] == of_page[b"retry-after"]
    assert of_page[b"content-type"] == b"text/html; charset=utf-8"
    assert b"refresh" not in {*of_program, *of_call}
    assert of_program[b"content-type"] == of_call[b"content-type"] == b"application/problem+json"
    assert reply.answers[0][0] is reply.answers[len(CROWD_RETRY_SECONDS)][0]  # the same bytes again
