"""What production refuses to start with: a rule for each setting that would be unsafe, with its cure.
Pure: knows the values of the settings, never reads the environment. The table in docs/operations.md has the same rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

Values: TypeAlias = Mapping[str, Any]
MIN_CHARACTERS = 10  # different ones, in a key that is random
# SHA-256 of keys that were published with this project, in images and examples.
PUBLISHED = frozenset(
    {
        "2fe6491ae448acac533cfd0487e4aff5e0a383ddd3014b4be16a3de4c2d4920e",
        "c9b223b3c953292dbce8a47eff6a1b4c8fc8961864d245661ce33a7a43719abc",
    }
)
RANDOM = "must be random: openssl rand -hex 32"
# When it began to sign, and its seed; one that signs no more may have its public part instead.
LOG_KEY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ=[A-Za-z0-9_-]{43}", re.ASCII)
OLD_LOG_KEY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ=(?:pub:)?[A-Za-z0-9_-]{43}", re.ASCII)
LONG_KEYS = {"SECRET_KEY": 50, "FAIRDROP_TOKEN_KEYS": 32, "FAIRDROP_AUDIT_TOKEN": 32, "FAIRDROP_SANDBOX_SECRET": 32}


class Rule(NamedTuple):
    """One reason not to start. refused: which values, in words; cure: what the variable must be instead."""

    variable: str
    refused: str
    cure: str
    is_broken: Callable[[Values], bool]


def is_weak(key: str) -> bool:
    """Say whether `key` has too few different characters to be random, or was published."""
    return len(set(key)) < MIN_CHARACTERS or hashlib.sha256(key.encode()).hexdigest() in PUBLISHED


def is_local(host: str) -> bool:
    """Say whether `host` names this machine, or one of a private network of containers: no name with a dot does."""
    name = host.strip("[]")
    return name in ("127.0.0.1", "::1") or re.fullmatch(r"[a-z][a-z0-9_-]*", name) is not None


def is_origin(origin: str) -> bool:
    """Say whether `origin` is one exact https origin, or an http one of this machine."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_local(host))
    return secure and bool(host) and "*" not in origin and origin == f"{parts.scheme}://{parts.netloc}"


def is_live(key: str) -> bool:
    """Say whether `key` lets Stripe take real money."""
    return key.startswith(("sk_live_", "rk_live_"))


def _is_test(key: str) -> bool:
    return key.startswith(("sk_test_", "rk_test_"))


def lacks_password(url: str) -> bool:
    """Say whether `url` names a server, not a socket file, and no password for it."""
    servers = url.partition("://")[2].partition("/")[0]
    credentials, at, _ = servers.rpartition("@")
    return bool(servers) and not (at and credentials.partition(":")[2])


def _short(name: str, *, is_needed: Callable[[Values], bool] = lambda _: True) -> Rule:
    min_length = LONG_KEYS[name]

    def is_broken(values: Values) -> bool:
        keys = _keys(values[name])
        return any(len(key) < min_length for key in keys) or (not keys and is_needed(values))

    return Rule(
        name, f"a key shorter than {min_length} characters", f"must have at least {min_length} characters", is_broken
    )


def _weak(name: str) -> Rule:
    refused = f"a key of fewer than {MIN_CHARACTERS} different characters, or one from an example"
    return Rule(name, refused, RANDOM, lambda values: any(map(is_weak, _keys(values[name]))))


def _with_password(name: str) -> Rule:
    return Rule(
        name, "a server without a password", "must have a password", lambda values: lacks_password(values[name])
    )


def _networks(proxies: int | tuple[str, ...]) -> tuple[str, ...]:
    return () if isinstance(proxies, int) else proxies


def _is_clear(mail_url: str) -> bool:
    parts = urlsplit(mail_url)
    return parts.scheme == "smtp" and bool(parts.password) and not is_local(parts.hostname or "")


def _sells_for_nothing(values: Values) -> bool:
    return bool(values["SANDBOX_IN_USE"] and values["FAIRDROP_SANDBOX_ALLOWED"])


def _takes_no_money(values: Values) -> bool:
    key = values["FAIRDROP_STRIPE_KEY"]
    rehearsed = values["FAIRDROP_SANDBOX_ALLOWED"] and _is_test(key)
    return bool(values["STRIPE_IN_USE"] and not is_live(key) and not rehearsed)


def _cannot_sign(values: Values) -> bool:
    keys = values["FAIRDROP_LOG_KEYS"]
    return bool(keys) and not (LOG_KEY.fullmatch(keys[0]) and all(map(OLD_LOG_KEY.fullmatch, keys)))


def _keys(value: str | list[str]) -> list[str]:
    keys = [value] if isinstance(value, str) else value
    return [key for key in keys if key]


