"""The rules of docker/prometheus: each alert fires above its bound, is quiet below it, and has its section in the docs.
Needs promtool, which comes with Prometheus.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.servers.shop_processes import ROOT

FOLDER = ROOT / "docker" / "prometheus"
MISSING = "No promtool was found. Install it: sudo apt-get install --yes prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
DASHBOARD = ROOT / "docker" / "grafana" / "fairdrop.json"


def promtool(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.fail(MISSING)
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=900)


def test_the_files_are_valid() -> None:
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_above_its_bound_and_is_quiet_below_it() -> None:
    tested = promtool("test", "rules", "rules_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    names = [each["name"] for each in yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]]
    assert {f"{alert['alert']} {kind}" for alert in ALERTS for kind in ("fires", "quiet")} <= set(names)
    assert {name.split()[0] for name in names} == {alert["alert"] for alert in ALERTS}


def spoilt(*, never: bool) -> str:
    """Return the rules with alerts that never fire, or always."""
    rules = yaml.safe_load((FOLDER / "rules.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule):
        rule["expr"] = "vector(1) > 2" if never else "vector(1)"
        rule.pop("for", None)
    return str(yaml.safe_dump(rules))


@pytest.mark.parametrize("never", [True, False])
def test_the_control_a_rule_that_never_or_always_fires_fails_its_test(tmp_path: Path, never: bool) -> None:
    shutil.copy(FOLDER / "rules_test.yml", tmp_path)
    (tmp_path / "rules.yml").write_text(spoilt(never=never))
    tested = promtool("test", "rules", "rules_test.yml", folder=tmp_path)
    said = tested.stdout + tested.stderr
    assert tested.returncode != 0
    assert [alert["alert"] for alert in ALERTS if f'alertname=\\"{alert["alert"]}\\"' not in said] == []


def test_every_alert_has_its_section_in_the_runbook_and_no_section_is_left_over() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), flags=re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]
    assert all(alert["annotations"]["runbook"] == f"docs/alerts.md#{alert['alert'].lower()}" for alert in ALERTS)


def test_rules_and_dashboard_name_only_metrics_that_operators_may_rely_on() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"`(fairdrop_\w+)`", text))
    asked = set(re.findall(r"\bfairdrop_\w+", (FOLDER / "rules.yml").read_text() + DASHBOARD.read_text()))
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) if name not in listed else name for name in asked}
    assert bare - listed == set()


def queries() -> list[str]:
    """Return what the dashboard asks."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_the_dashboard_asks_for_rules_that_exist() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    assert set(re.findall(r"fairdrop:[\w:]+", " ".join(queries()))) <= recorded


def shared() -> set[str]:
    """Return the gauges that each worker of a kind shows with the same figures: those of the shop as a whole."""
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (`fairdrop_.+?) \| (?:reconciler|payments) \|", text, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row) if not name.endswith("_total")}


def added_up(expressions: Sequence[str]) -> set[str]:
    """Return the expressions in which a shared gauge stands outside of max, min and absent."""
    once = re.compile(r"\b(?:max|min|absent)(?: by \([\w, ]+\))? ?\((?:[^()]|\([^()]*\))*\)")
    return {each for each in expressions if set(re.findall(r"\bfairdrop_\w+", once.sub("", each))) & shared()}


def test_what_several_workers_show_is_never_counted_twice() -> None:
    assert {"fairdrop_units", "fairdrop_redis_used_bytes", "fairdrop_payments_left_open"} <= shared()
    assert added_up([rule["expr"] for rule in RULES] + queries()) == set()


@pytest.mark.parametrize(
    "query", ["sum by (state) (fairdrop_units)", "fairdrop_open_alarms", "max(fairdrop_units) + fairdrop_open_alarms"]
)
def test_the_control_a_query_that_counts_twice_is_found(query: str) -> None:
    assert added_up([query]) == {query}
