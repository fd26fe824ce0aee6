"""docker/nginx-tls.conf in the real nginx, with a certificate of this test's own: TLS and HTTP/2, one way in, and the
shop is told by the proxy alone how a client came. Needs the nginx program, of Debian or newer.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.http_calls import Caller
from tests.support.servers.nginx import FOLDER, adapted, before, find_nginx, running_nginx, text_of
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.servers.stores import ROOT
from workers.embedded.server import free_port

HOST = "shop.example"
HSTS = "strict-transport-security"


@dataclass
class Proxy:
    """nginx with TLS. certificate: that a client must trust."""

    plain: Caller
    port: int
    certificate: Path

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """GET `path` by TLS, and return the answer, read."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        connection.request("GET", path, headers={"Host": HOST, **headers})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    def protocol(self, *offered: str, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> tuple[str | None, str | None]:
        """Return the application protocol and the version of TLS that are agreed on."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.set_alpn_protocols(offered)
        context.maximum_version = newest
        raw = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw.connect()
        with context.wrap_socket(raw.sock, server_hostname="127.0.0.1") as made:
            return made.selected_alpn_protocol(), made.version()


@contextmanager
def tls_proxy(folder: Path, *, shop_port: int, name: str = "nginx-tls.conf") -> Iterator[Proxy]:
    """Run nginx as the file says, before a shop at a port."""
    (folder / "proxy").mkdir()
    plain, secure = free_port(), free_port()
    text = with_certificate(text_of(name, upstream="upstream-local.conf"), folder=folder, plain=plain, secure=secure)
    text = adapted(text, folder=folder / "proxy", ports=[shop_port], port=plain)
    with running_nginx(text, folder=folder / "proxy", port=plain) as caller:
        yield Proxy(caller, secure, folder / "tls" / "fullchain.pem")


def with_certificate(text: str, *, folder: Path, plain: int, secure: int) -> str:
    """Return the file for a new certificate in `folder` and these ports of this machine."""
    (folder / "tls").mkdir()
    write_certificate(folder / "tls")
    text = text.replace("/etc/fairdrop/tls/", f"{folder / 'tls'}/")
    text = re.sub(r"listen 443 ", f"listen 127.0.0.1:{secure} ", text)
    return re.sub(r"listen 80 ", f"location = /proxy-health {{ return 200; }} listen 127.0.0.1:{plain} ", text)


def write_certificate(folder: Path) -> None:
    """Write a certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "privkey.pem").write_bytes(private)


@pytest.fixture
def told() -> Iterator[tuple[int, list[http.client.HTTPMessage]]]:
    """Serve at a port, and note the headers of each call."""
    noted: list[http.client.HTTPMessage] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            noted.append(self.headers)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], noted
        server.shutdown()


def test_the_shop_is_told_by_the_proxy_alone_how_a_client_came(
    tmp_path: Path, told: tuple[int, list[http.client.HTTPMessage]]
) -> None:
    port, noted = told
    with tls_proxy(tmp_path, shop_port=port) as proxy:
        for said in ("http", "https", "https, http"):
            assert proxy.get("/", **{"X-Forwarded-Proto": said}).status == 200
    assert [each.get_all("X-Forwarded-Proto") for each in noted] == [["https"]] * 3
    assert {each["Host"] for each in noted} == {HOST}


def test_the_control_the_file_without_tls_hands_on_what_a_proxy_before_it_said(
    tmp_path: Path, told: tuple[int, list[http.client.HTTPMessage]]
) -> None:
    port, noted = told
    proxy = free_port()
    text = adapted(text_of("nginx.conf"), folder=tmp_path, ports=[port], port=proxy)
    with running_nginx(text, folder=tmp_path, port=proxy) as caller:
        caller.get("/", headers={"X-Forwarded-Proto": "https"})
    assert [each.get_all("X-Forwarded-Proto") for each in noted] == [["https"]]


def test_who_comes_in_the_clear_is_sent_to_the_same_address_by_tls(
    tmp_path: Path, told: tuple[int, list[http.client.HTTPMessage]]
) -> None:
    port, noted = told
    with tls_proxy(tmp_path, shop_port=port) as proxy:
        for method in ("GET", "POST"):
            answer = proxy.plain.call(method, "/sales/kite/?lang=en", headers={"Host": HOST})
            assert (answer.status, answer.headers["location"]) == (308, f"https://{HOST}/sales/kite/?lang=en")
    assert noted == []


