"""One address has so many live streams on a web process, and the rest are for others. Behind a proxy of ours the
address is what the proxy was called from. Uses a real web process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

MAX_STREAMS, MAX_OF_ONE = 8, 5


@contextmanager
def web_with(
    environment: dict[str, str], folder: Path, new_sku: Callable[[], str], *, of_one: int, proxies: int = 0
) -> Iterator[tuple[Caller, SaleCard]]:
    """Run a web process that holds few streams, with a sale."""
    limits = {
        "FAIRDROP_GATE_MAX_STREAMS": str(MAX_STREAMS),
        "FAIRDROP_GATE_MAX_STREAMS_PER_ADDRESS": str(of_one),
        "FAIRDROP_TRUSTED_PROXIES": str(proxies),
    }
    with web_process({**environment, **limits}, folder=folder) as web:
        yield web, shown_sales(web, new_sku)(units=1)


def follow(
    running: ExitStack, web: Caller, card: SaleCard, *, address: str = "127.0.0.1", forwarded_for: str = ""
) -> int:
    """Open a stream, which stays open, and return its status."""
    stream = socket.create_connection(("127.0.0.1", web.port), timeout=60, source_address=(address, 0))
    running.enter_context(stream)
    lines = [f"GET /api/v1/sales/{card.slug}/events HTTP/1.1", f"Host: 127.0.0.1:{web.port}"]
    lines += [f"X-Forwarded-For: {forwarded_for}"] * bool(forwarded_for)
    stream.sendall("\r\n".join([*lines, "", ""]).encode())
    return int(stream.recv(4096)[9:12])


@pytest.mark.parametrize("of_one", [MAX_OF_ONE, 0])
def test_one_address_cannot_take_all_streams(
    of_one: int, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The control is no limit: then it can."""
    with ExitStack() as running:
        web, card = running.enter_context(web_with(process_environment, tmp_path, new_sku, of_one=of_one))
        greedy = running.enter_context(ExitStack())
        taken = [follow(greedy, web, card, address="127.0.0.2") for _ in range(MAX_STREAMS)]
        limit = of_one or MAX_STREAMS
        assert taken == [200] * limit + [503] * (MAX_STREAMS - limit)
        other = follow(running, web, card)
        assert other == (200 if of_one else 503)
        greedy.close()
        wait_until(lambda: follow(running, web, card, address="127.0.0.2") == 200, what="there is room again")


def test_behind_a_proxy_of_ours_its_callers_are_counted(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """What a caller writes in front of it changes nothing."""
    with ExitStack() as running:
        web, card = running.enter_context(
            web_with(process_environment, tmp_path, new_sku, of_one=MAX_OF_ONE, proxies=1)
        )
        forged = [f"10.0.0.{number}, 192.0.2.1" for number in range(MAX_OF_ONE + 1)]
        taken = [follow(running, web, card, forwarded_for=each) for each in forged]
        assert taken == [200] * MAX_OF_ONE + [503]
        assert follow(running, web, card, forwarded_for="10.0.0.1, 192.0.2.2") == 200
