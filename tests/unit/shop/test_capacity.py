"""What a planned sale needs follows from what benchmarks printed, and the document shows what the command says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from shop.capacity.costs import SOURCES, Costs, CostsUnreadable, kept_costs, measured_costs
from shop.capacity.prediction import (
    POSTGRES,
    REDIS,
    SETTLEMENT,
    WEB,
    Layout,
    PlannedSale,
    most_a_second,
    needs_of,
    settle_seconds,
)
from shop.capacity.presentation import table_of
from tests.rules.sources import ROOT

PAGES, DOCUMENT = ROOT / "docs" / "benchmarks", ROOT / "docs" / "scaling.md"
PLAN = PlannedSale(buyers=20_000)


def with_cost(costs: Costs, **values: float) -> Costs:
    units = {name: replace(cost, value=values.get(name, cost.value)) for name, cost in costs.units.items()}
    return replace(costs, units=units)


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("capacity", *arguments, stdout=out)
    return out.getvalue()


def shown_tables() -> str:
    whole = DOCUMENT.read_text()
    return whole.partition("<!-- capacity:begin -->\n")[2].partition("<!-- capacity:end -->")[0].strip()


def test_the_kept_costs_are_those_of_the_published_benchmarks() -> None:
    """After a new publication: manage.py capacity --costs docs/benchmarks --save, and --table for docs/scaling.md."""
    assert kept_costs() == measured_costs(PAGES)
    assert list(kept_costs().units) == list(SOURCES)


def test_the_document_shows_what_the_command_says() -> None:
    assert shown_tables() == said("--table").strip()


def test_a_table_of_other_costs_would_be_found() -> None:
    """The control: any one cost changes the text."""
    for name in SOURCES:
        assert table_of(with_cost(kept_costs(), **{name: 2.5 * kept_costs()[name]})) != shown_tables()


def test_batches_take_what_was_measured() -> None:
    costs = kept_costs()
    assert settle_seconds(costs, requests=1) == pytest.approx(1 / costs["settled_1"])
    assert settle_seconds(costs, requests=5_000) == pytest.approx(5_000 / costs["settled_500"])


def test_one_sku_is_bound_by_its_lock_and_many_by_web() -> None:
    costs = kept_costs()
    plan = replace(PLAN, buyers=1_000_000, units=1_000_000, seconds=20)
    alone = needs_of(plan, costs=costs)
    assert SETTLEMENT in alone.walls
    assert alone.decided_after_seconds == pytest.approx(1_000_000 / costs["settled_500"], rel=0.01)
    spread = needs_of(replace(plan, skus=1_000), costs=costs)
    assert (spread.first, spread.walls, spread.decided_after_seconds) == (WEB, (), 20)
    assert alone.part(SETTLEMENT).needed == 2 < spread.part(SETTLEMENT).needed


@pytest.mark.parametrize(
    ("cost", "part"), [("press_us", WEB), ("settled_500", SETTLEMENT), ("redis_us", REDIS), ("postgres_us", POSTGRES)]
)
def test_each_part_is_counted_by_its_own_cost(cost: str, part: str) -> None:
    """A part that costs 200 times as much is needed more often, and the others are not."""
    costs, plan = kept_costs(), replace(PLAN, buyers=400_000, units=200_000, skus=400)
    dear = with_cost(costs, **{cost: costs[cost] * (1 / 200 if cost == "settled_500" else 200)})
    before, after = needs_of(plan, costs=costs), needs_of(plan, costs=dear)
    assert after.part(part).needed > before.part(part).needed
    others = {WEB, REDIS} - {part}
    assert [after.part(name) for name in others] == [before.part(name) for name in others]


@pytest.mark.parametrize("more", [{"readers": 500_000.0}, {"streams": 400_000}, {"presses": 40.0}, {"buyers": 800_000}])
def test_more_readers_streams_and_presses_need_more_web(more: dict[str, Any]) -> None:
    assert needs_of(replace(PLAN, **more), costs=kept_costs()).part(WEB).needed > 4


def test_payments_were_measured_on_one_sku_however_many_are_planned() -> None:
    text = said("--buyers", "9000", "--units", "900", "--skus", "100")
    assert f"{kept_costs()['payments']:,.0f} a second were measured, on one SKU." in text


def test_a_shop_on_few_cores_is_bound_by_all_that_runs_on_them() -> None:
    # Whatever the newest pages say: two cores are full before settlement is, and settlement before web.
    costs = with_cost(kept_costs(), web_us=64, settler_us=18, redis_us=18, postgres_us=34, settled_500=15_500)
    layout = Layout(web=1, settlers=1, masters=1, skus=1, cores=2)
    many = replace(layout, cores=64)
    assert most_a_second(layout, costs=costs)[1] == "cores"
    assert most_a_second(many, costs=costs) == (costs["settled_500"], SETTLEMENT)
    assert most_a_second(replace(many, settlers=2, skus=2), costs=costs)[1] == WEB
    with_load = most_a_second(replace(layout, generator_us=50), costs=costs)
    assert with_load[0] < most_a_second(layout, costs=costs)[0]


def test_the_answer_for_people_and_for_programs_is_the_same() -> None:
    text = said("--buyers", "1000000", "--units", "500000")
    whole = json.loads(said("--buyers", "1000000", "--units", "500000", "--json"))
    assert f"Full first, with one of each: {whole['needs']['first']}." in text
    assert whole["plan"]["buyers"] == 1_000_000
    assert whole["costs"]["units"]["settled_500"]["source"] == "settle.json"
    assert "settle.json of 20" in text


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "--buyers is needed"),
        (["--buyers", "0"], "buyers must be above 0"),
        (["--buyers", "9", "--seconds", "nan"], "seconds must be above 0"),
        (["--buyers", "9", "--busy", "1.5", "--room", "-1"], "room must not be below 0; busy is a share: 1 at most"),
        (["--buyers", "9", "--presses", "0.5"], "presses must be 1 or more: each buyer presses at least once"),
        (["--buyers", "9", "--units", "3", "--skus", "4"], "skus must not be more than units"),
        (["--buyers", "many"], "invalid int value: 'many'"),
        (["--buyers", "9", "--save"], "--save keeps the costs of --costs"),
        (["--buyers", "9", "--costs", "no-such-folder"], "no-such-folder has none of gate.json"),
    ],
)
def test_a_plan_without_sense_is_refused(arguments: list[str], fault: str) -> None:
    with pytest.raises(CommandError, match=fault):
        said(*arguments)


def test_costs_of_this_machine_take_the_place_of_those_measured_elsewhere(tmp_path: Path) -> None:
    whole = json.loads((PAGES / "settle.json").read_text())
    for figure in whole["figures"]:
        figure["value"] = 2 * (figure["value"] or 0)
    (tmp_path / "settle.json").write_text(json.dumps(whole | {"revision": "here"}))
    kept, here = kept_costs(), measured_costs(tmp_path)
    assert here["settled_500"] == pytest.approx(2 * kept["settled_500"])
    assert here.units["settled_500"].revision == "here"
    assert here.units["press_us"] == kept.units["press_us"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"figures": []}'])
def test_a_page_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    shutil.copy(PAGES / "gate.json", tmp_path)
    (tmp_path / "settle.json").write_text(text)
    with pytest.raises(CostsUnreadable, match=r"settle\.json"):
        measured_costs(tmp_path)
