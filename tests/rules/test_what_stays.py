"""What users have written down goes on working: the variables of a `.env`, the commands of manage.py and make, as they
were at revision c612c29, before most modules moved. Addresses: tests/integration/shop/test_former_addresses.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, get_commands, load_command_class

from tests.rules.environment import ROOT, variables_of_settings

KEY = "k" * 32
# variable, what somebody set it to, the setting that takes it, its value
READ_BY_SETTINGS: list[tuple[str, str, str, Any]] = [
    ("SECRET_KEY", KEY * 2, "SECRET_KEY", KEY * 2),
    ("SECRET_KEY_FALLBACKS", f"{KEY}1,{KEY}2", "SECRET_KEY_FALLBACKS", [f"{KEY}1", f"{KEY}2"]),
    ("FAIRDROP_TOKEN_KEYS", f"{KEY}3,{KEY}4", "TOKEN_KEYS", [f"{KEY}3", f"{KEY}4"]),
    ("FAIRDROP_AUDIT_TOKEN", f"{KEY}5", "AUDIT_TOKEN", f"{KEY}5"),
    ("FAIRDROP_ENV", "test", "ENVIRONMENT", "test"),
    ("DEBUG", "true", "DEBUG", True),
    ("ALLOWED_HOSTS", "shop.example,127.0.0.1", "ALLOWED_HOSTS", ["shop.example", "127.0.0.1"]),
    ("FAIRDROP_TRUSTED_ORIGINS", "https://app.example", "TRUSTED_ORIGINS", ["https://app.example"]),
    ("FAIRDROP_BEHIND_TLS", "true", "BEHIND_TLS", True),
    ("FAIRDROP_SSL_REDIRECT", "false", "SECURE_SSL_REDIRECT", False),
    ("FAIRDROP_HSTS_SECONDS", "600", "SECURE_HSTS_SECONDS", 600),
    ("FAIRDROP_FAULT", "after_take:kill:2", "FAULT", "after_take:kill:2"),
    ("LOG_LEVEL", "INFO", "LOGGING.root.level", "INFO"),
    ("FAIRDROP_PAYMENT_PROVIDERS", "acme=acme.Cards", "PAYMENT_PROVIDERS", {"acme": "acme.Cards"}),
    ("FAIRDROP_SANDBOX_ALLOWED", "false", "SANDBOX_ALLOWED", False),
    ("FAIRDROP_SANDBOX_SECRET", f"{KEY}6", "SANDBOX_SECRET", f"{KEY}6"),
    ("FAIRDROP_PUBLIC_URL", "https://shop.example", "PUBLIC_URL", "https://shop.example"),
    ("FAIRDROP_SANDBOX_MISCHIEF", "twice,late", "SANDBOX_MISCHIEF", ["twice", "late"]),
    ("DATABASE_URL", "postgresql://a:b@db.example/c", "DATABASES.default.HOST", "db.example"),
    ("REDIS_URL", "redis://:a@redis.example/0", "REDIS_URL", "redis://:a@redis.example/0"),
    ("CACHE_URL", "redis://:a@cache.example/0", "CACHE_URL", "redis://:a@cache.example/0"),
    ("FAIRDROP_REDIS_TIMEOUT_SECONDS", "0.7", "REDIS_TIMEOUT_SECONDS", 0.7),
    ("FAIRDROP_GATE_MAX_WAITING", "1000", "GATE_MAX_WAITING", 1000),
    ("FAIRDROP_GATE_MAX_STREAMS", "50", "GATE_MAX_STREAMS", 50),
    ("FAIRDROP_GATE_BATCH", "64", "GATE_BATCH", 64),
    ("FAIRDROP_LOCK_TTL_MS", "4000", "LOCK_TTL_MS", 4000),
    ("FAIRDROP_SETTLE_BATCH", "100", "SETTLE_BATCH", 100),
]
READ_ELSEWHERE = {
    "docker-compose.yml": {
        "SECRET_KEY", "FAIRDROP_TOKEN_KEYS", "FAIRDROP_AUDIT_TOKEN", "POSTGRES_PASSWORD", "FAIRDROP_DB_PASSWORD",
        "REDIS_PASSWORD", "PROXY_ADDRESS", "PROXY_PORT",
    },
    "Makefile": {"PORT"},
}  # fmt: skip
# The shop reads these no more, and the changelog says so: what they switched on is the load test's own.
GONE = {"FAIRDROP_RIVALS", "FAIRDROP_MUTANT"}
# As many variables as .env.example explained; FAIRDROP_STATE_DIR is read too: the file below is found by it.
EXPLAINED = 36
COMMANDS = {
    "audit": ["lantern", "--sale", "x", "--json", "--thorough", "--watch", "--every", "2"],
    "check_queues": ["--json"],
    "dead_letters": ["retry", "1-0", "--sku", "x", "--json"],
    "demo": ["--no-serve", "--port", "8001", "--buyers", "10", "--attempts", "20", "--crowd", "0"],
    "demo_editions": [],
    "locks": ["lantern", "--json", "--force", "teapot"],
    "reconcile": ["--sale", "x", "--json", "--dry-run"],
    "run_worker": ["settler"],
    "sale": [
        "restock", "x", "--units", "5", "--seen-total", "9", "--price", "3", "--limit", "1", "--reason", "y",
        "--actor", "z", "--json",
    ],
    "seed_demo": ["again", "--opens-in-seconds", "3", "--sales", "2", "--units", "9"],
}  # fmt: skip
WORKERS = ("settler", "expirer", "reconciler", "sandbox")
TARGETS = {
    "help", "demo", "flood", "test", "test-unit", "test-returning", "check", "bench-gate", "bench-locks",
    "bench-settle", "bench-streams", "bench-shop", "bench", "mutants", "compare", "audit", "pins", "up", "down",
    "clean",
}  # fmt: skip
MAKE_VARIABLES = {
    "CROWD", "GREEN", "HOST", "JOBS", "MIX", "PORT", "PROCESSES", "RATE", "SALES", "SECONDS", "SERVE", "SHAPE", "TESTS",
    "USERS",
}  # fmt: skip
# Prints the settings named in its arguments; a dot leads into a dictionary.
SHOW = """
import json, sys
from functools import reduce
from django.conf import settings
def value(name):
    first, *rest = name.split(".")
    return reduce(lambda found, key: found[key], rest, getattr(settings, first))
