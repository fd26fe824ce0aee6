"""Lets people and a robber press for the same units, with each set of defences, and reads in the books who has
them. Never lets anybody pay: a unit that is held at the end was got.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from loadtest.bench.bots.attacks import ATTACKS, ENVIRONMENT, PRESSES, Attack, PlayedAttack, give_back, mutant_of, play
from loadtest.bench.bots.crowd import (
    FULL,
    OPENINGS,
    PASS,
    QUICK,
    Armed,
    Defence,
    Plan,
    Press,
    Robber,
    costs_of_passes,
    people_of,
    presses_of,
    robbers_of,
    with_codes,
    with_passes,
)
from loadtest.bench.bots.report import (
    METHOD,
    BotRound,
    attacks_of,
    comparison_of,
    figures_of,
    figures_of_attacks,
    figures_of_passes,
    picture_of,
)
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say, say_fields
from loadtest.bench.harness.fixtures import Fixture, make_fixture
from loadtest.bench.harness.report import markdown_table, quantile
from loadtest.bench.harness.servers import GATE, WebServer, Workspace, kept_connection, serving
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.arrivals import Answers, allow_connections, ask_in_turn
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.subprocesses import Hand, ask_all, hands_of
from shop.models import Order

CONNECTIONS = 500
PREPARING_SECONDS = 4.0
DECIDED_SECONDS = 60.0
ADMITTED, REFUSED, SHED = 202, 429, 503


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Open the sale to each robber with each set of defences, so many times. Raises LoadFailed."""
    plan, found = run.plan, []
    costs = costs_of_passes(make_fixture("bots-pass", units=1, **PASS).slug)
    rows = [(robber, defence) for robber, defences in OPENINGS.items() for defence in defences]
    for number in range(plan.rounds):
        for row, (robber, defence) in enumerate(rows):
            opening = one_opening(
                f"bots-{row}-{number}",
                robber=robbers_of(plan)[robber],
                defence=defence,
                run=run,
                dice=random.Random(plan.seed + number),
                pass_seconds=costs.seconds,
            )
            found.append(opening)
            say_fields(found[-1])
    table = comparison_of(found)
    say("\n" + markdown_table(table.head, table.rows, right=()) + "\n")
    played = [_play(attack, place=run.place) for attack in ATTACKS]
    say(f"A pass costs {costs.seconds:.2f} s of a core.")
    return Findings(
        figures=[*figures_of(found, plan=plan), *figures_of_passes(costs), *figures_of_attacks(played)],
        samples=[vars(each) for each in found],
        comparisons=[table, attacks_of(played)],
        facts={"A pass": {"costs": f"{costs.seconds:.2f} s of a core"}},
        picture=picture_of(found),
    )


def one_opening(
    sku: str, *, robber: Robber, defence: Defence, run: BenchmarkRun[Plan], dice: random.Random, pass_seconds: float
) -> BotRound:
    """Let people and robber press, wait until the books are at rest, and say who holds what. Raises LoadFailed.

    pass_seconds: what one pass costs the robber.
    """
    plan, fixture = run.plan, make_fixture(sku, units=run.plan.units, **defence.terms)
    armed = Armed(people=people_of(plan, dice=dice), robber=presses_of(robber, plan))
    if defence.asks_for_passes:
        armed = with_passes(armed, sku, robber=robber, pass_seconds=pass_seconds)
    if defence.asks_for_codes:
        armed = with_codes(armed, sku, robber=robber, plan=plan, dice=dice)
    probe, cores = make_fixture(f"{sku}-probe", units=10), os.sched_getaffinity(0)
    own = replace(run.place, environment={**run.place.environment, **defence.environment})
    with (
        serving(f"web {sku}", GATE, place=own, slug=probe.slug) as web,
        own.worker("settler"),
        hands_of(["people", "robber"], redis_url=settings.REDIS_URL, load=allow_connections, cores=cores) as hands,
    ):
        sides = [(hands["people"], armed.people)]
        sides += [(hands["robber"], armed.robber)] if armed.robber else []
        answers = _press_together(sides, slug=sku, web=web)
        let_in = sum(map(_let_in, answers))
        robbers = {press.buyer: press.token for press in armed.robber}
        _wait_until_held(fixture, units=min(plan.units, let_in))
        if robber.releases:
            _give_back(fixture, robbers, web=web, let_in=let_in, units=plan.units)
        got = set(_held(fixture).values_list("buyer", flat=True))
    connection.close()
    return BotRound(
        attack=robber.name,
        defence=defence.name,
        units=plan.units,
        addresses=len(robber.addresses),
        **_outcome(armed, answers=answers, got=got),
    )


