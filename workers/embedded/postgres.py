"""Runs a real PostgreSQL as a child: fsync on, loopback only, random passwords, a role without superuser rights.
Never runs it as root (PostgreSQL refuses), never listens beyond 127.0.0.1, never opens a folder that was closed.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from workers.embedded.binaries import postgres_folder
from workers.embedded.child_process import ChildProcess
from workers.embedded.places import reachable_place, reachable_program
from workers.embedded.server import (
    READY_TIMEOUT_SECONDS,
    Server,
    ServerFailed,
    free_port,
    kept_password,
    wait_until_ready,
)

ROLE = DATABASE = "fairdrop"
SUPERUSER = "postgres"
# PostgreSQL refuses to run as root; then it runs as this account, made when it is missing.
SYSTEM_ACCOUNT = "pgserver"
USERADD_TIMEOUT_SECONDS = 20  # it waits 15 s itself when another program changes accounts
INITDB_TIMEOUT_SECONDS = 180
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_statement": "none",
    # No statement and no row of an error in its log: they may have what our own lines hide.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


def start_postgres(data_dir: Path, *, port: int = 0) -> Server:
    """Start PostgreSQL with its data below `data_dir` and return it, ready, with role and database made.

    port: 0 for a free one. Raises ServerFailed, ServerMissing.
    """
    program_folder = postgres_folder()
    account = _account()
    data_dir = place = data_dir.resolve()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account is not None:
        place = reachable_place(data_dir)
        program_folder = reachable_program(program_folder, place=place)
    home = _home(place, account=account)
    password = kept_password(data_dir / "postgres-superuser.password")
    if not (home / "made").exists():
        _initdb(home, program_folder=program_folder, account=account, password=password)
    port = port or free_port()
    log_path = data_dir / "postgres.log"
    child = _postgres(home, program=program_folder / "postgres", account=account, port=port, log_path=log_path).start()
    superuser = f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{port}/postgres"
    wait_until_ready(child, answers=lambda: _answers(superuser))
    role_password = kept_password(data_dir / "postgres-role.password")
    try:
        _make_role(superuser, password=role_password)
    except psycopg.Error as error:
        child.stop()
        raise ServerFailed(f"PostgreSQL started, but its role and database could not be made: {error}") from error
    return Server(url=f"postgresql://{ROLE}:{role_password}@127.0.0.1:{port}/{DATABASE}", child=child)


def _account() -> str | None:
    """Return the system account PostgreSQL must run as, None when we are not root and it can be our own."""
    if os.geteuid() != 0:
        return None
    if not _account_exists():
        _make_account()
    return SYSTEM_ACCOUNT


def _make_account() -> None:
    """Make the account, one process at a time. Raises ServerFailed.

    `useradd` looks for the name before it takes its own lock. Of two at once the second would give the account another
    number, and the server that runs under the first number would have no account any more.
    """
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_ACCOUNT]
    folder = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not _account_exists():  # the process that held the lock before has made it
            subprocess.run(command, check=True, capture_output=True, timeout=USERADD_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerFailed(
            f"PostgreSQL cannot run as root and the account {SYSTEM_ACCOUNT} could not be made: run this as "
            "another user, or set DATABASE_URL to a running server."
        ) from error
    finally:
        os.close(folder)


def _account_exists() -> bool:
    """Say whether the account is there with its group, which `useradd` writes a moment later."""
    try:
        pwd.getpwnam(SYSTEM_ACCOUNT)
        grp.getgrnam(SYSTEM_ACCOUNT)
    except KeyError:
        return False
    return True


def _home(place: Path, *, account: str | None) -> Path:
    """Return the folder of the cluster in `place`, owned by `account`."""
    home = place / "postgres"
    if home.exists() and not (home / "made").exists():
        shutil.rmtree(home)  # an initdb that was killed halfway
    home.mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        shutil.chown(home, user=account, group=account)
    return home


def _initdb(home: Path, *, program_folder: Path, account: str | None, password: str) -> None:
    """Make the cluster in `home`/data: UTF-8, checksums, passwords for every connection."""
    password_file = home / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    if account is not None:
        shutil.chown(password_file, user=account, group=account)
    command = [
        str(program_folder / "initdb"),
        "-D",
        str(home / "data"),
        "-U",
        SUPERUSER,
        "--pwfile",
        str(password_file),
    ]
    command += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--data-checksums"]
    made = subprocess.run(
        command, cwd="/", user=account, group=account, extra_groups=[] if account else None,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INITDB_TIMEOUT_SECONDS, process_group=0,
    )  # fmt: skip
    password_file.unlink()
    if made.returncode != 0:
        raise ServerFailed(f"PostgreSQL could not make its data folder {home / 'data'}: {made.stderr.strip()[-600:]}")
    (home / "made").touch()


def _postgres(home: Path, *, program: Path, account: str | None, port: int, log_path: Path) -> ChildProcess:
    """Return the server as a child that is not started yet; SIGINT is PostgreSQL's fast shutdown."""
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    return ChildProcess(
        name="PostgreSQL",
        arguments=[str(program), "-D", str(home / "data"), "-p", str(port), *options],
        folder=Path("/"),
        log_path=log_path,
        user=account,
        stop_signal=signal.SIGINT,
    )


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _make_role(superuser: str, *, password: str) -> None:
    """Make the shop's role and its database, once. CREATEDB is for the tests, which make their own database."""
    with psycopg.connect(superuser, connect_timeout=int(READY_TIMEOUT_SECONDS), autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            return
        role, database = sql.Identifier(ROLE), sql.Identifier(DATABASE)
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(role, sql.Literal(password)))
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, role))
