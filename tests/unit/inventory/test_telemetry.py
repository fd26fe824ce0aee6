"""What is counted is what is shown: tallies, histograms, and the page on a port of a process's own."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inventory.telemetry import measures, page, version
from inventory.telemetry.measures import Histogram, Tally
from tests.support.servers.stores import ROOT


@pytest.fixture(autouse=True)
def only_those_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TALLIES", "HISTOGRAMS"):
        monkeypatch.setattr(measures, name, [])
        monkeypatch.setattr(page, name, getattr(measures, name))


def shown() -> dict[tuple[str, str], float]:
    """Return every sample of ours, by its name and the values of its labels."""
    families = text_string_to_metric_families(page.render("tested").decode())
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_tally_shows_what_is_known_from_the_start_and_what_came() -> None:
    tally = Tally("things", "Things", label="kind", known=["red"])
    tally.add("blue", 3)
    assert shown()["things_total", "red"] == 0
    assert shown()["things_total", "blue"] == 3


def test_a_tally_of_two_labels_has_both() -> None:
    tally = Tally("falls", "Falls", label="store,node", known=["redis,"])
    tally.add("redis,10.0.0.1:6379", 2)
    assert shown()["falls_total", ",redis"] == 0
    assert shown()["falls_total", "10.0.0.1:6379,redis"] == 2


def test_a_label_may_have_any_text() -> None:
    text = 'a "b",\\n\nc\\'
    Tally("things", "Things", label="kind", known=[text])
    assert shown()["things_total", text] == 0


def test_a_histogram_counts_each_one_below_its_bound() -> None:
    histogram = Histogram("steps_seconds", "Steps", bounds=(1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(seconds)
    found = shown()
    assert [found["steps_seconds_bucket", end] for end in ("1.0", "2.0", "+Inf")] == [2, 3, 4]
    assert found["steps_seconds_sum", ""] == 12


def test_many_at_once_are_counted_as_one_by_one() -> None:
    one, many = Histogram("one", "", bounds=(1.0, 2.0)), Histogram("many", "", bounds=(1.0, 2.0))
    for began in (0.0, 8.5, 9.9):
        one.observe(10.0 - began)
    many.observe_since([0.0, 8.5, 9.9], now=10.0)
    assert one.counts == many.counts
    assert one.sums == pytest.approx(many.sums)


def test_series_are_kept_apart_by_their_label() -> None:
    histogram = Histogram("steps_seconds", "Steps", bounds=(1.0,), label="script")
    histogram.observe(0.1, "admit")
    histogram.observe(3.0, "take")
    assert histogram.counts == {"admit": [1, 0], "take": [0, 1]}


def test_the_page_says_what_runs_here() -> None:
    (labels,) = (labels for name, labels in shown() if name == "fairdrop_build_info")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(labels.split(",")) == {"tested", platform.python_version(), project["version"]}


def test_without_its_pyproject_the_version_is_that_of_the_installed_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another distribution stands for the wheel; one that is not installed has no version."""
    monkeypatch.setattr(version, "PROJECT_FILE", tmp_path / "pyproject.toml")
    monkeypatch.setattr(version, "DISTRIBUTION", "pytest")
    assert version.project_version() == pytest.__version__
    monkeypatch.setattr(version, "DISTRIBUTION", "no-such-distribution")
    assert version.project_version() == ""


def test_a_process_serves_its_page_and_nothing_else() -> None:
    port = page.serve("127.0.0.1:0", "tested")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert b"fairdrop_build_info" in answer.read()
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{port}/", timeout=60)


def test_without_an_address_no_port_is_opened() -> None:
    assert page.serve("", "tested") is None


def test_a_port_that_is_taken_keeps_no_process_from_its_work() -> None:
    port = page.serve("127.0.0.1:0", "tested")
    assert page.serve(f"127.0.0.1:{port}", "tested") is None


def test_processes_of_one_setting_have_ports_in_a_row() -> None:
    assert [page.next_address("127.0.0.1:9100", number) for number in (0, 2)] == ["127.0.0.1:9100", "127.0.0.1:9102"]
    assert page.next_address("", 2) == ""
