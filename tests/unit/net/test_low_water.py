"""The reader of a large response is woken only when much of it has arrived, and always for its end."""
from __future__ import annotations

import random
import ssl
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.core.manager import Frame
from pyclient.errors import KafkaError
from pyclient.net.connection import AnswerListener, Connection
from pyclient.net.low_water import LEAST, MOST, SLACK, LowWater
from pyclient.reactor.channels import HAS_RCVLOWAT, Channel
from tests.unit.net.test_tls_connections import limited
from tests.unit.reactor.rigs import Make, Rig, client_context, over_each_poller, pair, plain_and_tls, plain_pair, rigs, tls_pair

RECORD = 2**14 + 2048
"""Bytes of the largest record of TLS 1.2, without its head."""
PIECE = 10_000


@given(st.lists(st.integers(0, 3 * MOST) | st.sampled_from([0, 1, LEAST - 1, LEAST, LEAST + 1, SLACK, MOST, MOST + SLACK])))
def test_the_low_water_mark_never_exceeds_the_bytes_that_can_still_arrive(missing: list[int]) -> None:
    mark = LowWater()
    for each in missing:
        before = mark.bytes
        assert mark.update(each) == (mark.bytes != before), "the system is asked for changes only"
        assert 1 <= mark.bytes <= max(1, each - RECORD)
        assert mark.bytes <= MOST
        assert (mark.bytes > 1) == (each >= LEAST)


class Counted(Connection):
    """Counts how often it is woken to read, and keeps its frames."""

    def __init__(self, rig: Rig, channel: Channel) -> None:
        self.wakes = 0
        self.frames: list[bytes] = []
        self.lost: list[KafkaError] = []
        super().__init__("the peer", None, reactor=rig.reactor, clock=time.monotonic, max_frame=1 << 21, on_change=lambda: None, on_quiet=lambda: None,
                         on_lost=lambda _connection, cause: self.lost.append(cause), answers=AnswerListener())
        self.reader.logged_in()
        rig.run(lambda: self.attach(channel))

    def _read(self) -> None:
        self.wakes += 1
        super()._read()

    def _on_frame(self, frame: Frame) -> None:
        self.frames.append(bytes(frame))


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


sizes = st.integers(4, 3000) | st.integers(LEAST - 3000, LEAST + 3 * SLACK) | st.integers(MOST - 3000, 2 * MOST)
VERSIONS = {None: None, 2: ssl.TLSVersion.TLSv1_2, 3: ssl.TLSVersion.TLSv1_3}


@over_each_poller
@settings(max_examples=10)
@given(bodies=st.lists(sizes, min_size=1, max_size=6), pieces=st.lists(sizes, max_size=12), tls=st.sampled_from(list(VERSIONS)))
def test_all_responses_are_read_however_they_are_split(make: Make, bodies: list[int], pieces: list[int], tls: int | None) -> None:
    answers = [bytes([number]) * size for number, size in enumerate(bodies)]
    with make() as rig:
        version = VERSIONS[tls]
        channel, peer = plain_pair(rig) if version is None else tls_pair(rig, context=limited(client_context(), version))
        made, data = Counted(rig, channel), framed(*answers)
        for size in [*pieces, len(data)]:
            peer.send(data[:size])
            data = data[size:]
            rig.settle()
        rig.until(lambda: len(made.frames) == len(answers) or made.lost)
        assert made.frames == answers


@pytest.mark.skipif(not HAS_RCVLOWAT, reason="no SO_RCVLOWAT on this system")
@over_each_poller
@plain_and_tls
def test_the_reader_of_a_large_response_in_many_pieces_is_woken_seldom(make: Make, tls: bool) -> None:
    large = random.Random(1).randbytes((1 << 20) - 4)
    with make() as rig:
        channel, peer = pair(rig, tls)
        made, data = Counted(rig, channel), framed(large)
        for at in range(0, len(data), PIECE):
            peer.send(data[at:at + PIECE])
            rig.settle()
        rig.until(lambda: made.frames)
        assert made.frames == [large]
        assert made.wakes < 20, "a hundred pieces"


def test_without_the_low_water_mark_each_piece_would_wake_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.reactor.channels.HAS_RCVLOWAT", False)
    with rigs()[0].values[0]() as rig:
        channel, peer = pair(rig, tls=False)
        made, data = Counted(rig, channel), framed(bytes(40 * PIECE))
        for at in range(0, len(data), PIECE):
            peer.send(data[at:at + PIECE])
            rig.settle()
        rig.until(lambda: made.frames)
        assert made.wakes >= 40
