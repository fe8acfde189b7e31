"""Frames from bytes: sizes out of bounds, TLS alerts, and frames after the connection is closed."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient.core.manager import Frame
from pyclient.errors import ProtocolError, SslAuthenticationError
from pyclient.net.frame_reader import MOST_BEFORE_LOGIN, SCRATCH, FrameReader
from pyclient.net.low_water import LEAST, SLACK, LowWater
from pyclient.net.tls_errors import ALERT_RECORD

MAX_FRAME = 1 << 20


class Reader(FrameReader):
    """Keeps its frames, unless *on_frame* gets them."""

    def __init__(self, on_frame: Callable[[Frame], None] | None = None) -> None:
        self.frames: list[bytes] = []
        super().__init__("b1", MAX_FRAME, on_frame or (lambda frame: self.frames.append(bytes(frame))))

    def feed(self, data: bytes) -> int:
        """As a connection does: at most as much at a time as there is room for."""
        missing = 0
        while data:
            buffer, start = self.room(), self.filled
            size = min(len(buffer) - start, len(data))
            buffer[start:start + size] = data[:size]
            missing = self.received(size)
            data = data[size:]
        return missing


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("size", [-1, 0, 3, MAX_FRAME + 1])
def test_M12_a_size_out_of_bounds_is_a_protocol_error_that_names_it(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"b1 announced a response of {size} B; .* receive_max_frame_bytes={MAX_FRAME}"):
        Reader().feed(size.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("size", [MOST_BEFORE_LOGIN + 1, 100 * MOST_BEFORE_LOGIN])
def test_M12_a_response_before_the_login_is_small_whatever_the_option_allows(size: int) -> None:
    """Decoded it takes many times its size, and the peer may be anything."""
    reader = FrameReader("b1", 100 * MOST_BEFORE_LOGIN, lambda frame: None)
    reader.room()[:4] = size.to_bytes(4, "big")
    with pytest.raises(ProtocolError, match=f"b1 announced a response of {size} B; .* {MOST_BEFORE_LOGIN} before the connection is ready"):
        reader.received(4)
    after = FrameReader("b1", 100 * MOST_BEFORE_LOGIN, lambda frame: None)
    after.logged_in()
    after.room()[:4] = size.to_bytes(4, "big")
    after.received(4)


def test_M16_an_alert_as_the_first_bytes_means_a_TLS_listener() -> None:
    with pytest.raises(SslAuthenticationError, match="TLS"):
        Reader().feed(ALERT_RECORD + bytes(5))


def test_after_the_first_response_an_alert_is_a_size_like_any_other() -> None:
    reader = Reader()
    reader.may_be_tls = False
    with pytest.raises(ProtocolError, match="announced a response of"):
        reader.feed(ALERT_RECORD + bytes(5))


def test_a_frame_that_does_not_fit_into_the_scratch_buffer_has_its_own() -> None:
    reader, large = Reader(), bytes(3 * SCRATCH)
    reader.feed(framed(b"small") + framed(large) + framed(b"last"))
    assert reader.frames == [b"small", large, b"last"]
    assert reader.bytes_in == 12 + len(b"smalllast") + len(large)


def test_a_closed_connection_takes_no_further_frame_of_the_same_read() -> None:
    frames: list[bytes] = []

    def closes(frame: Frame) -> None:
        frames.append(bytes(frame))
        reader.stop()

    reader = Reader(closes)
    reader.feed(framed(b"first") + framed(b"second"))
    assert frames == [b"first"]


def test_the_low_water_mark_is_raised_only_while_a_large_frame_is_incomplete() -> None:
    reader, low_water = Reader(), LowWater()
    large = framed(bytes(2 * LEAST))
    reader.feed(large[:SCRATCH])
    assert low_water.update(reader.feed(large[SCRATCH:SCRATCH + 100]))
    assert low_water.bytes == 2 * LEAST + 4 - SCRATCH - 100 - SLACK
    assert not low_water.update(2 * LEAST + 4 - SCRATCH - 100)
    assert low_water.update(reader.feed(large[SCRATCH + 100:]))
    assert low_water.bytes == 1
