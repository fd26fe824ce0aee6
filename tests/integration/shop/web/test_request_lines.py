"""One line in the log for each request that Django answers, without what the client added to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.shop_processes import web_process

FORGED = {"X-Forwarded-For": "10.9.9.9, 192.0.2.7"}


@pytest.mark.parametrize(("proxies", "address"), [("127.0.0.0/8", "192.0.2.7"), ("0", "127.0.0.1")])
def test_a_request_is_one_line_with_the_address_that_our_proxy_saw(
    process_environment: dict[str, str], tmp_path: Path, proxies: str, address: str
) -> None:
    environment = {**process_environment, "LOG_LEVEL": "INFO", "FAIRDROP_TRUSTED_PROXIES": proxies}
    with web_process(environment, folder=tmp_path) as web:
        for number in range(2):
            assert web.get(f"/no-such-{number}?card=4000000000000002", headers=FORGED).status == 404
    text = (tmp_path / "web.log").read_text()
    lines = [line for line in text.splitlines() if "/no-such-" in line]
    assert [("request_finished" in line, f"ip='{address}'" in line) for line in lines] == [(True, True)] * 2
    assert "4000000000000002" not in text
    assert "10.9.9.9" not in text
