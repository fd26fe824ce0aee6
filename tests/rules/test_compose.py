"""docker-compose.yml is valid and names only what exists: files, stages, commands, variables. Starts no container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from inventory.redis.address import read_address
from tests.rules.environment import ROOT, variables_of_example, variables_of_settings
from tests.support.servers.compose import SENTINELS, SERVERS, example_of_sentinel, filled
from tests.support.servers.nginx import text_of
from workers.database_rights import KINDS, role_of
from workers.embedded.postgres import SETTINGS
from workers.embedded.valkey import CONFIGURATION
from workers.management.commands.run_worker import WORKERS

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TEXT = (ROOT / "docker-compose.yml").read_text()
REDISES = {*SERVERS, *SENTINELS, "cache"}
WATCHERS = {name for name, service in SERVICES.items() if service.get("profiles") == ["metrics"]}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("vendor.compose-spec", "docker-compose.yml"),
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
    ],
)
def test_is_valid_by_its_schema(schema: str, name: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, name],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_new_images_are_looked_for_in_each_file_that_names_some() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = {each["package-ecosystem"]: each["directory"] for each in updates}
    assert (folders["docker"], folders["docker-compose"]) == ("/", "/")


def test_holds_every_part_of_the_picture() -> None:
    stores_and_web = {"postgres", "redis", "migrate", "web", "proxy"}
    optional = {"sandbox": "sandbox", "tls": "tls"}
    optional |= dict.fromkeys(("locust-master", "locust-worker"), "load")
    optional |= dict.fromkeys(WATCHERS, "metrics")
    optional |= dict.fromkeys(REDISES - {"redis"}, "sentinel")
    assert set(SERVICES) == stores_and_web | set(WORKERS) | set(optional)
    profiles = {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service}
    assert profiles == {name: [profile] for name, profile in optional.items()}


def test_every_worker_that_the_code_has_is_a_service_of_its_name() -> None:
    """The control is above: no service too many."""
    commands = {name: SERVICES[name]["command"] for name in WORKERS}
    assert commands == {name: ["python", "manage.py", "run_worker", name] for name in WORKERS}


@pytest.mark.parametrize("name", SERVERS)
def test_redis_loses_nothing(name: str) -> None:
    """Nor does a replica: after a failover it is the primary."""
    command = " ".join(SERVICES[name]["command"])
    limit = "--maxmemory ${REDIS_MAXMEMORY:-3gb}"  # without one the shop cannot see that a server is nearly full
    for option in ("--appendonly yes", "--appendfsync always", limit, "--maxmemory-policy noeviction", '--save ""'):
        assert option in command
    assert SERVICES[name]["mem_limit"] == "4g"


def test_redis_by_hand_loses_nothing_and_stops_for_no_snapshot() -> None:
    """As the one of the demo; without `save ""` a snapshot that fails refuses all writing."""
    text = (ROOT / "docs" / "operations.md").read_text()
    (lines,) = re.findall(r"cat >> /etc/redis/redis\.conf <<'EOF'\n(.*?)EOF\n", text, re.DOTALL)
    demo = CONFIGURATION.replace("{append_fsync}", "always").splitlines()
    kept = {line for line in demo if line.split()[0] in ("appendonly", "appendfsync", "maxmemory-policy", "save")}
    assert len(kept) == 4
    assert kept <= {*lines.splitlines()}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_says_when_it_restarts(name: str) -> None:
    assert SERVICES[name].get("restart")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate", "locust-worker"}))
def test_every_lasting_service_has_a_health_check(name: str) -> None:
    assert {"test", "interval", "timeout", "retries"} <= set(SERVICES[name]["healthcheck"])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_dependency_can_become_true(name: str) -> None:
    for other, wish in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        assert wish["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
        # It is tried again, and not for ever: `docker compose up` would wait as long.
        assert wish["condition"] != "service_completed_successfully" or SERVICES[other]["restart"] == "on-failure:3"


def test_every_management_command_exists() -> None:
    commands = [service["command"] for service in SERVICES.values() if service.get("command", [""])[0] == "python"]
    assert commands
    for _, script, name, *arguments in commands:
        assert (ROOT / script).exists()
        parser = load_command_class(get_commands()[name], name).create_parser(script, name)
        parser.parse_args(arguments)


def test_every_file_and_build_stage_exists() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    for service in SERVICES.values():
        assert "build" not in service or service["build"]["target"] in stages
        for mount in service.get("volumes", []):
            source = re.sub(r"\$\{[^}]*\}", "", mount).split(":")[0]
            if source:  # else the operator names the folder
                assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_every_variable_is_explained_and_every_secret_is_demanded() -> None:
    named = dict(re.findall(r"\$\{([A-Z0-9_]+)(:[?-])?", TEXT))
    assert set(named) - variables_of_example() == set()
    secrets = {name for name in named if re.search(r"PASSWORD|SECRET_KEY$|TOKEN", name)}
    assert secrets == {name for name, default in named.items() if default == ":?"}


# For tests and development.
NOT_IN_COMPOSE = {
    "DEBUG", "FAIRDROP_FAULT", "FAIRDROP_SANDBOX_MISCHIEF", "FAIRDROP_STATE_DIR", "FAIRDROP_STRIPE_API",
}  # fmt: skip


def test_the_shop_is_given_every_variable_that_it_reads_and_no_other() -> None:
    given = set(re.findall(r"^ +([A-Z][A-Z0-9_]+):", TEXT, re.M))
    assert variables_of_settings() - given == NOT_IN_COMPOSE
    assert {*COMPOSE["x-shop"]["environment"], *COMPOSE["x-log-keys"]} - variables_of_settings() == set()


def test_the_image_copies_only_what_exists() -> None:
    ignored_except = set(re.findall(r"^!([^*\n]+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE))
    for source in re.findall(r"^COPY (\S+) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE):
        assert (ROOT / source).exists(), source
        assert source in ignored_except or source.startswith("requirements/"), source


def test_the_image_starts_the_web_process_with_options_that_it_has() -> None:
    _, script, name, *options = json.loads(re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.M)[0])
    assert (ROOT / script).exists()
    load_command_class(get_commands()[name], name).create_parser(script, name).parse_args(options)


def lint(dockerfile: str) -> subprocess.CompletedProcess[str]:
    """Ask hadolint, as the virtual environment has it."""
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    return subprocess.run([program, "-"], input=dockerfile, capture_output=True, text=True, timeout=600)


def test_the_image_is_made_as_its_linter_asks_and_runs_as_a_user() -> None:
    text = (ROOT / "Dockerfile").read_text()
    checked = lint(text)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    by_stage = [re.findall(r"^USER (\S+)$", stage, re.M)[-1] for stage in re.split(r"^FROM ", text, flags=re.M)[1:]]
    assert by_stage == ["10001"] * 2


def test_the_control_the_linter_sees_an_image_that_runs_as_root() -> None:
    checked = lint((ROOT / "Dockerfile").read_text() + "USER root\n")
    assert "DL3002" in checked.stdout
    assert checked.returncode != 0


def test_prometheus_looks_at_every_process_of_the_shop_where_it_shows_itself() -> None:
    assert {"prometheus", "grafana"} == WATCHERS
    (job,) = yaml.safe_load((ROOT / "docker" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    (looked_at,) = job["dns_sd_configs"]
    assert set(looked_at["names"]) == OURS - {"migrate", "sandbox"}  # that one is no part of a shop that sells
    address = COMPOSE["x-shop"]["environment"]["FAIRDROP_METRICS_ADDRESS"]
    assert address == f"${{FAIRDROP_METRICS_ADDRESS:-0.0.0.0:{looked_at['port']}}}"


OURS = {name for name, service in SERVICES.items() if service.get("image") == "fairdrop"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_process_gets_more_rights_than_it_begins_with(name: str) -> None:
    assert "no-new-privileges:true" in SERVICES[name]["security_opt"]


# What an image's first script, or nginx itself, needs before it becomes another user.
BEGIN_AS_ROOT = {
    "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
    **{name: {"CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"} for name in REDISES},
    "proxy": {"CHOWN", "SETGID", "SETUID"},
    "tls": {"CHOWN", "DAC_OVERRIDE", "NET_BIND_SERVICE", "SETGID", "SETUID"},
}
# What each service may write. All of it is the operator's, a volume, or empty at each start.
WRITABLE = {
    "postgres": {"/var/lib/postgresql", "/tmp", "/var/run/postgresql"},  # noqa: S108
    **{name: {"/data", "/tmp"} for name in REDISES},  # noqa: S108
    "web": {"/srv/media", "/tmp"},  # noqa: S108
    "proxy": {"/run", "/var/cache/nginx"},
    "tls": {"/run", "/var/cache/nginx", "/tmp"},  # noqa: S108
    "prometheus": {"/prometheus", "/tmp"},  # noqa: S108
    "grafana": {"/var/lib/grafana", "/tmp"},  # noqa: S108
    "locust-master": {"/flood", "/tmp"},  # noqa: S108
    "locust-worker": {"/flood", "/tmp"},  # noqa: S108
}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_box_has_bounds_and_no_capability_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert {"pids_limit", "mem_limit"} <= service.keys()
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", [])) == BEGIN_AS_ROOT.get(name, set())


def writable(service: dict[str, Any]) -> set[str]:
    """Return the folders that a service can write."""
    mounts = {mount.split(":")[1] for mount in service.get("volumes", []) if not mount.endswith(":ro")}
    return mounts | set(service.get("tmpfs", [])) | (set() if service.get("read_only") else {"/"})


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_writes_anything_but_what_is_its_own(name: str) -> None:
    """The control is a service whose root is not read-only."""
    own = WRITABLE.get(name, {"/tmp"})  # noqa: S108
    assert writable(SERVICES[name]) == own
    assert writable({**SERVICES[name], "read_only": False}) == {"/", *own}


@pytest.mark.parametrize("name", sorted(REDISES))
def test_redis_does_not_stay_root(name: str) -> None:
    """The image's script steps down when it is asked for the server itself, and only the shell is asked here."""
    command = SERVICES[name]["command"][-1]
    assert "chown valkey /tmp/users.acl && exec docker-entrypoint.sh valkey-server " in command


