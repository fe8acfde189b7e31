"""Requests that the system has not taken yet, when their connection is retired, broken or answered."""
from __future__ import annotations

import time
from typing import Any

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.connection import State
from pyclient.core.handshake import Versions
from pyclient.core.manager import Unknown, Use
from pyclient.errors import DisconnectError, KafkaError, ProtocolError
from pyclient.net.connection import AnswerListener, Connection
from tests.unit.net.written import Written
from tests.unit.reactor.rigs import Make, Rig, over_each_poller, pair, plain_and_tls

SIZE = 1 << 20
BUFFER = 4096


class Linked:
    """A ready connection to a peer whose buffers are small, and its events."""

    def __init__(self, rig: Rig, tls: bool) -> None:
        channel, self.peer = pair(rig, tls, buffer=BUFFER)
        self.peer.reads = False
        self.rig = rig
        self.outcomes: list[Any] = []
        self.lost: list[KafkaError] = []
        self.connection = Connection(
            "the peer", None, reactor=rig.reactor, clock=time.monotonic, max_frame=1 << 20, on_change=lambda: None, on_quiet=lambda: None,
            on_lost=lambda _connection, cause: self.lost.append(cause), answers=AnswerListener())
        self.connection.state = State.READY
        self.connection.versions = Versions({Api.METADATA: VersionRange(0, 99)})
        rig.run(lambda: self.connection.attach(channel))
        rig.settle()

    def write(self, *, answered: bool = True) -> None:
        """A large request."""
        request = Written(
            lambda _version, number, _client: [number.to_bytes(4, "big"), bytearray(SIZE)],
            node=1, use=Use.PRODUCE, api=Api.METADATA, timeout=20.0, done=lambda _now, outcome: self.outcomes.append(outcome), answered=answered,
            versions=None)
        self.rig.run(lambda: self.connection.send(request))


@over_each_poller
@plain_and_tls
def test_P22_a_retired_connection_writes_its_pending_bytes_and_closes_once(make: Make, tls: bool) -> None:
    with make() as rig:
        linked = Linked(rig, tls)
        for _ in range(3):
            linked.write(answered=False)
        assert linked.connection.unwritten
        assert not linked.connection.accepts_requests()
        rig.run(linked.connection.retire)
        rig.settle()
        assert not linked.lost
        linked.peer.reads = True
        rig.until(lambda: linked.peer.ended)
        assert linked.peer.error is None
        assert len(linked.peer.received) == 3 * (SIZE + 8)
        rig.until(lambda: linked.lost)
        assert len(linked.lost) == 1


@over_each_poller
@plain_and_tls
def test_P07_a_response_before_its_request_is_completely_written_closes_the_connection(make: Make, tls: bool) -> None:
    """What is answered gives its memory back, from which the rest would still be written."""
    with make() as rig:
        linked = Linked(rig, tls)
        linked.write()
        linked.peer.send((4).to_bytes(4, "big") + (1).to_bytes(4, "big"))
        rig.until(lambda: linked.outcomes)
        outcome, = linked.outcomes
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.cause, ProtocolError)
        assert "before it was completely written" in str(outcome.cause)


@over_each_poller
@plain_and_tls
def test_unwritten_requests_of_a_broken_connection_are_unknown_and_their_memory_is_released(make: Make, tls: bool) -> None:
    with make() as rig:
        linked = Linked(rig, tls)
        linked.write()
        assert linked.connection._pieces
        linked.peer.reset()
        rig.until(lambda: linked.lost)
        assert not linked.connection._pieces
        assert not linked.connection.unwritten
        outcome, = linked.outcomes
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.cause, DisconnectError)


@over_each_poller
@plain_and_tls
def test_the_answer_that_comes_with_the_end_of_the_connection_counts(make: Make, tls: bool) -> None:
    with make() as rig:
        linked = Linked(rig, tls)
        linked.peer.reads = True
        seen: list[bytes] = []
        linked.connection.reader._on_frame = lambda frame: seen.append(bytes(frame))
        linked.peer.send((4).to_bytes(4, "big") + b"last")
        linked.peer.end()
        rig.until(lambda: linked.lost)
        assert seen == [b"last"]
