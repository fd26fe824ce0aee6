"""Writes what a process counted as Prometheus reads it, and serves it on a port of the process's own.
Never holds the process's work up: everything is formatted when it is asked for, in a thread of the server.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from socketserver import TCPServer
from threading import Thread
from typing import TypeAlias

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from inventory.telemetry.families import family, head, labels
from inventory.telemetry.measures import HISTOGRAMS, TALLIES, Histogram, Tally
from inventory.telemetry.version import project_version

log = structlog.get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A caller who asks for the page and does not read it is dropped after so long.
SOCKET_SECONDS = 5.0
# Read once: a newer one may lie on the disk while this process runs on.
VERSION = project_version()
# Families of samples, each as text, made when the page is asked for.
Families: TypeAlias = Callable[[], Iterable[str]]
# CPU, memory and open files of this process, as the library reads them.
_RESOURCES = CollectorRegistry()
ProcessCollector(registry=_RESOURCES)


def _measures(process: str) -> Iterator[str]:
    """Yield the build, every tally and every histogram."""
    build = labels(process=process, python=platform.python_version(), version=VERSION)
    yield family("fairdrop_build_info", "What runs here", samples=[(build, 1)])
    yield from map(_text_of_tally, TALLIES)
    yield from map(_text_of_histogram, HISTOGRAMS)


def _text_of_tally(tally: Tally) -> str:
    names = tally.label.split(",")
    counted = [(which.split(",", len(names) - 1), count) for which, count in list(tally.counts.items())]
    samples = [(labels(**dict(zip(names, which, strict=True))), count) for which, count in counted]
    return family(f"{tally.name}_total", tally.about, samples=samples, kind="counter")


def _text_of_histogram(histogram: Histogram) -> str:
    name, text = histogram.name, [head(histogram.name, histogram.about, kind="histogram")]
    ends = [*map(str, histogram.bounds), "+Inf"]
    for which, counts in list(histogram.counts.items()):
        own = {histogram.label: which} if histogram.label else {}
        up_to = list(accumulate(counts))
        text += [f"{name}_bucket{labels(**own, le=end)} {count}\n" for end, count in zip(ends, up_to, strict=True)]
        text += [f"{name}_count{labels(**own)} {up_to[-1]}\n", f"{name}_sum{labels(**own)} {histogram.sums[which]}\n"]
    return "".join(text)


def render(process: str, others: Iterable[str] = ()) -> bytes:
    """Return the page of this process. process: its kind; others: families that only this kind has."""
    return generate_latest(_RESOURCES) + "".join([*_measures(process), *others]).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], read: Callable[[], bytes]) -> None:
        self.read = read
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Take the port; the library's own also looks up a name for it, for as long as a resolver is silent."""
        TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    timeout = SOCKET_SECONDS
    server: _Server

    def do_GET(self) -> None:
        known = self.path.partition("?")[0] == "/metrics"
        body = self.server.read() if known else b""
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no line for each look."""


def serve(address: str, process: str, read: Families = tuple) -> int | None:
    """Serve /metrics at `address` ("host:port") until the process ends; return the port, None for no address.

    read: gives what only this kind of process shows, each time the page is asked for.
    A port that is taken is logged, and the process works on without one: to sell comes first.
    """
    if not address:
        return None
    host, _, port = address.rpartition(":")
    try:
        server = _Server((host, int(port)), lambda: render(process, read()))
    except (OSError, OverflowError) as error:
        log.error("no port for metrics", action="metrics_failed", address=address, error=str(error))
        return None
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])


def next_address(address: str, number: int) -> str:
    """Return the address of the process with this number, from 0, of those that share one setting; '' for none."""
    if not address:
        return ""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}"
