"""A connection until its first byte, which makes it one of the gate's. Counts connections, makes room for new ones.
Never keeps more of a silent connection than thousands of them may take, and never answers a call.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from shop.client_address import limited_address
from shop.gate.server.limits import DEADLINES, MAX_CONNECTIONS, SILENT, TOO_MANY, TOO_MANY_OF_ONE
from shop.gate.server.protocol import GateProtocol


class SilentConnection(asyncio.Protocol):
    """One connection. It has neither a parser nor a buffer, and no dictionary of attributes."""

    __slots__ = ("_app_state", "_config", "_server_state", "address", "since", "stopping", "transport")

    # Those that were let in, oldest first: they make room for others.
    let_in: ClassVar[dict[SilentConnection, None]] = {}
    phase: ClassVar[int] = SILENT

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._config, self._server_state, self._app_state = config, server_state, app_state
        self.address: str | None = None  # for which this connection is counted
        self.since = GateProtocol.clock.now
        self.stopping = False  # what it becomes reads this from the state of the application

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or make room, or refuse."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        address = limited_address(peer[0] if peer else "")
        if not GateProtocol.addresses.take(address):
            transport.write(GateProtocol.clock.refusal(*TOO_MANY_OF_ONE))
            transport.write_eof()  # else what was sent already would reset the connection before the answer is read
            return transport.close()  # at once: anyone who has so many gets no time to send more
        self.address = address
        self.let_in[self] = None
        self._server_state.connections.add(self)
        if len(self._server_state.connections) > MAX_CONNECTIONS:
            oldest = next(iter(self.let_in))
            if oldest is self:
                self._hand_over().refuse(TOO_MANY)
            else:
                oldest.transport.abort()
        return None

    def data_received(self, data: bytes) -> None:
        """Become a connection of the gate."""
        self._hand_over().data_received(data)

    def _hand_over(self) -> GateProtocol:
        self._forget()
        connection = GateProtocol(self._config, self._server_state, self._app_state)
        connection.address = self.address
        self.transport.set_protocol(connection)
        connection.connection_made(self.transport)
        return connection

    def _forget(self) -> None:
        self.let_in.pop(self, None)
        self._server_state.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count one less."""
        self._forget()
        if self.address is not None:
            GateProtocol.addresses.give_back(self.address)

    def check_deadline(self, now: int) -> None:
        """End this connection when it is too late; now: seconds of the clock."""
        if now - self.since > DEADLINES[SILENT]:
            self.transport.close()

    def shutdown(self) -> None:
        """End this connection: the process stops."""
        self.transport.close()