def test_only_the_shop_reaches_the_stores() -> None:
    assert COMPOSE["networks"]["stores"] == {"internal": True}
    reaching = {name for name, service in SERVICES.items() if "stores" in service.get("networks", [])}
    assert reaching == OURS | {"postgres"} | REDISES
    assert {name for name in reaching if SERVICES[name]["networks"] == ["stores"]} == {"postgres"} | REDISES
    assert [name for name in reaching - OURS if SERVICES[name].get("ports")] == []


def test_no_port_is_published_on_ipv6() -> None:
    """The networks are IPv4 only: who comes by IPv6 would come from Docker's own address, all at the same one."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in published if not re.match(r"(\$\{\w+:-)?\d+\.\d+\.\d+\.\d+}?:", port)] == []
    assert len(published) > 3


def test_how_many_run_is_kept_by_the_environment() -> None:
    """`up` without `--scale` goes back to what the file says."""
    replicas = {name: SERVICES[name]["deploy"]["replicas"] for name in ("web", "settler")}
    assert replicas == {"web": "${WEB_PROCESSES:-1}", "settler": "${SETTLER_PROCESSES:-2}"}


def test_each_kind_of_process_logs_in_to_both_stores_as_itself() -> None:
    for service in {*KINDS, "sandbox"}:
        kind = {"sandbox": "payments"}.get(service, service)
        logins = {name: SERVICES[service]["environment"][name] for name in ("DATABASE_URL", "REDIS_URL")}
        password = f"${{FAIRDROP_{kind.upper()}_PASSWORD:?}}"
        assert logins == {
            "DATABASE_URL": f"postgresql://{role_of(kind)}:{password}@postgres:5432/fairdrop",
            "REDIS_URL": f"${{REDIS_SCHEME:-redis}}://{kind}:{password}@${{REDIS_SERVERS:-redis:6379}}/0",
        }
    assert {*KINDS, "migrate", "sandbox"} == OURS


def test_only_web_can_log_in_to_the_cache() -> None:
    nobody = {name for name in OURS if SERVICES[name]["environment"]["CACHE_URL"] == "redis://nobody:none@redis:6379/0"}
    assert nobody == OURS - {"web"}
    url = SERVICES["web"]["environment"]["CACHE_URL"]
    assert filled(url, {}) == "redis://web:@redis:6379/0"
    assert filled(url, example_of_sentinel()) == "redis://web:@cache:6379/0"


def test_with_the_lines_of_the_example_every_process_asks_the_sentinels_and_without_them_one_server() -> None:
    passwords = {f"FAIRDROP_{kind.upper()}_PASSWORD": f"{kind}1" for kind in KINDS}
    for kind in KINDS:
        url = SERVICES[kind]["environment"]["REDIS_URL"]
        assert filled(url, passwords) == f"redis://{kind}:{kind}1@redis:6379/0"
        address = read_address(filled(url, passwords | example_of_sentinel()))
        assert address
        assert address.nodes == tuple((name, 26379) for name in SENTINELS)
        assert (address.service, address.username, address.password) == ("fairdrop", kind, f"{kind}1")


def test_each_server_and_sentinel_keeps_what_it_learns_in_a_volume_of_its_own() -> None:
    mounts = {name: SERVICES[name]["volumes"][0] for name in (*SERVERS, *SENTINELS)}
    assert mounts == {name: f"{name}:/data" for name in mounts}
    own_names = {name: SERVICES[name]["environment"]["OWN_NAME"] for name in SERVERS}
    assert own_names == {name: name for name in SERVERS}
    begins = [SERVICES[name]["environment"].get("REPLICA_OF") for name in SERVERS]
    assert begins == [None, "redis 6379", "redis 6379"]
    assert {SERVICES[name]["environment"]["PRIMARY"] for name in SENTINELS} == {"redis 6379"}


def test_a_sentinel_knows_no_password_of_a_process() -> None:
    for name in SENTINELS:
        assert set(re.findall(r"\$\{(\w+)", json.dumps(SERVICES[name]))) == {"REDIS_PASSWORD", "REDIS_SCHEME"}


def test_only_web_and_the_notary_can_sign() -> None:
    """Tickets, and checkpoints of public logs. The reconciler is told whether there are keys, and has none."""
    named = {name for name in SERVICES if "LOG_KEY" in json.dumps(SERVICES[name])}
    assert named == {"web", "notary", "reconciler"}
    assert COMPOSE["x-log-keys"]["FAIRDROP_LOG_KEYS"] == "${FAIRDROP_LOG_KEYS:-}"
    told = SERVICES["reconciler"]["environment"]["FAIRDROP_SALE_LOG"]
    assert [filled(told, {"FAIRDROP_LOG_KEYS": keys}) for keys in ("", "a key")] == ["", "true"]


@pytest.mark.parametrize("name", ["web", "notary", "reconciler"])
def test_public_logs_can_be_switched_off_although_there_are_keys(name: str) -> None:
    told = SERVICES[name]["environment"]["FAIRDROP_SALE_LOG"]
    assert filled(told, {"FAIRDROP_LOG_KEYS": "a key", "FAIRDROP_SALE_LOG": "false"}) == "false"
    assert filled(told, {"FAIRDROP_LOG_KEYS": "a key"}) != "false"
    assert filled(told, {"FAIRDROP_SALE_LOG": "true"}) == ""  # a notary without keys would not start


def test_only_the_migrator_has_the_owners_password_and_no_process_the_operators() -> None:
    secret = {
        name: {
            word for word in ("FAIRDROP_DB_PASSWORD", "POSTGRES_PASSWORD", "REDIS_PASSWORD") if f"${{{word}:" in text
        }
        for name, text in ((name, json.dumps(SERVICES[name])) for name in OURS)
    }
    assert {name: words for name, words in secret.items() if words} == {"migrate": {"FAIRDROP_DB_PASSWORD"}}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_container_writes_fills_no_disk(name: str) -> None:
    logging = SERVICES[name]["logging"]
    assert logging["driver"] == "local"
    assert logging["options"].keys() == {"max-size", "max-file"}


def test_neither_the_proxy_nor_the_database_writes_what_the_shops_own_lines_hide() -> None:
    for name in ("nginx.conf", "nginx-tls.conf"):
        logs = re.findall(r"^\s*((?:access|error)_log .*)$", text_of(name), re.M)
        assert logs == ["access_log off;", "error_log stderr crit;"]
    command = " ".join(SERVICES["postgres"]["command"])
    for option in ("log_min_error_statement", "log_error_verbosity"):
        assert f"{option}={SETTINGS[option]}" in command


# A version in full, for the rest of the name what it is made on, and the digest: a tag can be moved.
EXACT = re.compile(
    r"(?:(?:python|nginx|valkey/valkey):[0-9]+\.[0-9]+\.[0-9]+-[a-z-]+|postgres:[0-9]+\.[0-9]+-[a-z]+"
    r"|(?:prom/prometheus:v|grafana/grafana:)[0-9]+\.[0-9]+\.[0-9]+)"  # these are made on one base only
    r"@sha256:[0-9a-f]{64}"
)
DIGEST = "sha256:" + "5e" * 32


def images(folder: Path) -> list[str]:
    """Return the images of others that are named in a folder's two files."""
    text = (folder / "Dockerfile").read_text() + (folder / "docker-compose.yml").read_text()
    return re.findall(r"^(?:FROM|    image:) (\S+:\S+)", text, re.M)


