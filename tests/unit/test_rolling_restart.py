"""docker/rolling-restart.sh with a `docker` that keeps its containers in a file: each is replaced, and at no moment are
there fewer than before. No container runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docker" / "rolling-restart.sh"
# Containers, one a line: a service and an id. `up` adds what lacks, stopped ones first, unless its service is ill.
DOCKER = """
import sys, pathlib
kept, stopped, seen = pathlib.Path("containers"), pathlib.Path("stopped"), pathlib.Path("seen")
words = sys.argv[1:]
lines = kept.read_text().split("\\n") if kept.read_text() else []
idle = stopped.read_text().splitlines()
if words[:2] == ["compose", "ps"]:
    assert words[2:5] == ["--quiet", "--status", "running"], words
    print("\\n".join(line.split()[1] for line in lines if line.split()[0] == words[-1]))
elif words[:2] == ["compose", "up"]:
    assert {"--detach", "--no-deps", "--no-recreate", "--wait"} <= set(words), words
    service, wanted = words[words.index("--scale") + 1].split("=")
    assert service == words[-1]
    while sum(line.split()[0] == service for line in lines) < int(wanted):
        number = 1 + max(int(line.split()[1]) for line in lines)
        lines.append(next((line for line in idle if line.split()[0] == service), f"{service} {number}"))
        idle = [line for line in idle if line not in lines]
    kept.write_text("\\n".join(lines))
    if service == pathlib.Path("ill").read_text():
        sys.exit(1)
elif words[:2] == ["compose", "rm"]:
    assert words[2] == "--force", words
    idle = [line for line in idle if line.split()[0] != words[-1]]
elif words[0] == "stop":
    assert words[1:2] == ["--time"], words
    kept.write_text("\\n".join(line for line in lines if line.split()[1] != words[-1]))
else:
    assert words[0] == "rm", words
stopped.write_text("\\n".join(idle))
with seen.open("a") as out:
    print(kept.read_text().replace("\\n", ","), file=out)
"""
BEFORE = ["web 1", "web 2", "settler 3", "settler 4", "expirer 5", "mailer 6"]
STOPPED = ["web 90", "expirer 91"]


def run(
    folder: Path, *services: str, ill: str = "", stopped: Iterable[str] = ()
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run the script; return how it ended, and the containers after each call of Docker."""
    (folder / "docker.py").write_text(DOCKER)
    (folder / "docker").write_text(f'#!/bin/sh\ncd "{folder}" && exec {sys.executable} docker.py "$@"\n')
    (folder / "docker").chmod(0o755)
    (folder / "containers").write_text("\n".join(BEFORE))
    (folder / "stopped").write_text("\n".join(stopped))
    (folder / "ill").write_text(ill)
    ended = subprocess.run(
        [SCRIPT, *services], capture_output=True, text=True, timeout=600,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    return ended, [line.split(",") for line in (folder / "seen").read_text().splitlines()]


def counted(containers: list[str]) -> dict[str, int]:
    names = [each.split()[0] for each in containers]
    return {name: names.count(name) for name in names}


def test_each_container_is_replaced_and_never_are_there_fewer(tmp_path: Path) -> None:
    ended, seen = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert counted(seen[-1]) == counted(BEFORE)
    assert set(seen[-1]) & set(BEFORE) == set()
    for containers in seen:
        assert all(counted(containers).get(name, 0) >= many for name, many in counted(BEFORE).items()), containers
        assert sum(counted(containers).values()) <= len(BEFORE) + 1


def test_a_stopped_container_of_the_version_before_does_not_come_back(tmp_path: Path) -> None:
    ended, seen = run(tmp_path, stopped=STOPPED)
    assert ended.returncode == 0, ended.stderr
    assert counted(seen[-1]) == counted(BEFORE)
    assert set(seen[-1]) & {*BEFORE, *STOPPED} == set()


def test_only_named_services_are_replaced(tmp_path: Path) -> None:
    _, seen = run(tmp_path, "web")
    assert set(seen[-1]) & set(BEFORE) == {each for each in BEFORE if not each.startswith("web ")}


def test_where_a_new_one_is_not_healthy_no_old_one_is_taken_away(tmp_path: Path) -> None:
    ended, seen = run(tmp_path, ill="settler")
    assert ended.returncode != 0
    assert {each for each in BEFORE if not each.startswith("web ")} < set(seen[-1])


@pytest.mark.parametrize("text", [SCRIPT.read_text()])
def test_it_knows_every_worker_and_how_long_each_may_take(text: str) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    ours = {name for name, each in compose["services"].items() if each.get("image") == "fairdrop"} - {"migrate"}
    named = text.split("set -- ")[1].split("\n")[0].split()
    assert set(named) == ours
    graces = {compose["services"][name]["stop_grace_period"] for name in named}
    assert graces == {f"{text.split('grace_seconds=')[1].split()[0]}s"}
