"""How a web process leaves without breaking a connection: said first, then no new ones, then none that is in use.
Never resets a connection that has just been made.
"""

from __future__ import annotations

import ctypes
import socket
import struct

# In the state that the application shares with the server: this process is about to end.
LEAVING = "leaving"
# How long connections that the kernel has made may take to be accepted, once no more are made.
ACCEPT_SECONDS = 0.1
# How long a connection that was just accepted may take to send its first byte.
FIRST_BYTE_SECONDS = 1.0
_SO_ATTACH_FILTER = 26
# A socket filter: load the flags of TCP, keep SYN and ACK; drop the packet if that is SYN alone, else pass it on.
_NO_NEW_ONES = ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


def refuse_new_connections(listener: socket.socket) -> None:
    """Let no connection begin here any more; those that the kernel has made can still be accepted.

    A listener that is closed at once resets them, although a proxy may have sent a purchase on them, which it must not
    send again. A beginning that is dropped is tried again after a second, finds nobody, and goes to another process.
    """
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _NO_NEW_ONES))
    program = struct.pack("HL", len(_NO_NEW_ONES), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
