"""docker/nginx.conf in the real nginx, before two small servers that are restarted one after the other: nobody is told
502 because a peer was away a moment ago, and no purchase is sent twice. Needs the nginx program.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from shop.http import MAX_UPLOAD_BYTES
from tests.support.http_calls import Caller
from tests.support.servers.nginx import adapted, running_nginx, text_of
from workers.embedded.server import free_port

FILE = text_of("nginx.conf")
ASKS = 40


class Peer:
    """A server at a fixed port that may be stopped and started.

    rude: it reads requests and hangs up. lacks: a path that it answers with 404.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.asked: list[str] = []
        self.rude, self.lacks = False, ""
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                peer.asked.append(self.command)
                if not peer.rude:
                    self.send_response(404 if self.path == peer.lacks else 200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            do_GET = do_POST = answer  # noqa: N815 - named by http.server

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def nginx(
    folder: Path, peers: list[Peer], *, peer_options: str = "", next_upstream: str = "", file: str = FILE
) -> Iterator[Caller]:
    """Run nginx before the peers, with the file's own words or with others."""
    if peer_options:
        file = re.sub(r"server web:8000 resolve.*;", f"server web:8000 resolve {peer_options};", file)
    if next_upstream:
        file = re.sub(r"proxy_next_upstream .*;", f"proxy_next_upstream {next_upstream};", file)
    port = free_port()
    text = adapted(file, folder=folder, ports=[peer.port for peer in peers], port=port)
    with running_nginx(text, folder=folder, port=port) as caller:
        yield caller


def status_of(caller: Caller, method: str, path: str = "/api/v1/sales") -> int:
    with suppress(OSError, http.client.HTTPException):
        return caller.call(method, path, body=b"{}" if method == "POST" else None).status
    return 0


def status_elsewhere(caller: Caller, path: str) -> int:
    """Return what another address is told."""
    other = http.client.HTTPConnection("127.0.0.1", caller.port, timeout=60, source_address=("127.0.0.2", 0))
    with closing(other):
        other.request("GET", path)
        return other.getresponse().status


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    with ExitStack() as running:
        both = [Peer(), Peer()]
        for peer in both:
            peer.start()
            running.callback(peer.stop)
        yield both


def restart_one_after_the_other(caller: Caller, peers: list[Peer]) -> list[int]:
    """Return what was answered while one peer was away, and then, at once, the other."""
    answers = []
    for peer in peers:
        peer.stop()
        # Kept connections to the peer are found closed by a question that may be asked again.
        status_of(caller, "GET")
        answers += [status_of(caller, method) for method in ("GET", "POST") * ASKS]
        peer.start()
    return answers


def test_nobody_is_told_502_while_one_after_the_other_restarts(tmp_path: Path, peers: list[Peer]) -> None:
    with nginx(tmp_path, peers) as caller:
        assert set(restart_one_after_the_other(caller, peers)) == {200}


def test_the_control_with_other_words_many_are_told_502(tmp_path: Path, peers: list[Peer]) -> None:
    with nginx(tmp_path, peers, peer_options="max_fails=1 fail_timeout=600s", next_upstream="off") as caller:
        assert restart_one_after_the_other(caller, peers).count(502) >= ASKS


@pytest.mark.parametrize(("method", "sent", "told"), [("POST", 1, 502), ("GET", 2, 502)])
def test_a_post_that_was_sent_is_never_sent_again(
    method: str, sent: int, told: int, tmp_path: Path, peers: list[Peer]
) -> None:
    """The control is the GET: both peers are asked."""
    for peer in peers:
        peer.rude = True
    with nginx(tmp_path, peers) as caller:
        assert status_of(caller, method) == told
    assert [each for peer in peers for each in peer.asked] == [method] * sent


def test_a_file_that_one_version_lacks_comes_from_the_other(tmp_path: Path, peers: list[Peer]) -> None:
    """While a new version replaces the old one. The control is a page, whose 404 is an answer."""
    for peer, path in zip(peers, ("/static/shop/press.new.js", "/no-such-page"), strict=True):
        peer.lacks = path
    with nginx(tmp_path, peers) as caller:
        assert {status_of(caller, "GET", "/static/shop/press.new.js") for _ in range(ASKS)} == {200}
        assert {status_of(caller, "GET", "/no-such-page") for _ in range(ASKS)} == {200, 404}


def test_metrics_stay_inside(tmp_path: Path, peers: list[Peer]) -> None:
    with nginx(tmp_path, peers) as caller:
        assert [status_of(caller, "GET", path) for path in ("/metrics", "/readyz", "/")] == [404, 404, 200]


def test_one_address_is_refused_what_is_too_much_and_another_is_served(tmp_path: Path, peers: list[Peer]) -> None:
    """With smaller numbers than the file's; the control is the file as it is."""
    asks = ASKS * 5
    with nginx(tmp_path, peers) as caller:
        assert {status_of(caller, "GET") for _ in range(asks)} == {200}
    file = FILE.replace("rate=500r/s", "rate=1r/s").replace("burst=2000", f"burst={ASKS}")
    assert file != FILE
    with nginx(tmp_path, peers, file=file) as caller:
        answers = [caller.get("/api/v1/sales") for _ in range(asks)]
        refused = [each for each in answers if each.status == 429]
        assert ASKS <= asks - len(refused) < asks
        assert refused[-1].json()["code"] == "rate_limited"
        assert (refused[-1].headers["retry-after"], refused[-1].headers["cache-control"]) == ("1", "no-store")
        assert status_elsewhere(caller, "/api/v1/sales") == 200


@pytest.mark.parametrize("limit", ["limit_req zone=staff burst=60 nodelay;", ""], ids=["as it is", "control"])
@pytest.mark.parametrize(
    "path",
    ["/admin/login/", "/%61dmin", "/x/../admin/", "/admin/shop/sale/add/", "/api/v1/sales/x/audit", "/api/%0A/audit"],
)
def test_one_address_is_refused_much_of_what_staff_need(
    path: str, limit: str, tmp_path: Path, peers: list[Peer]
) -> None:
    """With a slower rate than the file's, however the path is written. The control: without the limit all is served."""
    file = FILE.replace("rate=10r/s", "rate=1r/m").replace("limit_req zone=staff burst=60 nodelay;", limit)
    with nginx(tmp_path, peers, file=file) as caller:
        answers = [status_of(caller, "GET", path) for _ in range(300)]
        assert set(answers[:60]) == {200}
        assert set(answers[100:]) == {429 if limit else 200}
        assert status_elsewhere(caller, path) == 200
        # All else goes on for them, also a sale of such a name.
        for other in ("/", "/api/v1/sales/new-audit", "/static/admin/css/base.css"):
            assert status_of(caller, "GET", other) == 200


def test_one_address_holds_so_many_connections(tmp_path: Path) -> None:
    """They are counted while they are answered: here by a peer that takes its time."""
    with ExitStack() as running:
        slow = running.enter_context(socket.create_server(("127.0.0.1", 0)))
        peer = Peer()
        peer.port = slow.getsockname()[1]
        file = FILE.replace("limit_conn connections 1000", "limit_conn connections 2")
        caller = running.enter_context(nginx(tmp_path, [peer], file=file))
        for _ in range(2):
            connection = running.enter_context(socket.create_connection(("127.0.0.1", caller.port), timeout=60))
            connection.sendall(b"GET /api/v1/sales HTTP/1.1\r\nHost: a\r\n\r\n")
            running.enter_context(slow.accept()[0])
        assert status_of(caller, "GET") == 429


def test_private_networks_are_not_limited(tmp_path: Path, peers: list[Peer]) -> None:
    """Here the loopback stands for one; the test above is the control."""
    file = FILE.replace("rate=500r/s", "rate=1r/s").replace("burst=2000", "burst=1")
    with nginx(tmp_path, peers, file=file.replace("10.0.0.0/8", "127.0.0.0/8")) as caller:
        assert {status_of(caller, "GET") for _ in range(ASKS)} == {200}


@pytest.mark.parametrize(
    ("path", "length", "told"),
    [
        ("/api/v1/sales/x/requests", 10 * 1024, 200),
        ("/api/v1/sales/x/requests", 65 * 1024, 413),
        ("/admin/login/", 65 * 1024, 413),
        ("/admin/shop/order/", 65 * 1024, 413),
        ("/admin/shop/sale/add/", MAX_UPLOAD_BYTES, 200),
        ("/admin/shop/product/7/change/", MAX_UPLOAD_BYTES, 200),
        ("/admin/shop/sale/add/", MAX_UPLOAD_BYTES + 1, 413),
    ],
)
def test_only_forms_with_a_picture_take_a_large_body(
    path: str, length: int, told: int, tmp_path: Path, peers: list[Peer]
) -> None:
    with nginx(tmp_path, peers) as caller:
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        assert caller.send_raw(head.encode() + bytes(length)).status == told
        assert [each for peer in peers for each in peer.asked] == ["POST"] * (told == 200)


def test_a_picture_is_handed_on_as_it_comes(tmp_path: Path) -> None:
    """So the shop may refuse it before its end. The control is another address, which nginx takes whole first."""
    with ExitStack() as running:
        shop = running.enter_context(socket.create_server(("127.0.0.1", 0)))
        shop.settimeout(60)
        peer = Peer()
        peer.port = shop.getsockname()[1]
        caller = running.enter_context(nginx(tmp_path, [peer]))
        for path in ("/admin/login/", "/admin/shop/sale/add/"):
            sender = running.enter_context(socket.create_connection(("127.0.0.1", caller.port), timeout=60))
            sender.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\nhalf".encode())
        # Only one of the two arrives: the health check of nginx asks nobody.
        connection = running.enter_context(shop.accept()[0])
        assert connection.recv(1000).startswith(b"POST /admin/shop/sale/add/ ")
        shop.settimeout(0.5)
        with pytest.raises(TimeoutError):
            shop.accept()
