"""Runs the real nginx with a file of the repository, adapted to this machine: its addresses, ports and folders only.
Fails, with what to install, where there is no nginx. Never leaves one running.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.support.http_calls import Caller
from tests.support.servers.stores import ROOT
from tests.support.waiting import wait_until

FOLDER = ROOT / "docker"
MISSING = "No nginx was found. Install it: sudo apt-get install --yes nginx"


def text_of(name: str, *, upstream: str = "upstream.conf") -> str:
    """Return a file of nginx with what it includes; upstream: the file that stands in that place."""
    text = (FOLDER / name).read_text().replace("fairdrop/upstream.conf", f"fairdrop/{upstream}")
    return re.sub(r"^ *include fairdrop/(\S+);\n", lambda found: text_of(f"nginx/{found[1]}"), text, flags=re.M)


def before(text: str, *, ports: Sequence[int]) -> str:
    """Return the file, or one that it includes, for web processes at `ports`."""

    def servers(found: re.Match[str]) -> str:
        return "\n".join(f"server 127.0.0.1:{each} {found[1]};" for each in ports)

    text = re.sub(r"resolver .*;", "", text)
    text = re.sub(r"server 127.0.0.1:8002 .*;\n", "", text)
    return re.sub(r"server (?:web:8000 resolve|127.0.0.1:8001)(.*);", servers, text)


def adapted(text: str, *, folder: Path, ports: Sequence[int], port: int) -> str:
    """Return the file for web processes at `ports`, nginx at `port`, and nothing written outside `folder`."""
    paths = "\n".join(
        f"{kind}_temp_path {folder / kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = re.sub(r"listen 8080 .*;", f"listen 127.0.0.1:{port};", before(text, ports=ports))
    text = text.replace("http {", f"http {{\n{paths}")
    return f"daemon off; pid {folder / 'nginx.pid'}; error_log {folder / 'error.log'};\n{text}"


def find_nginx() -> str:
    """Return the program's path; fail, with what to install, where there is none."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.fail(MISSING)
    return program


@contextmanager
def running_nginx(text: str, *, folder: Path, port: int) -> Iterator[Caller]:
    """Run nginx with this configuration; give its caller as soon as it answers."""
    program = find_nginx()
    config = folder / "nginx.conf"
    config.write_text(text)
    caller = Caller(port)
    running = subprocess.Popen([program, "-p", str(folder), "-c", str(config)], stderr=subprocess.PIPE)

    def answers() -> bool:
        assert running.poll() is None, running.communicate()[1].decode()
        with suppress(OSError, HTTPException):
            return caller.get("/proxy-health").status == 200
        return False

    try:
        wait_until(answers, what="nginx answers")
        yield caller
    finally:
        running.terminate()
        running.communicate(timeout=120)
