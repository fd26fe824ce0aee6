"""What one core does of each part: read from the pages of benchmarks, kept in costs.json with the runs they are from.
Never holds a number that no benchmark printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("costs.json")
ALWAYS = "gate, one core, appendfsync always"
IDLE = "web process busy, no stream open"
SPIKE, OVERLOAD = "What bounds the spike", "What bounds the overload"
Whole = Mapping[str, Any]


class CostsUnreadable(Exception):
    """A page of a benchmark is missing, is none, or lacks a figure; its text says which."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One unit cost. source: the benchmark; date, revision, cpu: of its run; figure: what the page calls it."""

    value: float
    unit: str
    figure: str
    source: str
    date: str
    revision: str
    cpu: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The smallest machine of a family. max_cores: of its largest; assumes: what was assumed besides the price.

    source, date: where the price was read, and of when it is.
    """

    name: str
    cores: int
    memory_gib: float
    price_an_hour: float
    currency: str
    max_cores: int
    assumes: str
    source: str
    date: str


@dataclass(frozen=True, kw_only=True)
class Costs:
    """All unit costs by name, and the machine in which the answer is counted."""

    units: Mapping[str, Cost]
    machine: Machine

    def __getitem__(self, name: str) -> float:
        return self.units[name].value


def _figure(name: str) -> Callable[[Whole], float]:
    def read(whole: Whole) -> float:
        return float(next(each["value"] for each in whole["figures"] if each["name"] == name))

    return read


def _share(title: str, *, row: str, part: str) -> Callable[[Whole], float]:
    def read(whole: Whole) -> float:
        table = next(each for each in whole["comparisons"] if each["title"] == title)
        cells = next(cells for cells in table["rows"] if cells[0] == row)
        return float(cells[table["head"].index(part)].replace(",", ""))

    return read


def _stream(whole: Whole) -> float:
    """Return the µs of CPU that a second of one open stream takes: how much busier all of them make the process."""
    name = next(each["name"] for each in whole["figures"] if re.fullmatch(r"web process .* streams open", each["name"]))
    streams = int("".join(re.findall(r"\d", name)))
    return 1e6 * (_figure(name)(whole) - _figure(IDLE)(whole)) / streams


def _notices(whole: Whole) -> float:
    """Return how many notices a second were sent alongside a flood; all were answered."""
    pace = next(found for line in whole["method"] if (found := re.search(r"([\d,]+) a second for", line)))
    return float(pace[1].replace(",", ""))


# By name: the unit, the benchmark, what its page calls it, and how it is read from the page's JSON.
SOURCES: dict[str, tuple[str, str, str, Callable[[Whole], float]]] = {
    "admissions": ("a second and core", "gate", ALWAYS, _figure(ALWAYS)),
    "sold_out": ("a second and core", "shop", "sold-out answers, one core", _figure("sold-out answers, one core")),
    "press_us": ("µs of web", "shop", f"{SPIKE}: web", _share(SPIKE, row="shop", part="web")),
    "press_redis_us": ("µs of Redis", "shop", f"{SPIKE}: Redis", _share(SPIKE, row="shop", part="Redis")),
    "web_us": ("µs of web", "shop", f"{OVERLOAD}, knee: web", _share(OVERLOAD, row="knee", part="web")),
    "settler_us": ("µs of settler", "shop", f"{OVERLOAD}, knee: settler", _share(OVERLOAD, row="knee", part="settler")),
    "redis_us": ("µs of Redis", "shop", f"{OVERLOAD}, knee: Redis", _share(OVERLOAD, row="knee", part="Redis")),
    "postgres_us": (
        "µs of PostgreSQL", "shop", f"{OVERLOAD}, knee: PostgreSQL", _share(OVERLOAD, row="knee", part="PostgreSQL")
    ),
    "settled_500": ("orders a second and SKU", "settle", "settlement, batch 500", _figure("settlement, batch 500")),
    "settled_1": ("orders a second and SKU", "settle", "settlement, batch 1", _figure("settlement, batch 1")),
    "payments": ("a second, proved for one SKU", "settle", "payments: the pace of the notices", _notices),
    "page": ("a second and core", "streams", "sale page, one core, from memory",
             _figure("sale page, one core, from memory")),
    "ticket_page": ("a second and core", "streams", "sale page, one core, rendered by Django",
                    _figure("sale page, one core, rendered by Django")),
    "stream_us": ("µs of web a second", "streams", "web process busy: with streams less without, each", _stream),
    "place_bytes": ("bytes of Redis", "shop", "Redis memory a purchase, 200,000 in line",
                    _figure("Redis memory a purchase, 200,000 in line")),
    "web_mib": ("MiB", "gate", "web process after the flood", _figure("web process after the flood")),
    "settler_mib": ("MiB", "gate", "settler after the flood", _figure("settler after the flood")),
}  # fmt: skip
PAGES = ("gate", "settle", "shop", "streams")


def kept_costs() -> Costs:
    """Return the costs that come with this release. Raises CostsUnreadable."""
    whole = _json_of(KEPT)
    try:
        units = {name: Cost(**each) for name, each in whole["units"].items()}
        return Costs(units=units, machine=Machine(**whole["machine"]))
    except (KeyError, TypeError) as error:
        raise CostsUnreadable(f"{KEPT} does not hold costs: {error!r}") from error


def measured_costs(folder: Path) -> Costs:
    """Return the costs of the benchmarks whose pages lie in `folder`; the kept ones stand in for pages not there.

    Raises CostsUnreadable when there is none of the four, or one is no such page.
    """
    kept = kept_costs()
    pages = {name: _json_of(path) for name in PAGES if (path := folder / f"{name}.json").exists()}
    if not pages:
        raise CostsUnreadable(f"{folder} has none of {', '.join(f'{name}.json' for name in PAGES)}")
    return Costs(units={**kept.units, **_units(pages)}, machine=kept.machine)


def as_json(costs: Costs) -> str:
    """Return `costs` as they are kept."""
    return json.dumps(asdict(costs), indent=2, ensure_ascii=False) + "\n"


def _units(pages: Mapping[str, Whole]) -> dict[str, Cost]:
    found = {}
    for name, (unit, source, figure, read) in SOURCES.items():
        if source not in pages:
            continue
        whole = pages[source]
        try:
            value = round(read(whole), 4)
            run = {"date": whole["date"], "revision": whole["revision"], "cpu": whole["facts"]["Hardware"]["cpu"]}
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            raise CostsUnreadable(f"{source}.json has no “{figure}”: {error!r}") from error
        if value <= 0:
            raise CostsUnreadable(f"{source}.json: “{figure}” is {value}, must be above 0")
        found[name] = Cost(value=value, unit=unit, figure=figure, source=f"{source}.json", **run)
    return found


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CostsUnreadable(f"{path} cannot be read: {error}") from error