RULES = (
    Rule("DEBUG", "on", "must be off", lambda values: values["DEBUG"]),
    _short("SECRET_KEY"),
    _weak("SECRET_KEY"),
    Rule(
        "SECRET_KEY_FALLBACKS",
        "a key that SECRET_KEY could not be",
        "must be old values of SECRET_KEY as strong as a new one, or empty",
        lambda values: any(
            len(key) < LONG_KEYS["SECRET_KEY"] or is_weak(key) for key in values["SECRET_KEY_FALLBACKS"]
        ),
    ),
    _short("FAIRDROP_TOKEN_KEYS"),
    _weak("FAIRDROP_TOKEN_KEYS"),
    _short("FAIRDROP_AUDIT_TOKEN", is_needed=lambda _: False),
    _weak("FAIRDROP_AUDIT_TOKEN"),
    Rule(
        "FAIRDROP_LOG_KEYS",
        "not keys, or a first one that cannot sign",
        "must be a moment, = and a seed, the key that signs first: manage.py log_key makes one",
        _cannot_sign,
    ),
    Rule("FAIRDROP_FAULT", "set", "must not be set", lambda values: bool(values["FAIRDROP_FAULT"])),
    Rule(
        "ALLOWED_HOSTS",
        "empty, or with a wildcard (`*`, `.example`)",
        "must name the hosts of the shop, each in full",
        lambda values: not values["ALLOWED_HOSTS"] or any(host[:1] in ("*", ".") for host in values["ALLOWED_HOSTS"]),
    ),
    Rule(
        "FAIRDROP_TRUSTED_ORIGINS",
        "an origin with a wildcard, or without https",
        "must be whole https origins, for example https://shop.example",
        lambda values: not all(map(is_origin, values["FAIRDROP_TRUSTED_ORIGINS"])),
    ),
    Rule(
        "FAIRDROP_BEHIND_TLS",
        "off, when `ALLOWED_HOSTS` has a name that is not of this machine",
        "must be true: only a shop on this machine may do without TLS",
        lambda values: not values["FAIRDROP_BEHIND_TLS"] and not all(map(is_local, values["ALLOWED_HOSTS"])),
    ),
    Rule(
        "FAIRDROP_TRUSTED_PROXIES",
        "0 or not set, when `FAIRDROP_BEHIND_TLS` is on",
        "must say how many proxies of yours there are: else all buyers have the proxy's address, and its one limit",
        lambda values: values["FAIRDROP_BEHIND_TLS"] and not values["FAIRDROP_TRUSTED_PROXIES"],
    ),
    Rule(
        "FAIRDROP_TRUSTED_PROXIES",
        "all addresses there are (`/0`)",
        "must name the networks of your proxies alone: else each buyer chooses an address",
        lambda values: any(network.endswith("/0") for network in _networks(values["FAIRDROP_TRUSTED_PROXIES"])),
    ),
    Rule(
        "FAIRDROP_PUBLIC_URL",
        "empty, or without https (http is enough for a name of this machine)",
        "must say where the world reaches this shop, for example https://shop.example",
        lambda values: not is_origin(values["FAIRDROP_PUBLIC_URL"]),
    ),
    Rule(
        "FAIRDROP_MAIL_FROM",
        "an address of this machine, when `FAIRDROP_MAIL_URL` is set",
        "must be an address of your domain: other mail servers refuse what comes from localhost",
        lambda values: values["FAIRDROP_MAIL_URL"] and is_local(values["FAIRDROP_MAIL_FROM"].rpartition("@")[2]),
    ),
    Rule(
        "FAIRDROP_MAIL_URL",
        "a password for a mail server with a dot in its name, without TLS (`smtp://`)",
        "must begin with smtp+tls:// or smtp+ssl://: else the password goes there in clear",
        lambda values: _is_clear(values["FAIRDROP_MAIL_URL"]),
    ),
    Rule("DATABASE_URL", "empty", "must be set", lambda values: not values["DATABASE_URL"]),
    Rule("REDIS_URL", "empty", "must be set", lambda values: not values["REDIS_URL"]),
    *map(_with_password, ("DATABASE_URL", "REDIS_URL", "CACHE_URL")),
    Rule(
        "CACHE_URL",
        "Sentinel or a Cluster, also by way of `REDIS_URL`",
        "must name one plain server: the cache knows neither Sentinel nor Cluster",
        lambda values: "+" in (values["CACHE_URL"] or values["REDIS_URL"]).partition("://")[0],
    ),
    Rule(
        "FAIRDROP_PAYMENT_PROVIDERS",
        "the sandbox, when `FAIRDROP_SANDBOX_ALLOWED` is off",
        "must name who takes the money, or FAIRDROP_SANDBOX_ALLOWED be true",
        lambda values: values["SANDBOX_IN_USE"] and not values["FAIRDROP_SANDBOX_ALLOWED"],
    ),
    _short("FAIRDROP_SANDBOX_SECRET", is_needed=_sells_for_nothing),
    _weak("FAIRDROP_SANDBOX_SECRET"),
    Rule(
        "FAIRDROP_SANDBOX_MISCHIEF", "set", "must not be set", lambda values: bool(values["FAIRDROP_SANDBOX_MISCHIEF"])
    ),
    Rule(
        "FAIRDROP_STRIPE_KEY",
        "no key of a Stripe that takes the money, or a test key when `FAIRDROP_SANDBOX_ALLOWED` is off",
        "must be a live key, sk_live_ or rk_live_: nobody pays with a test key",
        _takes_no_money,
    ),
    Rule(
        "FAIRDROP_STRIPE_WEBHOOK_SECRET",
        "not the secret of an endpoint, when Stripe takes the money",
        "must be the secret of the endpoint, whsec_",
        lambda values: values["STRIPE_IN_USE"] and not values["FAIRDROP_STRIPE_WEBHOOK_SECRET"].startswith("whsec_"),
    ),
    Rule(
        "FAIRDROP_STRIPE_API",
        "an address without https",
        "must be an https address: the key goes there",
        lambda values: not values["FAIRDROP_STRIPE_API"].startswith("https://"),
    ),
)


def refusals(values: Values) -> list[str]:
    """Return what is unsafe about these settings, each with its cure. values: by the names of the variables."""
    return [f"{rule.variable} {rule.cure}" for rule in RULES if rule.is_broken(values)]
