"""Free ports: none is given twice, so that what has one may bind it later."""

from __future__ import annotations

import pytest

from workers.embedded import server


def test_a_port_that_nobody_has_bound_yet_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "QUIET_PORTS", server.QUIET_PORTS[-2 * server.PORT_TRIES :])
    monkeypatch.setattr(server, "_given", set())
    ports = [server.free_port() for _ in range(server.PORT_TRIES)]
    assert len(set(ports)) == len(ports)
