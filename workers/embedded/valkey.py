"""Runs a real Valkey as a child: every write on disk before its answer, nothing ever evicted, loopback and password.
Never keeps its password on a command line.
"""

from __future__ import annotations

from pathlib import Path

import redis

from workers.embedded.binaries import valkey_program
from workers.embedded.child_process import ChildProcess
from workers.embedded.private_files import write_private
from workers.embedded.server import Server, free_port, kept_password, wait_until_ready

CONFIGURATION = """\
bind 127.0.0.1
port {port}
protected-mode yes
requirepass {password}
appendonly yes
appendfsync {append_fsync}
maxmemory-policy noeviction
save ""
dir "{folder}"
daemonize no
tcp-backlog 4096
"""


def start_valkey(data_dir: Path, *, port: int = 0, append_fsync: str = "always", more: str = "") -> Server:
    """Start Valkey with its data below `data_dir` and return it, ready. more: lines of its configuration."""
    program = valkey_program()
    folder = data_dir.resolve() / "valkey"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    password = kept_password(data_dir / "valkey.password")
    port = port or free_port()
    configuration = folder / "valkey.conf"
    write_private(
        configuration,
        text=CONFIGURATION.format(port=port, password=password, append_fsync=append_fsync, folder=folder) + more,
    )
    child = ChildProcess(
        name="Valkey", arguments=[str(program), str(configuration)], folder=folder, log_path=data_dir / "valkey.log"
    ).start()
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    wait_until_ready(child, answers=lambda: _answers(url))
    return Server(url=url, child=child)


def _answers(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, protocol=3)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
