"""Servers and Sentinels that ask for a password, each its own, are reached by all three doors; every Redis takes the
users that are made for it. Real Redis under a real Sentinel; how TLS is set up is shown without one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from tests.support.servers.least_rights import user_lines
from tests.support.servers.server_matrix import SENTINEL, SERVER, SERVICE, debian_redis, node


@pytest.fixture
def sentinel_port(tmp_path: Path) -> Iterator[int]:
    """Run a server and its Sentinel, with a password each."""
    with ExitStack() as running:
        server = running.enter_context(node(tmp_path / "server", SERVER))
        text = SENTINEL
        for name, value in {"service": SERVICE, "primary": server.port, "patience": 60_000}.items():
            text = text.replace(f"{{{name}}}", str(value))
        sentinel = running.enter_context(node(tmp_path / "sentinel", text, options=("--sentinel",)))
        sentinel.run("SENTINEL", "SET", SERVICE, "auth-pass", "of the server")
        for each, password in ((server, "of the server"), (sentinel, "of the sentinel")):
            each.run("ACL", "SETUSER", "default", "resetpass", f">{password}")
        yield sentinel.port


@pytest.mark.parametrize(("query", "let_in"), [("?sentinel_password=of%20the%20sentinel", True), ("", False)])
def test_a_sentinel_that_asks_for_a_password_gets_its_own(sentinel_port: int, query: str, let_in: bool) -> None:
    """The control has no password for the Sentinel."""
    url = f"redis+sentinel://:of%20the%20server@127.0.0.1:{sentinel_port}/{SERVICE}/0{query}"
    with override_settings(REDIS_URL=url):
        if not let_in:
            with pytest.raises(RedisUnavailable):
                redis.run_commands(redis.connect(), [("PING",)])
            return
        clients = [redis.connect(), redis.sending_once(redis.connect())]
        assert [redis.run_script(each, "extend", keys=["{a}"], args=["x", 0, "look"]) for each in clients] == [0, 0]
        assert asyncio.run(asked_asynchronously()) == 0


async def asked_asynchronously() -> object:
    client = redis.connect_async()
    try:
        return await redis.run_script_async(client, "extend", keys=["{a}"], args=["x", 0, "look"])
    finally:
        await redis.close_async(client)


@pytest.mark.parametrize(("scheme", "tls"), [("rediss+sentinel", True), ("redis+sentinel", False)])
def test_tls_is_spoken_to_the_sentinels_and_to_the_servers(scheme: str, tls: bool) -> None:
    """No server is asked: what would be opened is looked at."""
    with override_settings(REDIS_URL=f"{scheme}://one.example:26379/{SERVICE}/0"):
        pool = redis.connect().connection_pool
        (sentinel,) = pool.sentinel_manager.sentinels
        connections = [pool.make_connection(), sentinel.connection_pool.make_connection()]
    assert [hasattr(each, "cert_reqs") for each in connections] == [tls, tls]
    assert not tls or {each.cert_reqs for each in connections} == {ssl.CERT_REQUIRED}


@pytest.mark.skipif(debian_redis() is None, reason="no Redis 7 is installed")
@pytest.mark.parametrize("option", ["", "--before-7.2"])
def test_an_older_redis_takes_the_users_that_are_made_for_it(tmp_path: Path, option: str) -> None:
    """The control, without the option: it names one of the users' commands as unknown."""
    with node(tmp_path / "server", SERVER, program=debian_redis()) as server:
        is_older = str(server.client.info("server")["redis_version"]).startswith(("7.0.", "7.1."))
        refused = ""
        _operator, *lines = user_lines(*filter(None, [option]))
        for line in lines:
            try:
                server.run("ACL", "SETUSER", *line.split()[1:])
            except redis.FAILURES as error:
                refused = str(error)
        assert ("client|setinfo" in refused) == (is_older and not option), refused
