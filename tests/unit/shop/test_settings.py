"""Production refuses to start with anything unsafe and names all of it. Each case is a process of its own.
Needs no server.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shop.production import RANDOM, RULES, is_weak
from tests.support.servers.compose import example_of_sentinel, filled

ROOT = Path(__file__).resolve().parents[3]
# Random, but the same in every run.
KEYS = [hashlib.sha256(name.encode()).hexdigest() for name in ("first", "second", "third")]
SAFE = {
    "FAIRDROP_ENV": "production",
    "DEBUG": "false",
    "SECRET_KEY": KEYS[0],
    "FAIRDROP_TOKEN_KEYS": f"{KEYS[1]},{KEYS[2]}",
    "FAIRDROP_AUDIT_TOKEN": KEYS[2],
    "ALLOWED_HOSTS": "shop.example",
    "FAIRDROP_TRUSTED_PROXIES": "1",
    "FAIRDROP_PUBLIC_URL": "https://shop.example",
    "DATABASE_URL": "postgresql://shop:secret@db.example/shop",
    "REDIS_URL": "redis://:secret@redis.example/0",
    "FAIRDROP_PAYMENT_PROVIDERS": "acme=acme.payments.Cards",
}
# As safe with the sandbox, which somebody has to want.
WITH_SANDBOX = {
    "FAIRDROP_PAYMENT_PROVIDERS": "",
    "FAIRDROP_SANDBOX_ALLOWED": "true",
    "FAIRDROP_SANDBOX_SECRET": KEYS[1],
}
# A shop on this machine may do without TLS.
LOCAL = {
    "ALLOWED_HOSTS": "127.0.0.1,localhost,[::1],proxy",
    "FAIRDROP_PUBLIC_URL": "http://127.0.0.1:8080",
    "FAIRDROP_BEHIND_TLS": "false",
}
# As safe with Stripe.
WITH_STRIPE = {
    "FAIRDROP_PAYMENT_PROVIDERS": "stripe=shop.stripe.provider.Stripe",
    "FAIRDROP_STRIPE_KEY": "rk_live_of_these_tests",
    "FAIRDROP_STRIPE_WEBHOOK_SECRET": "whsec_of_these_tests",
}
STRIPE_KEY_FAULT = "FAIRDROP_STRIPE_KEY must be a live key, sk_live_ or rk_live_: nobody pays with a test key"
ENDPOINT_FAULT = "FAIRDROP_STRIPE_WEBHOOK_SECRET must be the secret of the endpoint, whsec_"
STRIPE_API_FAULT = "FAIRDROP_STRIPE_API must be an https address: the key goes there"
SECRET_FAULT = "SECRET_KEY must have at least 50 characters"
TOKEN_FAULT = "FAIRDROP_TOKEN_KEYS must have at least 32 characters"
AUDIT_FAULT = "FAIRDROP_AUDIT_TOKEN must have at least 32 characters"
LOG_FAULT = "FAIRDROP_LOG_KEYS must be a moment, = and a seed, the key that signs first: manage.py log_key makes one"
MONEY_FAULT = "FAIRDROP_PAYMENT_PROVIDERS must name who takes the money, or FAIRDROP_SANDBOX_ALLOWED be true"
SANDBOX_FAULT = "FAIRDROP_SANDBOX_SECRET must have at least 32 characters"
ADDRESS_FAULT = "FAIRDROP_PUBLIC_URL must say where the world reaches this shop, for example https://shop.example"
CACHE_FAULT = "CACHE_URL must name one plain server: the cache knows neither Sentinel nor Cluster"
HOSTS_FAULT = "ALLOWED_HOSTS must name the hosts of the shop, each in full"
ORIGINS_FAULT = "FAIRDROP_TRUSTED_ORIGINS must be whole https origins, for example https://shop.example"
TLS_FAULT = "FAIRDROP_BEHIND_TLS must be true: only a shop on this machine may do without TLS"
PROXIES_FAULT = (
    "FAIRDROP_TRUSTED_PROXIES must say how many proxies of yours there are: else all buyers have the proxy's address, "
    "and its one limit"
)
ALL_PROXIES_FAULT = (
    "FAIRDROP_TRUSTED_PROXIES must name the networks of your proxies alone: else each buyer chooses an address"
)
FALLBACK_FAULT = "SECRET_KEY_FALLBACKS must be old values of SECRET_KEY as strong as a new one, or empty"
# The keys that the image was once built with.
PUBLISHED = [f"only-to-collect-static-files-while-the-image-is-built-{number}" for number in (0, 1)]


def start(folder: Path, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Read the settings, or run `command`, in a new process whose environment is SAFE with `changes`."""
    environment = {"PATH": os.environ["PATH"], "FAIRDROP_STATE_DIR": str(folder), **SAFE, **changes}
    return subprocess.run(
        [sys.executable, *(command or ("-c", "import shop.settings"))],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def faults(started: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what production called unsafe, in its order."""
    head, _, found = started.stderr.strip().splitlines()[-1].partition("refusing to start in production: ")
    assert head.endswith("ImproperlyConfigured: ")
    return found.split("; ")


def test_safe_settings_start(tmp_path: Path) -> None:
    """The control: without a fault, production starts, and leaves no secret of its own behind."""
    started = start(tmp_path)
    assert (started.returncode, started.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_production_refuses_the_settings_of_the_rivals(tmp_path: Path) -> None:
    started = start(tmp_path, "-c", "import loadtest.rivals.lean_settings")
    assert "FAIRDROP_ENV=production refuses the rivals" in started.stderr.splitlines()[-1]
    elsewhere = start(tmp_path, "-c", "import loadtest.rivals.lean_settings", FAIRDROP_ENV="development")
    assert elsewhere.returncode == 0, elsewhere.stderr


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("DEBUG", "true", "DEBUG must be off"),
        ("SECRET_KEY", "", SECRET_FAULT),
        ("SECRET_KEY", KEYS[0][:49], SECRET_FAULT),
        ("SECRET_KEY", "a" * 64, f"SECRET_KEY {RANDOM}"),
        ("SECRET_KEY", PUBLISHED[0], f"SECRET_KEY {RANDOM}"),
        ("SECRET_KEY_FALLBACKS", "x", FALLBACK_FAULT),
        ("FAIRDROP_TRUSTED_PROXIES", "", PROXIES_FAULT),
        ("FAIRDROP_TRUSTED_PROXIES", "0", PROXIES_FAULT),
        ("SECRET_KEY_FALLBACKS", f"{KEYS[1]},{PUBLISHED[0]}", FALLBACK_FAULT),
        ("FAIRDROP_TOKEN_KEYS", "", TOKEN_FAULT),
        ("FAIRDROP_TOKEN_KEYS", f"{KEYS[1]},{KEYS[2][:31]}", TOKEN_FAULT),
        ("FAIRDROP_TOKEN_KEYS", f"{KEYS[1]},{PUBLISHED[1]}", f"FAIRDROP_TOKEN_KEYS {RANDOM}"),
        ("FAIRDROP_LOG_KEYS", "2026-01-01T00:00:00Z=short", LOG_FAULT),
        ("FAIRDROP_LOG_KEYS", f"2026-01-01T00:00:00Z=pub:{KEYS[0][:43]}", LOG_FAULT),
        ("FAIRDROP_AUDIT_TOKEN", KEYS[2][:31], AUDIT_FAULT),
        ("FAIRDROP_AUDIT_TOKEN", "ab" * 20, f"FAIRDROP_AUDIT_TOKEN {RANDOM}"),
        ("FAIRDROP_FAULT", "after_take:kill", "FAIRDROP_FAULT must not be set"),
        ("ALLOWED_HOSTS", "", HOSTS_FAULT),
        ("ALLOWED_HOSTS", "shop.example,*", HOSTS_FAULT),
        ("ALLOWED_HOSTS", ".com", HOSTS_FAULT),
        ("FAIRDROP_TRUSTED_ORIGINS", "http://shop.example", ORIGINS_FAULT),
        ("FAIRDROP_TRUSTED_ORIGINS", "https://app.example,*", ORIGINS_FAULT),
        ("FAIRDROP_TRUSTED_ORIGINS", "https://*.example", ORIGINS_FAULT),
        ("FAIRDROP_TRUSTED_ORIGINS", "https://app.example/path", ORIGINS_FAULT),
        ("FAIRDROP_BEHIND_TLS", "false", TLS_FAULT),
        ("FAIRDROP_PUBLIC_URL", "", ADDRESS_FAULT),
        ("FAIRDROP_PUBLIC_URL", "http://shop.example", ADDRESS_FAULT),
        ("FAIRDROP_TRUSTED_PROXIES", "0.0.0.0/0", ALL_PROXIES_FAULT),
        ("FAIRDROP_TRUSTED_PROXIES", "10.0.0.0/8,::/0", ALL_PROXIES_FAULT),
        ("DATABASE_URL", "postgresql://postgres@db.example/shop", "DATABASE_URL must have a password"),
        ("REDIS_URL", "redis://redis.example/0", "REDIS_URL must have a password"),
        ("CACHE_URL", "redis://cache.example/0", "CACHE_URL must have a password"),
        ("DATABASE_URL", "", "DATABASE_URL must be set"),
        ("REDIS_URL", "", "REDIS_URL must be set"),
        ("FAIRDROP_PAYMENT_PROVIDERS", "", MONEY_FAULT),
        ("FAIRDROP_PAYMENT_PROVIDERS", "toy=shop.sandbox.provider.Sandbox", MONEY_FAULT),
        ("FAIRDROP_SANDBOX_MISCHIEF", "twice", "FAIRDROP_SANDBOX_MISCHIEF must not be set"),
        ("REDIS_URL", "redis+sentinel://:secret@one.example:26379/shop/0", CACHE_FAULT),
        ("REDIS_URL", "rediss+cluster://:secret@one.example:7000", CACHE_FAULT),
        ("CACHE_URL", "redis+cluster://:secret@one.example:7000", CACHE_FAULT),
    ],
)
def test_production_refuses_one_unsafe_thing_by_name(tmp_path: Path, name: str, value: str, fault: str) -> None:
    started = start(tmp_path, **{name: value})
    assert started.returncode == 1
    assert faults(started) == [fault]


@pytest.mark.parametrize(("word", "expected"), [("", "False"), ("true", "True")])
def test_a_process_without_keys_may_know_that_there_are_public_logs(tmp_path: Path, word: str, expected: str) -> None:
    """The reconciler then alerts when no notary runs; blank is what Compose gives it in a shop without keys."""
    code = "from shop.settings import *; print(SALE_LOG, LOG_KEYS, LOG_KEY_IS_DERIVED)"
    started = start(tmp_path, "-c", code, FAIRDROP_SALE_LOG=word)
    assert (started.returncode, started.stdout) == (0, f"{expected} [] False\n"), started.stderr


def test_production_with_a_sandbox_that_is_wanted(tmp_path: Path) -> None:
    started = start(tmp_path, **WITH_SANDBOX)
    assert (started.returncode, started.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("FAIRDROP_SANDBOX_ALLOWED", "false", MONEY_FAULT),
        ("FAIRDROP_SANDBOX_SECRET", "", SANDBOX_FAULT),
        ("FAIRDROP_SANDBOX_SECRET", KEYS[1][:31], SANDBOX_FAULT),
        ("FAIRDROP_SANDBOX_SECRET", "x" * 32, f"FAIRDROP_SANDBOX_SECRET {RANDOM}"),
    ],
)
def test_a_sandbox_in_production_needs_a_secret(tmp_path: Path, name: str, value: str, fault: str) -> None:
    started = start(tmp_path, **WITH_SANDBOX | {name: value})
    assert started.returncode == 1
    assert faults(started) == [fault]


def test_production_with_stripe(tmp_path: Path) -> None:
    """The control of the refusals below; also in a rehearsal, which somebody has to want."""
    rehearsed = {"FAIRDROP_STRIPE_KEY": "sk_test_x", "FAIRDROP_SANDBOX_ALLOWED": "true"}
    for changes in ({}, {"FAIRDROP_STRIPE_KEY": "sk_live_x"}, {"FAIRDROP_STRIPE_API": ""}, rehearsed):
        started = start(tmp_path, **WITH_STRIPE | changes)
        assert (started.returncode, started.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("FAIRDROP_STRIPE_KEY", "", STRIPE_KEY_FAULT),
        ("FAIRDROP_STRIPE_KEY", "pk_live_x", STRIPE_KEY_FAULT),
        ("FAIRDROP_STRIPE_KEY", "sk_test_x", STRIPE_KEY_FAULT),
        ("FAIRDROP_STRIPE_KEY", "rk_test_x", STRIPE_KEY_FAULT),
        ("FAIRDROP_STRIPE_WEBHOOK_SECRET", "", ENDPOINT_FAULT),
        ("FAIRDROP_STRIPE_WEBHOOK_SECRET", "sk_live_x", ENDPOINT_FAULT),
        ("FAIRDROP_STRIPE_API", "http://127.0.0.1:9", STRIPE_API_FAULT),
        ("FAIRDROP_STRIPE_API", "http://api.stripe.com", STRIPE_API_FAULT),
    ],
)
def test_production_refuses_an_unsafe_stripe(tmp_path: Path, name: str, value: str, fault: str) -> None:
    started = start(tmp_path, **WITH_STRIPE | {name: value})
    assert started.returncode == 1
    assert faults(started) == [fault]


@pytest.mark.parametrize("environment", ["development", "test"])
def test_only_production_takes_real_money(tmp_path: Path, environment: str) -> None:
    for key in ("sk_live_x", "rk_live_x"):
        started = start(tmp_path, **WITH_STRIPE | {"FAIRDROP_ENV": environment, "FAIRDROP_STRIPE_KEY": key})
        assert started.returncode == 1
        assert "FAIRDROP_STRIPE_KEY is a live key: only production may take real money" in started.stderr
    for key in ("", "sk_test_x"):
        started = start(tmp_path, **WITH_STRIPE | {"FAIRDROP_ENV": environment, "FAIRDROP_STRIPE_KEY": key})
        assert started.returncode == 0, started.stderr


@pytest.mark.parametrize("changes", [{}, LOCAL, {"DATABASE_URL": "postgresql:///shop?host=/run/postgresql"}])
def test_django_finds_nothing_to_warn_of(tmp_path: Path, changes: dict[str, str]) -> None:
    checked = start(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **changes)
    assert checked.returncode == 0, checked.stderr


# Between them they break every rule: one cannot be both empty and without a password, nor TLS both on and off.
ALL_BAD = [
    {
        "DEBUG": "true",
        "SECRET_KEY": "a",
        "SECRET_KEY_FALLBACKS": "x",
        "FAIRDROP_TOKEN_KEYS": "a",
        "FAIRDROP_AUDIT_TOKEN": "a",
        "FAIRDROP_LOG_KEYS": "2026-01-01T00:00:00Z=short",
        "FAIRDROP_FAULT": "after_take:kill",
        "ALLOWED_HOSTS": ".example",
        "FAIRDROP_TRUSTED_ORIGINS": "http://evil.example,*",
        "FAIRDROP_BEHIND_TLS": "false",
        "FAIRDROP_PUBLIC_URL": "http://shop.example",
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "CACHE_URL": "redis+cluster://cache.example:7000",
        "FAIRDROP_PAYMENT_PROVIDERS": "a=shop.sandbox.provider.Sandbox,b=shop.stripe.provider.Stripe",
        "FAIRDROP_SANDBOX_SECRET": "a",
        "FAIRDROP_SANDBOX_MISCHIEF": "twice",
        "FAIRDROP_STRIPE_API": "http://api.stripe.com",
        "FAIRDROP_TRUSTED_PROXIES": "::/0",
        "FAIRDROP_MAIL_URL": "smtp://ada:word@mx.example",
    },
    {
        "FAIRDROP_TRUSTED_PROXIES": "0",
        "DATABASE_URL": "postgresql://postgres@db.example/shop",
        "REDIS_URL": "redis://redis.example/0",
    },
]


def test_the_command_names_every_unsafe_setting(tmp_path: Path) -> None:
    """`manage.py check --deploy` itself, for each rule that there is; that it is silent otherwise is tested above."""
    named: set[str] = set()
    for changes in ALL_BAD:
        checked = start(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **changes)
        assert checked.returncode != 0
        named |= set(faults(checked))
    assert named == {f"{rule.variable} {rule.cure}" for rule in RULES}


@pytest.mark.parametrize("profile", [{}, example_of_sentinel() | {"FAIRDROP_REDIS_REPLICAS": "1"}])
@pytest.mark.parametrize("service", ["web", "migrate", "settler"])
def test_the_example_of_compose_needs_nothing_but_its_secrets(
    tmp_path: Path, service: str, profile: dict[str, str]
) -> None:
    """What docker-compose.yml gives the shop when .env has nothing but secrets, with and without Sentinels."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    asked = {"SECRET_KEY", "FAIRDROP_TOKEN_KEYS", "FAIRDROP_AUDIT_TOKEN", "FAIRDROP_DB_PASSWORD"}
    asked |= {"FAIRDROP_WEB_PASSWORD", "FAIRDROP_SETTLER_PASSWORD"}
    given = {**dict.fromkeys(asked, KEYS[0]), "FAIRDROP_SANDBOX_ALLOWED": "true", "FAIRDROP_SANDBOX_SECRET": KEYS[1]}
    given |= profile
    environment = {
        name: filled(str(value), given) for name, value in compose["services"][service]["environment"].items()
    }
    unset = dict.fromkeys(SAFE.keys() - environment.keys(), "")
    checked = start(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **unset | environment)
    assert checked.returncode == 0, checked.stderr
    public = environment | {"ALLOWED_HOSTS": "shop.example"}
    assert faults(start(tmp_path, **unset | public)) == [TLS_FAULT]


def test_the_settings_that_ci_writes_for_compose_are_enough(tmp_path: Path) -> None:
    """The step of the workflow, run on the example; without its lines for the sandbox the shop refuses to start."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["compose"]["steps"]
    (step,) = [each["run"] for each in steps if each.get("name") == "settings of this run only"]
    shutil.copy(ROOT / ".env.example", tmp_path)
    subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, check=True, timeout=600)
    lines = (tmp_path / ".env").read_text().splitlines()
    written = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def started(given: dict[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {
            name: filled(str(value), given) for name, value in compose["services"]["web"]["environment"].items()
        }
        return start(tmp_path, **dict.fromkeys(SAFE.keys() - environment.keys(), "") | environment)

    assert (started(written).returncode, started(written).stderr) == (0, "")
    without = {name: value for name, value in written.items() if "SANDBOX" not in name}
    assert faults(started(without)) == [MONEY_FAULT]


def test_the_table_for_operators_has_the_rules_of_the_code() -> None:
    rows = [f"| `{rule.variable}` | {rule.refused} | {rule.cure} |" for rule in RULES]
    text = (ROOT / "docs" / "operations.md").read_text()
    assert "\n".join(["| variable | refused | it |", "|---|---|---|", *rows, ""]) in text


def test_every_key_in_the_examples_of_the_repository_is_known() -> None:
    """A key that somebody could copy is refused; today no example has one."""
    pattern = re.compile(r"(?:SECRET_KEY|TOKEN_KEYS|AUDIT_TOKEN|SANDBOX_SECRET)=[\"']?([\w-]{20,})")
    texts = [ROOT / name for name in ("Dockerfile", "docker-compose.yml", ".env.example", "README.md", ".ci/run")]
    found = {key for path in (*texts, *(ROOT / "docs").rglob("*.md")) for key in pattern.findall(path.read_text())}
    assert [key for key in found if not is_weak(key)] == []
    assert all(map(is_weak, PUBLISHED))
    assert not any(map(is_weak, KEYS))


def test_beside_a_sentinel_one_plain_server_keeps_the_cache(tmp_path: Path) -> None:
    """The control of the refusals above."""
    watched = "redis+sentinel://:secret@one.example:26379/shop/0"
    started = start(tmp_path, REDIS_URL=watched, CACHE_URL="redis://:secret@cache.example:6379/1")
    assert (started.returncode, started.stderr) == (0, "")


def test_a_cluster_cannot_be_asked_to_wait_for_replicas(tmp_path: Path) -> None:
    """With Sentinel the same setting starts."""
    stores = {"CACHE_URL": "redis://:secret@cache.example:6379/1", "FAIRDROP_REDIS_REPLICAS": "1"}
    started = start(tmp_path, REDIS_URL="rediss+cluster://:secret@one.example:6379", **stores)
    assert started.returncode == 1
    assert "not on a Cluster" in started.stderr
    assert start(tmp_path, REDIS_URL="redis+sentinel://:secret@one.example:26379/shop/0", **stores).returncode == 0


@pytest.mark.parametrize("links", ["blog=https://shop.example", "terms=javascript:alert(1)", "terms"])
def test_links_of_the_shop_have_a_known_kind_and_a_safe_address(tmp_path: Path, links: str) -> None:
    started = start(tmp_path, FAIRDROP_SHOP_LINKS=links)
    assert started.returncode == 1
    assert "FAIRDROP_SHOP_LINKS must be kind=address" in started.stderr
    assert start(tmp_path, FAIRDROP_SHOP_LINKS="terms=/terms/,support=mailto:help@shop.example").returncode == 0


@pytest.mark.parametrize("named", ["acme", "acme=", "acme =acme.Cards", "acme=acme.Cards, stripe=acme.Stripe"])
def test_a_provider_that_nobody_could_be_led_to_is_refused(tmp_path: Path, named: str) -> None:
    """The control: without a space, two of them start."""
    started = start(tmp_path, FAIRDROP_PAYMENT_PROVIDERS=named)
    assert started.returncode == 1
    assert "FAIRDROP_PAYMENT_PROVIDERS must be name=class" in started.stderr
    assert start(tmp_path, FAIRDROP_PAYMENT_PROVIDERS="acme=acme.Cards,b-2_=acme.Other").returncode == 0


def test_production_names_everything_at_once(tmp_path: Path) -> None:
    unsafe = dict.fromkeys(SAFE, "") | {"FAIRDROP_ENV": "production", "DEBUG": "true", "FAIRDROP_AUDIT_TOKEN": "a"}
    assert len(faults(start(tmp_path, **unsafe))) == 11


def test_a_laptop_needs_none_of_them(tmp_path: Path) -> None:
    unset = {name: "" for name in SAFE if name not in {"DATABASE_URL", "REDIS_URL", "DEBUG"}}
    started = start(tmp_path, **unset | {"FAIRDROP_ENV": "development"})
    assert (started.returncode, started.stderr) == (0, "")


def test_the_secret_of_a_laptop_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    start(tmp_path, FAIRDROP_ENV="development", SECRET_KEY="")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


SHOW_STAFF = """
from shop import settings
print(settings.STAFF_SECOND_FACTOR, settings.STAFF_SESSION_SECONDS, settings.SESSION_COOKIE_AGE)
"""


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "True 43200 3600"),
        ({"FAIRDROP_STAFF_SECOND_FACTOR": "false"}, "False 43200 3600"),
        ({"FAIRDROP_STAFF_SECOND_FACTOR": ""}, "True 43200 3600"),
        ({"FAIRDROP_ENV": "development"}, "False 43200 3600"),
        ({"FAIRDROP_ENV": "development", "FAIRDROP_STAFF_SECOND_FACTOR": "true"}, "True 43200 3600"),
        ({"FAIRDROP_STAFF_SESSION_HOURS": "1", "FAIRDROP_STAFF_IDLE_MINUTES": "5"}, "True 3600 300"),
    ],
)
def test_production_asks_for_a_second_factor_unless_it_is_switched_off(
    tmp_path: Path, changes: dict[str, str], shown: str
) -> None:
    assert start(tmp_path, "-c", SHOW_STAFF, **changes).stdout.strip() == shown


@pytest.mark.parametrize("word", ["enabled", "ture", "2"])
def test_a_word_that_is_neither_true_nor_false_switches_nothing_off(tmp_path: Path, word: str) -> None:
    started = start(tmp_path, FAIRDROP_STAFF_SECOND_FACTOR=word)
    assert started.returncode
    assert f"FAIRDROP_STAFF_SECOND_FACTOR must be true or false, not '{word}'" in started.stderr


@pytest.mark.parametrize("name", ["FAIRDROP_STAFF_SESSION_HOURS", "FAIRDROP_STAFF_IDLE_MINUTES"])
def test_a_session_of_staff_has_some_time(tmp_path: Path, name: str) -> None:
    started = start(tmp_path, **{name: "0"})
    assert started.returncode == 1
    assert f"{name}" in started.stderr


SHOW_MAIL = """
from django.conf import settings as s
print(s.MAIL_ON, s.MAILBOX, s.EMAIL_BACKEND.split(".")[-2], s.EMAIL_HOST, s.EMAIL_PORT, s.EMAIL_HOST_USER,
      s.EMAIL_HOST_PASSWORD, s.EMAIL_USE_TLS, s.EMAIL_TIMEOUT)
"""


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "False False dummy"),
        ({"FAIRDROP_ENV": "development"}, "True True dummy"),
        (
            {"FAIRDROP_MAIL_URL": "smtp+tls://ada:a%40b@mx.example:587"},
            "True False smtp mx.example 587 ada a@b True 10",
        ),
    ],
)
def test_mails_go_where_the_setting_says(tmp_path: Path, changes: dict[str, str], shown: str) -> None:
    sender = {"FAIRDROP_MAIL_FROM": "shop@shop.example"}
    started = start(tmp_path, "-c", SHOW_MAIL, DJANGO_SETTINGS_MODULE="shop.settings", **sender, **changes)
    assert (started.returncode, started.stdout.startswith(shown)) == (0, True), started.stdout + started.stderr


@pytest.mark.parametrize(
    ("url", "sender", "refused"),
    [
        ("smtp+tls://ada:word@mx.example", "shop@shop.example", []),
        ("smtp://ada:word@relay", "shop@shop.example", []),
        ("smtp://mx.example", "shop@shop.example", []),
        ("", "shop@localhost", []),
        ("smtp+tls://ada:word@mx.example", "shop@localhost", ["FAIRDROP_MAIL_FROM"]),
        ("smtp://ada:word@mx.example", "shop@shop.example", ["FAIRDROP_MAIL_URL"]),
    ],
)
def test_mails_come_from_the_shop_and_no_password_goes_in_clear(
    tmp_path: Path, url: str, sender: str, refused: list[str]
) -> None:
    started = start(tmp_path, FAIRDROP_MAIL_URL=url, FAIRDROP_MAIL_FROM=sender, FAIRDROP_TRUSTED_PROXIES="10.0.0.0/8")
    assert started.returncode == bool(refused), started.stderr
    assert [fault.split()[0] for fault in faults(started)] == refused if refused else not started.stderr


def test_tls_that_the_address_of_the_database_asks_for_stays(tmp_path: Path) -> None:
    """Nothing of it replaces a timeout of ours, or what a connection of the workers says of itself."""
    url = f"{SAFE['DATABASE_URL']}?sslmode=verify-full&sslrootcert=/ca.pem&connect_timeout=99&application_name=own"
    code = "from shop.settings import DATABASES; print(*map(DATABASES['default']['OPTIONS'].get, NAMES))"
    names = f"NAMES = ['sslmode', 'sslrootcert', 'connect_timeout', 'tcp_user_timeout', 'application_name']; {code}"
    assert start(tmp_path, "-c", names, DATABASE_URL=url).stdout == "verify-full /ca.pem 3 10000 None\n"


def test_a_mail_server_that_is_no_such_address_is_refused(tmp_path: Path) -> None:
    started = start(tmp_path, FAIRDROP_MAIL_URL="mx.example:25")
    assert "FAIRDROP_MAIL_URL must begin with smtp://" in started.stderr
