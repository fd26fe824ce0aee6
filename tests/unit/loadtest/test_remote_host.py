"""A host that is not this machine is refused, by Locust and by the flood command, unless the operator allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# A block that is kept for documents: nobody answers there, and nothing is sent before it is refused.
REMOTE = "http://192.0.2.1:8000"
SENTENCE = "192.0.2.1 is not this machine; if you may flood it, say so with --allow-remote."


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python to its end."""
    environment = os.environ | {"FAIRDROP_STATE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["locust", "--headless", "--host", REMOTE],
        ["locust", "--host", REMOTE, "--web-port", "0"],
        ["loadtest.run_flood", "--host", REMOTE, "--audit-token", "t"],
    ],
    ids=["locust", "locust with its page", "flood command"],
)
def test_another_host_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert SENTENCE in done.stderr.splitlines()


def test_no_demo_and_no_shop_are_said_in_one_sentence(tmp_path: Path) -> None:
    without = run(tmp_path, "loadtest.run_flood", "--demo")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("No demo runs from this checkout: start one with make demo")
    (tmp_path / "demo.env").write_text("FAIRDROP_AUDIT_TOKEN=left-behind\n")
    dead = run(tmp_path, "loadtest.run_flood", "--demo", "--host", "http://127.0.0.1:1", "--shape", "smoke")
    assert (dead.returncode, len(dead.stderr.splitlines())) == (2, 1)
    assert dead.stderr.startswith("No shop answers at http://127.0.0.1:1")
