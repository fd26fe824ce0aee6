"""What the documents tell operators to type in a deploy or in the middle of a drop is in an order that works, and takes
nothing else away. Reads the documents and docker-compose.yml only.
"""

from __future__ import annotations

import re

import pytest
import yaml

from tests.rules.sources import ROOT

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
ALERTS = (ROOT / "docs" / "alerts.md").read_text()
MOUNTS = "](#what-the-containers-mount)"


def part_of(heading: str) -> str:
    """Return the text below a heading of the third level."""
    return OPERATIONS.partition(f"\n### {heading}\n")[2].partition("\n###")[0]


def files_mounted_alone() -> set[str]:
    """Return the files of the checkout that a container mounts by themselves: it keeps the one that it started with."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    mounts = [str(each).partition(":")[0] for service in services for each in service.get("volumes", [])]
    return {path.removeprefix("./") for path in mounts if path.startswith("./") and (ROOT / path).is_file()}


def test_redis_knows_the_rights_of_new_workers_before_they_start() -> None:
    deploy = part_of("Replacing processes while a sale runs")
    assert 0 < deploy.index(MOUNTS) < deploy.index("`docker/rolling-restart.sh ")


def test_every_file_that_is_mounted_alone_is_named_where_its_container_is_restarted() -> None:
    said, files = part_of("What the containers mount"), files_mounted_alone()
    assert "docker/redis-users.sh" in files  # the control
    assert {path for path in files if f"`{path}`" not in said and f"`{path.rpartition('/')[0]}/*`" not in said} == set()


def lines_that_raise(variable: str, text: str) -> list[str]:
    """Return the lines of a document that tell operators to raise how many processes of a service run."""
    return [line for line in text.splitlines() if re.search(rf"{variable}(?:=\d+)?` in `\.env`", line)]


@pytest.mark.parametrize(
    ("variable", "service", "texts"),
    [("WEB_PROCESSES", "web", [OPERATIONS, ALERTS]), ("SETTLER_PROCESSES", "settler", [OPERATIONS])],
)
def test_more_processes_are_started_without_touching_those_that_run(
    variable: str, service: str, texts: list[str]
) -> None:
    """`make up` builds, and replaces every container whose settings have changed: in mid-drop, all at once."""
    for text in texts:
        (line,) = lines_that_raise(variable, text)
        command = re.findall(r"`(docker compose up [^`]*)`", line)[0].split()
        assert command[-1] == service
        assert {"--no-build", "--no-deps", "--no-recreate"} < set(command)
