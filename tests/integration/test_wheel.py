"""`pip wheel .` makes a wheel with everything the shop reads at run time, and the demo runs from it in an empty folder.
Needs setuptools of requirements/dev.txt, and no network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.servers.stores import ROOT
from workers.demo.run import FLOOD_SALES
from workers.embedded.server import free_port

PACKAGES = ("inventory", "shop", "workers", "loadtest")
PARTS = ("pyproject.toml", "README.md", "LICENSE", "requirements")
OLDEST_SETUPTOOLS = 77  # as in pyproject.toml
CHECKED_LOG = re.compile(
    r"An independent script has checked the public log of ([\w-]+): .*, [1-9][\d,]* tickets, every rule holds, "
    r"but for answered \(not judged\)\."  # the sale goes on
)
INCONCLUSIVE = "This run proves nothing: inconclusive."
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


def files_below(folder: Path) -> set[str]:
    """Return every file of the packages, by its path from `folder`."""
    return {
        path.relative_to(folder).as_posix()
        for package in PACKAGES
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build(source: Path, out: Path) -> ZipFile:
    """Build a wheel of `source` without network."""
    if int(version("setuptools").partition(".")[0]) < OLDEST_SETUPTOOLS:
        pytest.fail("setuptools is too old here: install requirements/dev.txt.")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(out)], cwd=source, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = out.glob("fairdrop-*.whl")
    return ZipFile(wheel)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources: a build leaves folders alongside them."""
    folder = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, *PARTS):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": LEFT_OUT} if copy is shutil.copytree else {}))
    return folder


def test_the_wheel_holds_every_file_of_the_packages(source: Path, tmp_path: Path) -> None:
    with build(source, tmp_path) as wheel:
        held = {name for name in wheel.namelist() if not name.startswith("fairdrop-")}
        facts: Message = Parser().parsestr(
            wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()
        )
    assert held == files_below(source)
    for needed in (
        "inventory/scripts/line/admit.lua", "shop/templates/shop/sale.html", "shop/static/shop/ticket.js",
        "shop/locale/zh_Hans/LC_MESSAGES/django.mo", "shop/sandbox/templates/sandbox/pay.html",
        "workers/management/commands/run_worker.py", "loadtest/report/page.html",
    ):  # fmt: skip
        assert needed in held
    assert any(each.startswith("Django") for each in facts.get_all("Requires-Dist", []))
    assert facts["Author"] == "Fairdrop contributors"
    assert str(facts.get_payload()).startswith("# Fairdrop")


def test_the_control_a_data_file_that_is_not_named_is_missed(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "copy")
    (copy / "inventory" / "scripts" / "other.luac").write_text("")
    with build(copy, tmp_path / "out") as wheel:
        assert files_below(copy) - set(wheel.namelist()) == {"inventory/scripts/other.luac"}


@pytest.fixture
def empty() -> Iterator[Path]:
    """Return an empty folder that PostgreSQL's account can walk to, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="fairdrop-wheel-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_demo_runs_from_the_wheel_in_an_empty_folder(source: Path, tmp_path: Path, empty: Path) -> None:
    installed = empty / "installed"
    with build(source, tmp_path) as wheel:
        names = wheel.namelist()
        wheel.extractall(installed)
    assert any(name.endswith("/entry_points.txt") for name in names)
    before = files_below(installed)
    work = empty / "work"
    work.mkdir()
    own = {name: os.environ[name] for name in ("PATH", "HOME", "FAIRDROP_ENV") if name in os.environ}
    words = ["demo", "--no-serve", "--buyers", "2000", "--attempts", "3000", "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-m", "workers", *words],
        cwd=work, env={**own, "PYTHONPATH": str(installed)}, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    # On a machine that is too slow for its flood the demo says that it proves nothing.
    assert done.returncode == 0 or INCONCLUSIVE in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert sorted(checked_logs(done.stdout)) == sorted(FLOOD_SALES.split(","))
    assert [path.name for path in work.iterdir()] == [".fairdrop"]
    assert files_below(installed) == before  # nothing is written where the packages are
    (run,) = work.glob(".fairdrop/**/run.json")
    assert json.loads(run.read_text())["versions"]["project"] == wheel_version(names)


def checked_logs(printed: str) -> list[str]:
    """Return the sales whose logs were checked with tickets of their buyers, by the last lines before the report."""
    before, _, report = printed.strip().rpartition("\n\n")
    assert report.startswith("Report: "), report
    last = before.rpartition("\n\n")[2].splitlines()
    found = [CHECKED_LOG.fullmatch(line) for line in last]
    assert all(found), last
    return [each[1] for each in found if each]


def wheel_version(names: list[str]) -> str:
    """Return the version that a wheel's own folder names."""
    return next(name for name in names if name.endswith("/METADATA")).split("-")[1].removesuffix(".dist")


def test_make_wheel_puts_a_valid_bill_of_materials_into_the_wheel(source: Path, tmp_path: Path) -> None:
    """It lists each pin of requirements/base.txt with the hashes that pip asks for. The control leaves out a field."""
    copy = shutil.copytree(source, tmp_path / "copy")
    shutil.copy(ROOT / "Makefile", copy)
    # The pins of this environment are installed already.
    environment = [f"VENV={sys.prefix}", "--old-file", f"{sys.prefix}/dev.stamp"]
    made = subprocess.run(
        ["make", "wheel", *environment], cwd=copy, capture_output=True, text=True, timeout=1500, check=False
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    (path,) = (copy / "out" / "wheel").iterdir()
    with ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if ".dist-info/sboms/" in name)
        text = wheel.read(name).decode()
        facts = Parser().parsestr(wheel.read(name.partition("/")[0] + "/METADATA").decode())
        record = wheel.read(name.partition("/")[0] + "/RECORD").decode()
        assert files_below(copy) <= set(wheel.namelist())
    assert f"{name},sha256=" in record
    bill = json.loads(text)
    described = bill["metadata"]["component"]
    assert (described["name"], described["version"]) == (facts["Name"], facts["Version"])
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "base.txt").read_text(), flags=re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in bill["components"]) == sorted(pins)
    hashes = re.findall(r"--hash=sha256:(\w+)", (ROOT / "requirements" / "base.txt").read_text())
    assert all(known in text for known in hashes)
    schema = JsonStrictValidator(SchemaVersion.from_version(bill["specVersion"]))
    assert schema.validate_str(text) is None
    del bill["components"][0]["name"]
    assert schema.validate_str(json.dumps(bill)) is not None
