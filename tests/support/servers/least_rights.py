"""Gives a shop of a test the users and roles that docker/ makes: an environment for each kind of process.
Runs the very scripts that Compose runs. Never touches servers that other tests share.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

import psycopg

from inventory import redis
from tests.support.crashes.worker_shop import OwnStores
from tests.support.servers.shop_processes import ROOT, migrate
from workers.database_rights import KINDS, role_of
from workers.embedded.binaries import postgres_folder

SECONDS = 120
LETTERS = "0123456789abcdef"


def password_of(kind: str) -> str:
    """Return the password of a kind of process, for both stores."""
    return f"{kind}{LETTERS}"


def passwords() -> dict[str, str]:
    """Return the variables that both scripts read for the kinds of processes."""
    return {f"FAIRDROP_{kind.upper()}_PASSWORD": password_of(kind) for kind in KINDS}


def separate(stores: OwnStores) -> dict[str, dict[str, str]]:
    """Make roles and users, and migrate once more; return the environment of each kind of process."""
    make_roles(stores)
    make_users(stores)
    migrate(environment=stores.environment)
    return {kind: {**stores.environment, **addresses(stores, kind)} for kind in KINDS}


def addresses(stores: OwnStores, kind: str) -> Mapping[str, str]:
    """Return where a kind of process finds the stores, and as whom."""
    postgres = urlsplit(stores.postgres.url)
    store = f"redis://{kind}:{password_of(kind)}@127.0.0.1:{urlsplit(stores.valkey.url).port}/0"
    database = f"postgresql://{role_of(kind)}:{password_of(kind)}@127.0.0.1:{postgres.port}{postgres.path}"
    return {"DATABASE_URL": database, "REDIS_URL": store, "CACHE_URL": store}


def make_roles(stores: OwnStores) -> None:
    """Run docker/postgres-role.sh as the superuser, twice: it may be run again."""
    postgres = urlsplit(stores.postgres.url)
    environment = {
        "PATH": f"{postgres_folder()}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGPASSWORD": stores.postgres.superuser_password,
        "POSTGRES_USER": "postgres",
        "FAIRDROP_DB_PASSWORD": postgres.password or "",
        **passwords(),
    }
    for _ in range(2):
        command = ["sh", str(ROOT / "docker" / "postgres-role.sh")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def user_lines(*options: str) -> list[str]:
    """Return what docker/redis-users.sh prints; of the operator's line the password is made up."""
    done = subprocess.run(
        ["sh", str(ROOT / "docker" / "redis-users.sh"), *options],
        env={"PATH": os.environ["PATH"], "REDIS_PASSWORD": LETTERS, **passwords()},
        capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def make_users(stores: OwnStores) -> None:
    """Make the users of the ACL file, all but the operator's, who is there."""
    with redis_as(stores.environment) as operator:
        for line in user_lines():
            _, name, *rights = line.split()
            if name != "default":
                operator.execute_command("ACL", "SETUSER", name, *rights)


def forget_refusals(stores: OwnStores) -> None:
    """Empty the log of what was refused."""
    with redis_as(stores.environment) as operator:
        operator.acl_log_reset()


def refused_by_redis(stores: OwnStores) -> list[str]:
    """Return every command, key and channel that some user was refused since the log was emptied."""
    with redis_as(stores.environment) as operator:
        return [f"{each['username']}: {each['reason']} {each['object']}" for each in operator.acl_log()]


def redis_as(environment: Mapping[str, str]) -> redis.Client:
    """Return a client as the environment's user."""
    return redis.connect_once(environment["REDIS_URL"], timeout_seconds=SECONDS)


def connect_postgres(environment: Mapping[str, str]) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection as the environment's role."""
    return psycopg.connect(environment["DATABASE_URL"], connect_timeout=SECONDS, autocommit=True)
