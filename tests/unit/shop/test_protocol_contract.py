"""Says clearly when a new uvicorn or httptools changes what shop/gate/server/protocol.py relies on.
It is the only file that knows uvicorn's protocol; whatever fails here must be looked at there. Needs no server.
"""

from __future__ import annotations

import inspect
import re

import httptools
import pytest
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import Server

from tests.rules.sources import ROOT, python_files

PROTOCOL = httptools_impl.HttpToolsProtocol
CYCLE = httptools_impl.RequestResponseCycle
HINT = "uvicorn has changed: read the new httptools_impl.py alongside shop/gate/server/protocol.py"

# What ours overrides or calls, with its parameters.
METHODS = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "eof_received": [],
    "data_received": ["data"],
    "on_message_begin": [],
    "on_url": ["url"],
    "on_header": ["name", "value"],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "on_response_complete": [],
    "shutdown": [],
    "resume_writing": [],
    "_start_asgi_task": ["cycle", "app"],
}
# Methods of uvicorn's that ours neither overrides nor calls: they do nothing that ours would have to undo.
UNTOUCHED = {
    "_get_upgrade",
    "_should_upgrade",
    "_should_upgrade_to_ws",
    "_unset_keepalive_if_required",
    "_unsupported_upgrade_warning",
    "handle_websocket_upgrade",
    "send_400_response",
    "pause_writing",
    "timeout_keep_alive_handler",
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_parameters_that_ours_has(name: str) -> None:
    found = list(inspect.signature(getattr(PROTOCOL, name)).parameters)[1:]
    assert found == METHODS[name], HINT


def test_there_is_no_method_that_ours_does_not_know() -> None:
    own = {name for name, value in vars(PROTOCOL).items() if inspect.isfunction(value)} - {"__init__"}
    assert own == set(METHODS) | UNTOUCHED, HINT


def test_the_protocol_keeps_its_state_where_ours_looks() -> None:
    source = inspect.getsource(PROTOCOL.__init__)
    for name in ("app", "parser", "transport", "flow", "loop", "pipeline", "headers", "cycle", "connections",
                 "server_state", "expect_100_continue"):  # fmt: skip
        assert re.search(rf"self\.{name}\b.* = ", source), f"{HINT}: self.{name}"


def test_a_cycle_has_what_ours_reads_and_sets() -> None:
    source = inspect.getsource(CYCLE)
    for name in ("transport", "keep_alive", "disconnected", "message_event", "response_started", "response_complete",
                 "chunked_encoding", "more_body", "body"):  # fmt: skip
        assert f"self.{name}" in source, f"{HINT}: cycle.{name}"
    # It asks its transport for these three only; ours gives the last cycle of a connection one of its own.
    assert set(re.findall(r"self\.transport\.(\w+)\(", source)) == {"write", "close", "is_closing"}, HINT


def test_a_waiting_message_is_put_at_the_left_of_the_pipeline() -> None:
    source = inspect.getsource(PROTOCOL.on_headers_complete)
    assert "if existing_cycle is None or existing_cycle.response_complete:" in source, HINT
    assert "self.pipeline.appendleft((self.cycle, app))" in source, HINT


def test_the_flow_control_has_what_ours_uses() -> None:
    for name in ("pause_reading", "resume_reading"):
        assert callable(getattr(FlowControl, name)), HINT
    source = inspect.getsource(FlowControl)
    assert "read_paused" in source, HINT
    assert "write_paused" in source, HINT


def test_the_server_keeps_its_connections_and_starts_as_ours_expects() -> None:
    assert list(inspect.signature(Server.startup).parameters) == ["self", "sockets"], HINT
    assert "connection.shutdown()" in inspect.getsource(Server.shutdown), HINT


def test_the_parser_calls_back_as_ours_expects() -> None:
    calls: list[str] = []

    class Heard:
        def __getattr__(self, name: str) -> object:
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda *_: calls.append(name)

    parser = httptools.HttpRequestParser(Heard())
    parser.set_dangerous_leniencies(lenient_data_after_close=False)
    parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
    order = ["on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"]
    assert [call for call in dict.fromkeys(calls) if call in order] == [
        "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete",
    ]  # fmt: skip


def test_only_one_module_knows_uvicorns_protocol() -> None:
    knowing = [
        str(path.relative_to(ROOT))
        for path in python_files("inventory", "shop", "workers")
        if re.search(r"uvicorn\.protocols|import httptools|from httptools", path.read_text())
    ]
    assert knowing == ["shop/gate/server/protocol.py"]