def test_each_image_is_an_exact_version_with_its_digest() -> None:
    found = images(ROOT)
    assert len(set(found)) == 6
    assert [image for image in found if not EXACT.fullmatch(image)] == []
    for control in ("nginx:1.29.3-alpine", f"nginx:1.29-alpine@{DIGEST}"):
        assert not EXACT.fullmatch(control)


def make_digests(folder: Path, *, docker: str) -> subprocess.CompletedProcess[str]:
    """Run what `make digests` runs in a folder that has our files, with a `docker` that does as it is told."""
    for name in ("Dockerfile", "docker-compose.yml"):
        (folder / name).write_text((folder / name if (folder / name).exists() else ROOT / name).read_text())
    (folder / "docker").write_text(f"#!/bin/sh\n{docker}\n")
    (folder / "docker").chmod(0o755)
    return subprocess.run(
        [ROOT / "docker" / "digests.sh"], cwd=folder, capture_output=True, text=True, timeout=600,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip


def test_digests_are_written_where_the_registry_answers(tmp_path: Path) -> None:
    for digest in (DIGEST, DIGEST.replace("5e", "a7")):  # also in place of others
        made = make_digests(tmp_path, docker=f"echo {digest}")
        assert made.returncode == 0, made.stderr
        assert images(tmp_path) == [f"{image.partition('@')[0]}@{digest}" for image in images(ROOT)]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["Dockerfile", "docker", "docker-compose.yml"]
    assert len(yaml.safe_load((tmp_path / "docker-compose.yml").read_text())["services"]) == len(SERVICES)


NO_NGINX = f"case $6 in nginx*) exit 1; esac; echo {DIGEST}"


@pytest.mark.parametrize("docker", ["echo no such host >&2; exit 1", "echo nothing", NO_NGINX])
def test_without_an_answer_no_digest_is_written(tmp_path: Path, docker: str) -> None:
    assert make_digests(tmp_path, docker=docker).returncode != 0
    assert images(tmp_path) == images(ROOT)


def attached(text: str) -> list[str]:
    """Return each call of `docker compose … up` in a text that would stay in the foreground."""
    calls: list[str] = re.findall(r"docker compose\b[^`\n;&|]* up\b[^`\n;&|]*", text)
    return [call for call in calls if not re.search(r" (?:--detach|-d)\b", call)]


def test_no_call_of_up_attaches_to_the_shop() -> None:
    """Ctrl-C would stop all of it: `up` attaches to every service that it names or that runs already."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ("Makefile", ".env.example"))]
    assert [call for text in (TEXT, *(path.read_text() for path in files)) for call in attached(text)] == []
    assert attached("# docker compose up --detach, `docker compose --profile load up --scale a=2` and -d") == [
        "docker compose --profile load up --scale a=2"
    ]