print(json.dumps([value(name) for name in sys.argv[1:]]))
"""


def test_a_file_of_variables_of_before_is_read_as_it_was(tmp_path: Path) -> None:
    """Read from a file, with nothing else set but where the file is."""
    lines = [f"{name}={value}" for name, value, _, _ in READ_BY_SETTINGS]
    (tmp_path / "demo.env").write_text("\n".join(lines))
    environment = {
        "PATH": os.environ["PATH"],
        "FAIRDROP_STATE_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
    }
    names = [name for _, _, name, _ in READ_BY_SETTINGS]
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, *names], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    found = dict(zip(names, json.loads(shown.stdout), strict=True))
    assert found == {name: value for _, _, name, value in READ_BY_SETTINGS}
    assert GONE & variables_of_settings() == set()


def test_every_other_variable_of_before_is_read_where_it_was() -> None:
    found = {path: set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", (ROOT / path).read_text())) for path in READ_ELSEWHERE}
    assert {path: names - found[path] for path, names in READ_ELSEWHERE.items() if names - found[path]} == {}
    known = {name for name, _, _, _ in READ_BY_SETTINGS}.union(*READ_ELSEWHERE.values()) | {"FAIRDROP_STATE_DIR"}
    assert len(known | GONE) == EXPLAINED
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert {name for name in GONE if name not in changes} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_before_takes_what_it_took(name: str) -> None:
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    parser.parse_args(COMMANDS[name])
    with pytest.raises(CommandError):  # the control
        parser.parse_args([*COMMANDS[name], "--nothing-has-this"])


def test_every_worker_of_before_runs_by_its_name() -> None:
    parser = load_command_class(get_commands()["run_worker"], "run_worker").create_parser("manage.py", "run_worker")
    for name in WORKERS:
        parser.parse_args([name])


def test_make_still_has_every_target_and_variable() -> None:
    text = (ROOT / "Makefile").read_text()
    heads = re.findall(r"^([a-z][a-z -]*):(?!=)", text, flags=re.MULTILINE)
    assert TARGETS - {name for head in heads for name in head.split()} == set()
    assert MAKE_VARIABLES - set(re.findall(r"^([A-Z_]+) \?=", text, flags=re.MULTILINE)) == set()


# Options of pytest are given by these alone; what each collects.
PROOFS = {"test-slow-senders": "test_slow_senders", "test-crowds": "crowd", "test-returning": "test_returning_units"}


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `command` by itself: the settings, workers and make of this run are not for it."""
    ours = ("DJANGO_", "PYTEST_", "MAKE", "MFLAGS")
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=600, check=False)


def collected(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Let pytest read `arguments` and collect, without running a test."""
    return run([sys.executable, "-m", "pytest", "--collect-only", "--quiet", *arguments])


@pytest.mark.parametrize("target", PROOFS)
def test_make_calls_pytest_with_options_that_it_knows(target: str) -> None:
    """The control: an option that pytest does not have."""
    said = run(["make", "--no-print-directory", "--dry-run", target])
    arguments = said.stdout.replace("\\\n", " ").rpartition(" -m pytest ")[2].splitlines()[0].split()
    found = collected(arguments)
    assert found.returncode == 0, found.stderr
    assert PROOFS[target] in found.stdout
    assert collected([*arguments, "--keyword", "crowd"]).returncode == pytest.ExitCode.USAGE_ERROR
