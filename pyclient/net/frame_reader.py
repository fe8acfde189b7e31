"""Splits bytes from the socket into response frames: one read takes many small ones, a large one has its own buffer.

Knows sizes and buffers; knows no requests. The caller is asyncio's BufferedProtocol: `get_buffer`, then `received`.
"""
from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from pyclient.codec.memory import unwritten
from pyclient.errors import ProtocolError
from pyclient.net.rcvlowat import ReceiveLowWater
from pyclient.net.socket_read import fill
from pyclient.net.tls_errors import ALERT_RECORD, tls_listener
from pyclient.runtime.loop_thread import in_portal

SIZE_BYTES: Final = 4
"""Every frame begins with its size, an int32."""
SCRATCH: Final = 4096
"""Bytes. A response within it takes one read; reading its size first would take two, and two turns of the loop."""
MOST_BEFORE_LOGIN: Final = 1 << 20
"""Bytes of a response before the peer is known: decoded, it takes up to twenty times as many. Usual ones have 1 KiB."""
MUCH: Final = 65_536
"""Missing bytes of a frame from which on a direct read of the socket is worth its call."""
PATIENCE_MS: Final = 1
"""How long a direct read waits for the next bytes on the client's own loop. It is 0 on a user's loop."""


class FrameReader:
    """Calls *on_frame* with each complete frame, without its size."""

    def __init__(self, label: str, max_frame: int, on_frame: Callable[[memoryview], None]) -> None:
        self._label = label
        self._max_frame = max_frame
        self._limit = min(max_frame, MOST_BEFORE_LOGIN)
        self._on_frame = on_frame
        self._patience_ms = PATIENCE_MS if in_portal() else 0
        self._socket: socket.socket | None = None
        self._low_water: ReceiveLowWater | None = None
        self.scratch = bytearray(SCRATCH)
        """Where the bytes of small frames arrive."""
        self._frame: bytearray | None = None  # the incomplete large frame
        self._filled = 0  # bytes in it, or else in the scratch buffer
        self._stopped = False
        self.bytes_in = 0
        self.may_be_tls = True
        """The peer may be a TLS listener although this connection is plain: it then first sends a TLS alert."""

    def logged_in(self) -> None:
        """The peer is a broker, and has accepted the login if there is one: its responses may be large."""
        self._limit = self._max_frame

    def read_directly(self, sock: socket.socket) -> None:
        """The rest of a large frame is read from *sock*, beside the transport."""
        self._socket = sock

    def use_low_water(self, set_low_water: Callable[[int], None]) -> None:
        """With TLS: wake the loop only when enough of a large frame has arrived."""
        self._low_water = ReceiveLowWater(set_low_water)

    def release_socket(self) -> None:
        """The connection is closing: no direct reads any more."""
        self._socket = None

    def stop(self) -> None:
        """The connection is closed: no further frame is taken."""
        self._socket = self._low_water = None
        self._stopped = True

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: the incomplete large frame, else the scratch buffer."""
        return memoryview(self.scratch if self._frame is None else self._frame)[self._filled:]

    def received(self, size: int) -> None:
        """Take the frames that *size* new bytes complete.

        Raises KafkaError: the peer does not speak Kafka's protocol.
        """
        self.bytes_in += size
        self._filled += size
        frame = self._frame
        if frame is None:
            self._take_small()
        else:
            self._take()
        if self._socket is not None and self._frame is not None and len(self._frame) - self._filled >= MUCH:
            self._read_on(self._socket, self._frame)
        if self._low_water is not None:
            self._low_water.update(len(frame) - self._filled if frame is not None and frame is self._frame else 0)

    def _read_on(self, sock: socket.socket, frame: bytearray) -> None:
        """Read the rest of a large frame, as far as it has arrived."""
        size = fill(sock.fileno(), frame, self._filled, self._patience_ms)
        self.bytes_in += size
        self._filled += size
        self._take()

    def _take(self) -> None:
        if self._frame is None:
            self._take_small()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = memoryview(self._frame).toreadonly(), None, 0
            self._on_frame(frame)

    def _take_small(self) -> None:
        """Take the frames of one read; an incomplete last one gets its own buffer, or stays in the scratch buffer."""
        at, end, self._filled = 0, self._filled, 0
        while end - at >= SIZE_BYTES and not self._stopped:
            size = self._frame_size(at)
            at += SIZE_BYTES
            if size > end - at:
                self._frame, self._filled = unwritten(size), end - at
                self._frame[:end - at] = self.scratch[at:end]
                return
            at += size
            self._on_frame(memoryview(bytes(self.scratch[at - size:at])))
        if at < end:
            self.scratch[:end - at] = self.scratch[at:end]
            self._filled = end - at

    def _frame_size(self, at: int) -> int:
        size = int.from_bytes(self.scratch[at:at + SIZE_BYTES], "big", signed=True)
        if self.may_be_tls and self.scratch[at:at + 2] == ALERT_RECORD:
            raise tls_listener(self._label)
        if not SIZE_BYTES <= size <= self._limit:
            most = f"receive_max_frame_bytes={self._limit}" if self._limit == self._max_frame else f"{self._limit} before the connection is ready"
            raise ProtocolError(
                f"{self._label} announced a response of {size} B; allowed are 4 to {most}. "
                "Check that the port is a Kafka listener, and that it does not use TLS.")
        return size