def _outcome(armed: Armed, *, answers: Sequence[Answers], got: set[str]) -> dict[str, Any]:
    """Return what came of the presses, by its name in a BotRound. Raises LoadFailed when people were not answered."""
    of_people, *others = answers
    people = {press.at: press for press in armed.people}
    if of_people.silent or len(of_people.status) != len(people):
        raise LoadFailed(f"{len(people) - len(of_people.status)} people were not answered")
    waits = [(came - intended) * 1000 for came, intended in zip(of_people.came, of_people.intended, strict=True)]
    told = zip(of_people.intended, of_people.status, strict=True)
    refused = [people[intended] for intended, status in told if status == REFUSED]
    return {
        "robber": sum(press.buyer in got for press in armed.robber),
        "people": sum(press.buyer in got for press in armed.people),
        "shared": sum(press.is_shared and press.buyer in got for press in armed.people),
        "people_let_in": _let_in(of_people),
        "robber_let_in": sum(map(_let_in, others)),
        "refused": len(refused),
        "refused_shared": sum(press.is_shared for press in refused),
        "again": of_people.statuses().get(SHED, 0),
        "p50_ms": quantile(waits, 0.5),
        "p99_ms": quantile(waits, 0.99),
        "tokens": len(armed.robber),
        "proofs": armed.proofs,
        "cpu_seconds": armed.cpu_seconds,
    }


def _play(attack: Attack, *, place: Workspace) -> PlayedAttack:
    """Play an attack against a web process with its defence, and against one without."""
    found = []
    for side, more in (("on", {}), ("off", mutant_of(attack.name))):
        sku = f"attack-{attack.name.replace('_', '-')}-{side}"
        fixture = make_fixture(sku, units=2 * PRESSES, **attack.columns)
        own = replace(place, environment={**place.environment, **ENVIRONMENT, **more})
        probe = make_fixture(f"{fixture.sku}-probe", units=10)
        with serving(f"web {fixture.sku}", GATE, place=own, slug=probe.slug) as web:
            found.append(play(attack, port=web.port, slug=fixture.slug))
    say(f"{attack.name}: {found[0]} presses were let in, {found[1]} without it")
    return PlayedAttack(name=attack.name, presses=PRESSES, limit=attack.limit, defended=found[0], undefended=found[1])


def _press_together(sides: Sequence[tuple[Hand, Sequence[Press]]], *, slug: str, web: WebServer) -> list[Answers]:
    """Let each side press from a process of its own, by one clock; return their answers."""
    requests = [[press.request(slug, port=web.port) for press in presses] for _, presses in sides]
    shared = {"port": web.port, "connections": CONNECTIONS, "begins_at": time.time() + PREPARING_SECONDS}
    arguments = [
        {**shared, "requests": own, "moments": [press.at for press in presses]}
        for (_, presses), own in zip(sides, requests, strict=True)
    ]
    return ask_all([hand for hand, _ in sides], ask_in_turn, arguments)


def _let_in(answers: Answers) -> int:
    return answers.statuses().get(ADMITTED, 0)


def _held(fixture: Fixture) -> QuerySet[Order]:
    return Order.objects.filter(sale_id=fixture.sale_id, state="held")


def _wait_until_held(fixture: Fixture, *, units: int) -> None:
    """Return once so many units are held. Raises LoadFailed when that does not happen."""
    wait_for(units, _held(fixture).count, seconds=DECIDED_SECONDS, what="units that are held")


def _give_back(fixture: Fixture, robbers: dict[str, str], *, web: WebServer, let_in: int, units: int) -> None:
    """Cancel all that the robber holds, until it holds nothing. robbers: token by buyer. Raises LoadFailed."""
    while held := list(_held(fixture).filter(buyer__in=robbers).values_list("request_id", "buyer")):
        with kept_connection(web.port) as connection:
            for name, buyer in held:
                give_back(connection, name, headers={"Authorization": f"Bearer {robbers[buyer]}"})
        let_in -= len(held)
        _wait_until_held(fixture, units=min(units, let_in))


BENCHMARK = Benchmark(
    title="Robbers against people: measured",
    command="make bots",
    packages=("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop", "altcha"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Units that people got against each robber, with each set of defences; the same numbers stand in the table",
)
