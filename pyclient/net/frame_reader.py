# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Splits bytes from the socket into response frames: one read takes many small ones, a large one has its own buffer.

Independent of requests. The caller reads into `room`, then calls `received`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyclient.codec.memory import bytes_at, int32_at, unwritten
from pyclient.core.manager import Frame
from pyclient.errors import ProtocolError
from pyclient.net.tls_errors import ALERT_RECORD, tls_listener

SIZE_BYTES: Final = 4
"""Every frame begins with its size, an int32."""
_SIZE_BYTES: Final = SIZE_BYTES
SCRATCH: Final = 4096
"""Bytes. A response within it takes one read; reading its size first would take two."""
MOST_BEFORE_LOGIN: Final = 1 << 20
"""Bytes of a response before the peer is known: decoded, it takes up to twenty times as many. Usual ones have 1 KiB."""


class FrameReader:
    """Calls *on_frame* with each complete frame, without its size: small ones are bytes, large ones views."""

    def __init__(self, label: str, max_frame: int, on_frame: Callable[[Frame], None]) -> None:
        self._label = label
        self._max_frame = max_frame
        self._limit = min(max_frame, MOST_BEFORE_LOGIN)
        self._on_frame = on_frame
        self.scratch = bytearray(SCRATCH)
        """Where the bytes of small frames arrive."""
        self._frame: bytearray | None = None  # the incomplete large frame
        self.filled = 0
        """Bytes in it, or else in the scratch buffer: the next ones go behind them."""
        self._stopped = False
        self.bytes_in = 0
        self.may_be_tls = True
        """The peer may be a TLS listener although this connection is plain: it then first sends a TLS alert."""

    def logged_in(self) -> None:
        """The peer is a broker, and has accepted the login if there is one: its responses may be large."""
        self._limit = self._max_frame

    def stop(self) -> None:
        """The connection is closed: no further frame is taken."""
        self._stopped = True

    def room(self) -> bytearray:
        """Where the next bytes go, behind the `filled` ones: the incomplete large frame, else the scratch buffer."""
        return self.scratch if self._frame is None else self._frame

    def received(self, size: int) -> int:
        """Take the frames that *size* new bytes complete; how many bytes of a large frame are missing.

        Raises KafkaError: the peer does not speak Kafka's protocol.
        """
        self.bytes_in += size
        self.filled += size
        self._take()
        return 0 if self._frame is None else len(self._frame) - self.filled

    def _take(self) -> None:
        if self._frame is None:
            self._take_small()
        elif self.filled == len(self._frame):
            frame, self._frame, self.filled = memoryview(self._frame).toreadonly(), None, 0
            self._on_frame(frame)

    def _take_small(self) -> None:
        """Take the frames of one read; an incomplete last one gets its own buffer, or stays in the scratch buffer."""
        at, end, self.filled = 0, self.filled, 0
        while end - at >= _SIZE_BYTES and not self._stopped:
            size = self._frame_size(at)
            at += _SIZE_BYTES
            if size > end - at:
                self._frame, self.filled = unwritten(size), end - at
                self._frame[:end - at] = self.scratch[at:end]
                return
            at += size
            self._on_frame(bytes_at(self.scratch, at - size, size))
        if at < end:
            self.scratch[:end - at] = self.scratch[at:end]
            self.filled = end - at

    def _frame_size(self, at: int) -> int:
        size = int32_at(self.scratch, at)
        if self.may_be_tls and self.scratch[at:at + 2] == ALERT_RECORD:
            raise tls_listener(self._label)
        if not _SIZE_BYTES <= size <= self._limit:
            most = f"receive_max_frame_bytes={self._limit}" if self._limit == self._max_frame else f"{self._limit} before the connection is ready"
            raise ProtocolError(
                f"{self._label} announced a response of {size} B; allowed are 4 to {most}. "
                "Check that the port is a Kafka listener, and that it does not use TLS.")
        return size
