"""A listener that is about to close resets no connection that the kernel has made: a proxy may have sent on it."""

from __future__ import annotations

import socket

import pytest

from shop.gate.server.draining import refuse_new_connections


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_who_came_before_is_accepted_and_who_comes_later_finds_nobody() -> None:
    with listener() as listening:
        with socket.create_connection(listening.getsockname()) as before:
            before.sendall(b"ask")
            refuse_new_connections(listening)
            later = socket.socket()
            later.settimeout(0.2)
            with pytest.raises(TimeoutError):
                later.connect(listening.getsockname())
            accepted, _ = listening.accept()
            listening.close()
            assert accepted.recv(3) == b"ask"
            accepted.sendall(b"answer")
            assert before.recv(6) == b"answer"
            accepted.close()
        later.close()


def test_the_control_a_listener_that_closes_at_once_resets_them() -> None:
    listening = listener()
    with socket.create_connection(listening.getsockname()) as before:
        before.sendall(b"ask")
        listening.close()
        with pytest.raises(ConnectionResetError):
            before.recv(6)


def test_a_beginning_that_was_dropped_is_told_soon_that_nobody_listens() -> None:
    with listener() as listening:
        refuse_new_connections(listening)
        later = socket.socket()
        later.setblocking(False)
        with pytest.raises(BlockingIOError):
            later.connect(listening.getsockname())
        listening.close()
        later.settimeout(60)
        with pytest.raises(ConnectionRefusedError):
            later.recv(1)
        later.close()
