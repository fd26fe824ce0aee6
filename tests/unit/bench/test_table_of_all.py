"""The table of all benchmarks says why not everything holds: a floor, a fault, an error, a page that is not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loadtest.bench import __main__ as command
from loadtest.bench.summary import BENCHMARKS, read_page
from tests.rules.sources import ROOT


def write_page(folder: Path, *, value: float | None, faults: Sequence[str] = ()) -> None:
    figure = {"name": "road", "value": value, "unit": "a second", "at_least": 8.0, "limit": 20.0}
    page = {"title": "The shop", "command": "make bench-shop", "date": "today", "revision": "abc", "quick": False}
    (folder / "shop.json").write_text(json.dumps({**page, "figures": [figure], "faults": list(faults)}))


@pytest.mark.parametrize(
    ("value", "code", "faults", "reasons"),
    [
        (9.0, 0, [], []),
        (7.0, 0, [], ["shop: road is 7.00, must be ≥ 8.00"]),
        (None, 0, [], ["shop: road is nan, must be ≥ 8.00"]),
        (9.0, 0, ["oversold"], ["shop: oversold"]),
        (9.0, 1, [], ["shop ended with exit code 1"]),
    ],
)
def test_the_table_of_all_names_what_was_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: float | None, code: int, faults: list[str],
    reasons: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "BENCHMARKS", ("shop",))
    write_page(tmp_path, value=value, faults=faults)
    assert command._end({"shop": code}, out=tmp_path) == (1 if reasons else 0)
    text = (tmp_path / "README.md").read_text()
    assert [f"- ✗ {reason}" in text for reason in reasons] == [True] * len(reasons)
    assert ("✓ Every floor holds." in text) is (not reasons)
    if value == 9.0:
        assert "| road | 9.00 | a second | ≥ 8.00 | ✓ | 0.45 |" in text


def test_a_table_without_a_page_of_each_benchmark_does_not_hold(tmp_path: Path) -> None:
    assert command._end({}, out=tmp_path) == 1
    text = (tmp_path / "README.md").read_text()
    assert [f"- ✗ {name} has no page" in text for name in BENCHMARKS] == [True] * len(BENCHMARKS)
    assert "Every floor holds" not in text


def test_each_benchmark_has_a_page_of_its_own_to_be_quoted() -> None:
    assert [name for name in BENCHMARKS if read_page(ROOT / "docs" / "benchmarks", name) is None] == []


def test_a_file_that_is_no_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text('{"figures": []}')
    with pytest.raises(ValueError, match="is not the page of a benchmark"):
        read_page(tmp_path, "shop")