def test_http_2_is_spoken_with_whom_it_is_wanted_by_and_no_old_tls(
    tmp_path: Path, told: tuple[int, list[http.client.HTTPMessage]]
) -> None:
    with tls_proxy(tmp_path, shop_port=told[0]) as proxy:
        assert proxy.protocol("h2", "http/1.1") == ("h2", "TLSv1.3")
        assert proxy.protocol("http/1.1") == ("http/1.1", "TLSv1.3")
        assert proxy.protocol("h2", newest=ssl.TLSVersion.TLSv1_2) == ("h2", "TLSv1.2")
        assert b"HTTP/2 200" in fetched(proxy, "--http2")
        # With options that let the client agree to it.
        assert fetched(proxy, "--tlsv1.0", "--tls-max", "1.1", "--ciphers", "ALL:@SECLEVEL=0") == b""
        assert fetched(proxy, "--tlsv1.0", "--tls-max", "1.2", "--ciphers", "ALL:@SECLEVEL=0") != b""


def fetched(proxy: Proxy, *options: str) -> bytes:
    """Return the head of an answer as curl gets it; empty when there is none."""
    command = ["curl", "--silent", "--head", "--cacert", str(proxy.certificate), *options]
    address = f"https://127.0.0.1:{proxy.port}/proxy-health"
    return subprocess.run([*command, address], capture_output=True, timeout=600, check=False).stdout


@pytest.mark.parametrize("linked", [True, False], ids=["as it is", "control"])
def test_what_compose_runs_loads_the_file_and_all_that_it_includes(tmp_path: Path, linked: bool) -> None:
    """The command line with its folders below this test's. The control: without the link nothing that is included."""
    etc, scratch = tmp_path / "etc", tmp_path / "scratch"
    (etc / "fairdrop").mkdir(parents=True)
    scratch.mkdir()
    for path in (FOLDER / "nginx").iterdir():
        (etc / "fairdrop" / path.name).write_text(before(path.read_text(), ports=[free_port()]))
    text = with_certificate(
        (FOLDER / "nginx-tls.conf").read_text(), folder=tmp_path, plain=free_port(), secure=free_port()
    )
    text = adapted(text, folder=tmp_path, ports=[], port=0).removeprefix("daemon off; ")
    (etc / "nginx.conf").write_text(text)
    *shell, command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["tls"]["command"]
    command = re.sub(r"(/etc/nginx)|/tmp", lambda found: str(etc if found[1] else scratch), command)
    # This machine may have no user of that name; root may be named anywhere.
    command = command.replace("user nginx;", "user root;").replace("exec nginx ", f"exec {find_nginx()} -T ")
    if not linked:
        command = command.replace("ln -sfn ", "true ")
    loaded = subprocess.run([*shell, command], capture_output=True, text=True, timeout=600)
    assert (loaded.returncode == 0) is linked, loaded.stderr
    if linked:
        assert re.findall(r"^user .*", loaded.stdout, re.M) == ["user root;"]
        included = re.findall(rf"^# configuration file {scratch}/fairdrop/(\S+):$", loaded.stdout, re.M)
        assert sorted(included) == ["limits.conf", "locations.conf", "upstream.conf"]


def test_metrics_and_readiness_stay_inside(tmp_path: Path, told: tuple[int, list[http.client.HTTPMessage]]) -> None:
    with tls_proxy(tmp_path, shop_port=told[0]) as proxy:
        assert [proxy.get(path).status for path in ("/metrics", "/readyz", "/")] == [404, 404, 200]


def test_the_shop_behind_it_says_once_that_it_is_reached_by_tls_only(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    """The control is the web process itself, called as the proxy calls it: it says so too, and sends nobody round."""
    environment = {
        **process_environment, "FAIRDROP_BEHIND_TLS": "true", "FAIRDROP_TRUSTED_PROXIES": "1", "ALLOWED_HOSTS": HOST,
    }  # fmt: skip
    with ExitStack() as running:
        web = running.enter_context(web_process(environment, folder=tmp_path, program=program_with(PATIENT_WEB)))
        proxy = running.enter_context(tls_proxy(tmp_path, shop_port=web.port))
        for path in ("/", "/api/v1/sales", "/admin/login/"):
            answer = proxy.get(path)
            direct = web.get(path, headers={"Host": HOST, "X-Forwarded-Proto": "https"})
            assert (answer.status, direct.status) == (200, 200), path
            assert answer.headers.get_all(HSTS) == [direct.headers[HSTS]]
