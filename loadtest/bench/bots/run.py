"""Lets people and a robber press for the same units, once with each set of defences, and reads in the books who has
them. Never lets anybody pay or give back: a unit that is held at the end was got.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from django.conf import settings
from django.db import connection

from loadtest.bench.bots.attacks import ATTACKS, ENVIRONMENT, PRESSES, Attack, PlayedAttack, mutant_of, play
from loadtest.bench.bots.crowd import FULL, QUICK, Plan, Press, people_of, robber_of
from loadtest.bench.bots.report import (
    DEFENCE_NAMES,
    BotRound,
    attacks_of,
    comparison_of,
    figures_of,
    figures_of_attacks,
    method_of,
)
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say
from loadtest.bench.harness.fixtures import Fixture, make_fixture
from loadtest.bench.harness.servers import GATE, WebServer, Workspace, serving
from loadtest.bench.load.arrivals import Answers, allow_connections, ask_in_turn
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.subprocesses import Hand, hands_of
from shop.models import Order, Sale

CONNECTIONS = 500
PREPARING_SECONDS = 4.0
DECIDED_SECONDS = 60.0
REFUSED = 429
NO_RATES = {"FAIRDROP_RATE_OF_BUYERS": "0", "FAIRDROP_RATE_OF_ASKS": "0", "FAIRDROP_RATE_OF_STREAMS": "0"}


@dataclass(frozen=True, kw_only=True)
class Defence:
    """environment: of the web process; network_limit: of the sale; None: as the shop's default is, 0: none."""

    name: str
    environment: Mapping[str, str]
    network_limit: int | None


NONE, RATES, NETWORKS, DEFAULTS = DEFENCE_NAMES
DEFENCES = (
    Defence(name=NONE, environment=NO_RATES, network_limit=0),
    Defence(name=RATES, environment={}, network_limit=0),
    Defence(name=NETWORKS, environment=NO_RATES, network_limit=None),
    Defence(name=DEFAULTS, environment={}, network_limit=None),
)


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Open the sale with each set of defences, so many times. Raises LoadFailed."""
    plan, found = run.plan, []
    for row, defence in enumerate(DEFENCES):
        place = replace(run.place, environment={**run.place.environment, **defence.environment})
        for number in range(plan.rounds):
            fixture = make_fixture(f"bots-{row}-{number}", units=plan.units)
            Sale.objects.filter(pk=fixture.sale_id).update(per_network_limit=defence.network_limit)
            found.append(_round(defence, number, fixture=fixture, plan=plan, place=place))
            say(f"{defence.name}: the robber got {found[-1].robber} of {found[-1].units} units")
    played = [_play(attack, place=run.place) for attack in ATTACKS]
    return Findings(
        figures=[*figures_of(found, people=plan.people), *figures_of_attacks(played)],
        samples=[*(vars(each) for each in found), *(vars(each) for each in played)],
        comparisons=[comparison_of(found), attacks_of(played)],
    )


def _play(attack: Attack, *, place: Workspace) -> PlayedAttack:
    """Play an attack against a web process with its defence, and against one without."""
    found = []
    for side, more in (("on", {}), ("off", mutant_of(attack.name))):
        fixture = make_fixture(f"attack-{attack.name.replace('_', '-')}-{side}", units=2 * PRESSES)
        Sale.objects.filter(pk=fixture.sale_id).update(**attack.terms)
        own = replace(place, environment={**place.environment, **ENVIRONMENT, **more})
        probe = make_fixture(f"{fixture.sku}-probe", units=10)
        with serving(f"web {fixture.sku}", GATE, place=own, slug=probe.slug) as web:
            found.append(play(attack, port=web.port, slug=fixture.slug))
    say(f"{attack.name}: {found[0]} presses were let in, {found[1]} without it")
    return PlayedAttack(name=attack.name, presses=PRESSES, most=attack.most, defended=found[0], undefended=found[1])


def _round(defence: Defence, number: int, *, fixture: Fixture, plan: Plan, place: Workspace) -> BotRound:
    probe, cores = make_fixture(f"{fixture.sku}-probe", units=10), os.sched_getaffinity(0)
    with (
        serving(f"web {fixture.sku}", GATE, place=place, slug=probe.slug) as web,
        place.worker("settler"),
        hands_of(["people", "robber"], redis_url=settings.REDIS_URL, load=allow_connections, cores=cores) as hands,
    ):
        dice = random.Random(plan.seed + number)
        people = people_of(plan, slug=fixture.slug, port=web.port, dice=dice)
        robber = robber_of(plan, slug=fixture.slug, port=web.port)
        answers = _press_together([(hands["people"], people), (hands["robber"], robber)], web=web)
        got = _got(fixture, units=plan.units)
    return _outcome(defence, people=people, answers=answers[0], got=got, robber={press.buyer for press in robber})


def _press_together(sides: Sequence[tuple[Hand, Sequence[Press]]], *, web: WebServer) -> list[Answers]:
    """Let each side press from a process of its own, by one clock; return their answers."""
    begins_at = time.time() + PREPARING_SECONDS
    with ThreadPoolExecutor(len(sides)) as threads:
        asked = [
            threads.submit(
                hand.ask,
                ask_in_turn,
                port=web.port,
                connections=CONNECTIONS,
                requests=[press.request for press in presses],
                moments=[press.at for press in presses],
                begins_at=begins_at,
            )
            for hand, presses in sides
        ]
        return [each.result() for each in asked]


def _got(fixture: Fixture, *, units: int) -> set[str]:
    """Return the buyers who hold a unit, once all are held. Raises LoadFailed when that does not happen."""
    held = Order.objects.filter(sale_id=fixture.sale_id, state="held")
    ends = time.monotonic() + DECIDED_SECONDS
    while (count := held.count()) < units:
        if time.monotonic() > ends:
            raise LoadFailed(f"only {count} of {units} units were taken")
        time.sleep(0.1)
    connection.close()
    return set(held.values_list("buyer", flat=True))


def _outcome(
    defence: Defence, *, people: Sequence[Press], answers: Answers, got: set[str], robber: set[str]
) -> BotRound:
    if answers.silent or len(answers.status) != len(people):
        raise LoadFailed(f"{len(people) - len(answers.status)} people were not answered")
    waits = sorted((came - intended) * 1000 for came, intended in zip(answers.came, answers.intended, strict=True))
    return BotRound(
        defence=defence.name,
        units=len(got),
        robber=len(got & robber),
        people=len(got - robber),
        shared=sum(press.is_shared and press.buyer in got for press in people),
        refused=answers.statuses().get(REFUSED, 0),
        p99_ms=waits[int(0.99 * len(waits))],
    )


BENCHMARK = Benchmark(
    title="One address with many tokens against people: measured",
    command="make bots",
    packages=("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=method_of,
    measure=measure,
)
