"""Channels, plain and with TLS, over each poller: what is read, what is written, and how it ends."""
from __future__ import annotations

import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.reactor.channels import MOST_PIECES, NOTHING, Buffer, PlainChannel, connected
from pyclient.reactor.pollers import READABLE, WRITABLE
from pyclient.reactor.tls_channel import CHUNK, RECEIVED, _take_chunk
from tests.unit.reactor.rigs import Limited, Make, Owner, Peer, Rig, over_each_poller, pair, plain_and_tls, plain_pair, rigs, tcp_pair, tls_pair

FRAMES = b"\0\0\0\5first\0\0\0\6second"
LARGE = random.Random(1).randbytes(1 << 20)
SMALL_BUFFER = 4096


# ---- reading --------------------------------------------------------------------------------------------------------


@over_each_poller
@plain_and_tls
def test_bytes_are_read_whole_whatever_pieces_they_come_in(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        expected = b""
        for split in range(len(wire := peer.encode(FRAMES)) + 1):
            if split:
                wire = peer.encode(FRAMES)
            expected += FRAMES
            peer.send_raw(wire[:split])
            rig.settle()
            peer.send_raw(wire[split:])
            rig.until(lambda: len(owner.read) >= len(expected))  # noqa: B023 called here
            assert owner.read == expected
        assert not owner.over


@over_each_poller
@plain_and_tls
def test_bytes_that_came_before_the_owner_are_read(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        peer.send(FRAMES)
        rig.settle()
        owner = Owner(rig, channel)
        rig.until(lambda: owner.read == FRAMES)


@over_each_poller
@plain_and_tls
def test_a_read_takes_no_more_than_there_is_room_for(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel, room=3000)
        peer.send(LARGE)
        rig.until(lambda: len(owner.read) == len(LARGE))
        assert owner.read == LARGE
        assert max(owner.sizes) <= 3000


@plain_and_tls
def test_a_read_changes_nothing_outside_of_its_room(tls: bool) -> None:
    with rigs()[0].values[0]() as rig:
        channel, peer = pair(rig, tls)
        buffer = bytearray(b"#" * 20)
        peer.send(b"abc")
        rig.until(lambda: rig.run(lambda: channel.read_into(buffer, 10)) != NOTHING)
        assert buffer == b"#" * 10 + b"abc" + b"#" * 7
        assert rig.run(lambda: channel.read_into(buffer, 10)) == NOTHING


class Endless(PlainChannel):
    """A network that is never empty."""

    def __init__(self) -> None:
        pass

    def read_into(self, buffer: bytearray, start: int) -> int:
        return len(buffer) - start


def test_encrypted_bytes_are_received_in_a_buffer_that_grows_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with rigs()[0].values[0]() as rig:
        channel, _ = tls_pair(rig)
        with monkeypatch.context() as patched:
            patched.setattr(channel, "_plain", Endless())
            for _ in range(10):
                assert channel._receive()
        assert len(channel._received) == RECEIVED


# ---- writing --------------------------------------------------------------------------------------------------------


@over_each_poller
@plain_and_tls
def test_what_the_system_refuses_is_written_when_there_is_room_again(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls, buffer=SMALL_BUFFER)
        owner = Owner(rig, channel)
        peer.reads = False
        assert not rig.run(lambda: owner.write(LARGE, b"", b"the end"))
        rig.settle()
        assert owner.pieces
        peer.reads = True
        rig.until(lambda: not owner.pieces and not channel.unwritten)
        rig.until(lambda: len(peer.received) == len(LARGE) + 7)
        assert peer.received == LARGE + b"the end"


@over_each_poller
@plain_and_tls
def test_both_directions_go_on_while_the_other_one_is_full(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls, buffer=SMALL_BUFFER)
        owner = Owner(rig, channel)
        peer.reads = False
        assert not rig.run(lambda: owner.write(LARGE))
        peer.send(FRAMES)
        rig.until(lambda: owner.read == FRAMES)
        assert owner.pieces
        peer.reads = True
        rig.until(lambda: len(peer.received) == len(LARGE))
        assert peer.received == LARGE


def limited(rig: Rig) -> tuple[PlainChannel, Limited, Peer]:
    ours, theirs = tcp_pair()
    sock = Limited(fileno=ours.detach())
    sock.setblocking(False)
    peer = Peer(theirs)
    channel = PlainChannel(rig.reactor, sock)
    rig.peers.append(peer)
    rig.channels.append(channel)
    return channel, sock, peer


PIECES: tuple[Buffer, ...] = (b"abc", b"", bytearray(b"defg"), memoryview(b"hi"))
WHOLE = b"abcdefghi"


@pytest.mark.parametrize("has_sendmsg", [True, False])
@pytest.mark.parametrize("first", range(len(WHOLE) + 1))
def test_a_plain_channel_keeps_what_the_system_refuses_at_every_split(first: int, has_sendmsg: bool) -> None:
    with rigs()[0].values[0]() as rig:
        channel, sock, peer = limited(rig)
        sock.has_sendmsg = has_sendmsg
        for second in range(len(WHOLE) - first + 1):
            peer.received.clear()
            pieces = list(PIECES)
            for allowed in (first, second, len(WHOLE)):
                sock.allowed = allowed
                written = rig.run(lambda: channel.write(pieces))  # noqa: B023 called here
                assert written == (not pieces)
                rig.settle()
                assert bytes(peer.received) + b"".join(pieces) == WHOLE
            assert not pieces


def test_what_a_plain_channel_keeps_is_not_copied() -> None:
    with rigs()[0].values[0]() as rig:
        channel, sock, _ = limited(rig)
        piece = bytearray(b"0123456789")
        pieces: list[Buffer] = [piece]
        sock.allowed = 4
        assert not rig.run(lambda: channel.write(pieces))
        piece[4:6] = b"!!"
        assert bytes(pieces[0]) == b"!!6789"
        with pytest.raises(BufferError):  # it is the very same memory that is to be written
            piece.append(0)


def test_a_tls_channel_keeps_what_the_system_refuses_at_every_split() -> None:
    with rigs()[0].values[0]() as rig:
        channel, peer = tls_pair(rig)
        plain = channel._plain
        assert isinstance(plain, PlainChannel)
        sock = plain.socket = Limited(fileno=plain.socket.detach())
        plain.of_system = False
        sock.setblocking(False)
        size = len(WHOLE) + 22  # of its record in TLS 1.3
        for allowed in range(size + 2):
            peer.received.clear()
            pieces = list(PIECES)
            sock.allowed = allowed
            written = rig.run(lambda: channel.write(pieces))  # noqa: B023 called here
            assert not pieces, "small pieces are joined to one record"
            assert written == (allowed >= size)
            assert channel.unwritten == (not written)
            sock.allowed = 1
            later: list[Buffer] = [b"!"]
            assert not rig.run(lambda: channel.write(later))  # noqa: B023 called here
            sock.allowed = 1 << 20
            assert rig.run(lambda: channel.write(later))  # noqa: B023 called here
            rig.until(lambda: len(peer.received) >= len(WHOLE) + 1)
            assert peer.received == WHOLE + b"!"


sizes = st.lists(st.integers(0, 40) | st.integers(20_000, 90_000) | st.integers(CHUNK - 2, CHUNK + 2), max_size=12)


@plain_and_tls
@settings(max_examples=20)
@given(writes=st.lists(sizes, max_size=4), buffer=st.sampled_from([0, SMALL_BUFFER]))
def test_pieces_arrive_whole_and_in_order_whatever_the_system_takes(writes: list[list[int]], buffer: int, tls: bool) -> None:
    with rigs()[0].values[0]() as rig:
        channel, peer = pair(rig, tls, buffer=buffer)
        owner, whole = Owner(rig, channel), b""
        for each in writes:
            pieces = [bytearray(random.Random(at).randbytes(size)) for at, size in enumerate(each)]
            whole += b"".join(pieces)
            rig.run(lambda: owner.write(*pieces))  # noqa: B023 called here
            rig.settle()
        rig.until(lambda: len(peer.received) >= len(whole))
        assert peer.received == whole
        assert not owner.pieces
        assert not channel.unwritten


def test_more_pieces_than_one_call_takes_arrive() -> None:
    with rigs()[0].values[0]() as rig:
        channel, peer = plain_pair(rig)
        count = 3 * MOST_PIECES + 1
        assert rig.run(lambda: channel.write([bytes([at % 256]) for at in range(count)]))
        rig.until(lambda: len(peer.received) == count)
        assert peer.received == bytes(at % 256 for at in range(count))


def test_no_dump_of_local_variables_shows_what_is_encrypted() -> None:
    """A first message may be a login."""
    chunk = _take_chunk([b"\0\0\0\x09", b"marker", b"abc"])
    assert bytes(chunk) == b"\0\0\0\x09markerabc"
    assert "marker" not in repr(chunk)


@settings(max_examples=30)
@given(given_sizes=sizes)
def test_P07_a_chunk_of_limited_size_is_taken_in_order_and_the_rest_is_not_copied(given_sizes: list[int]) -> None:
    pieces: list[Buffer] = [bytearray(random.Random(at).randbytes(size)) for at, size in enumerate(given_sizes)]
    whole, taken = b"".join(pieces), b""
    while pieces:
        chunk = _take_chunk(pieces)
        assert len(chunk) <= CHUNK
        assert len(chunk) == CHUNK or not pieces
        taken += chunk
    assert taken == whole


def test_a_tls_channel_encrypts_no_more_than_a_chunk_ahead_of_the_system() -> None:
    with rigs()[0].values[0]() as rig:
        channel, peer = tls_pair(rig, buffer=SMALL_BUFFER)
        peer.reads = False
        pieces: list[Buffer] = [LARGE]
        assert not rig.run(lambda: channel.write(pieces))
        assert channel.unwritten
        assert sum(map(len, channel._encrypted)) < 1.01 * CHUNK
        assert len(pieces[0]) >= len(LARGE) - 2 * CHUNK


# ---- the end --------------------------------------------------------------------------------------------------------


@over_each_poller
@plain_and_tls
def test_the_end_is_seen_that_comes_with_the_last_bytes(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        rig.settle()
        peer.send(FRAMES)
        peer.end()
        rig.until(lambda: owner.ended)
        assert owner.read == FRAMES


@over_each_poller
@plain_and_tls
def test_the_end_is_seen_that_comes_behind_the_last_bytes(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        peer.send(FRAMES)
        rig.until(lambda: owner.read == FRAMES)
        peer.end()
        rig.until(lambda: owner.ended)


@over_each_poller
@plain_and_tls
def test_a_peer_that_has_closed_its_half_still_gets_what_is_written(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls, buffer=SMALL_BUFFER)
        owner = Owner(rig, channel)
        peer.reads = False
        assert not rig.run(lambda: owner.write(LARGE))
        peer.end()
        rig.until(lambda: owner.ended)
        peer.reads = True
        rig.until(lambda: len(peer.received) == len(LARGE))
        assert peer.received == LARGE


@over_each_poller
@plain_and_tls
def test_a_broken_connection_is_an_error(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        rig.settle()
        peer.reset()
        rig.until(lambda: owner.over)
        assert isinstance(owner.error, ConnectionResetError)
        with pytest.raises(OSError, match=r"."):
            rig.run(lambda: channel.write([b"never"]))


@over_each_poller
@plain_and_tls
@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_closed_channel_reports_nothing_more_and_may_be_closed_again(make: Make, tls: bool, how: str) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        rig.settle()
        rig.run(getattr(channel, how))
        before = list(owner.events)
        rig.until(lambda: peer.ended)
        for again in ("close", "abort", "close"):
            rig.run(getattr(channel, again))
        rig.run(lambda: channel.set_low_water(1))
        rig.settle()
        assert owner.events == before


@over_each_poller
@plain_and_tls
def test_an_idle_channel_reports_nothing(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        peer.send(FRAMES)
        rig.until(lambda: owner.read == FRAMES)
        rig.settle()
        before = list(owner.events)
        for _ in range(5):
            rig.settle()
        assert owner.events == before


@over_each_poller
def test_an_event_that_a_sleeper_has_got_is_not_reported_to_a_channel_that_was_closed_meanwhile(make: Make) -> None:
    with make() as rig:
        channels = [plain_pair(rig) for _ in range(2)]
        reported: list[int] = []

        def close_both(events: int) -> None:
            reported.append(events)
            for channel, _ in channels:
                channel.close()

        for channel, _ in channels:
            rig.run(lambda: channel.attach(lambda _: None))  # noqa: B023 called here
        rig.settle()
        for channel, peer in channels:
            channel.on_events = close_both
            peer.send(FRAMES)
        rig.until(lambda: all(peer.ended for _, peer in channels))
        assert len(reported) == 1


@over_each_poller
@plain_and_tls
def test_what_was_written_before_a_close_leaves(make: Make, tls: bool) -> None:
    with make() as rig:
        channel, peer = pair(rig, tls)
        owner = Owner(rig, channel)
        rig.settle()
        assert rig.run(lambda: owner.write(LARGE[:50_000]))
        rig.run(channel.close)
        rig.until(lambda: peer.ended)
        assert peer.error is None
        assert peer.received == LARGE[:50_000]
        assert peer.notified == tls


# ---- connecting -----------------------------------------------------------------------------------------------------


def nonblocking() -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    return sock


@over_each_poller
def test_a_socket_is_connected(make: Make) -> None:
    with make() as rig, socket.create_server(("127.0.0.1", 0)) as server:
        channel = rig.call(lambda: connected(rig.reactor, nonblocking(), server.getsockname()))
        rig.channels.append(channel)
        theirs, _ = server.accept()
        peer = Peer(theirs)
        rig.peers.append(peer)
        owner = Owner(rig, channel)
        peer.send(FRAMES)
        rig.until(lambda: owner.read == FRAMES)
        assert READABLE | WRITABLE in owner.events


@over_each_poller
def test_a_refused_connection_raises_and_leaves_no_socket(make: Make) -> None:
    sock = nonblocking()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with make() as rig, pytest.raises(ConnectionRefusedError):
        rig.call(lambda: connected(rig.reactor, sock, address))
    assert sock.fileno() == -1


@over_each_poller
def test_a_connection_that_fails_at_once_raises_and_leaves_no_socket(make: Make) -> None:
    sock = nonblocking()
    with make() as rig, pytest.raises(OSError, match=r"\d"):
        rig.call(lambda: connected(rig.reactor, sock, ("255.255.255.255", 9092)))
    assert sock.fileno() == -1


def full() -> tuple[socket.socket, list[socket.socket]]:
    """A listener that answers no further connection, and those that it has."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    waiting = [nonblocking() for _ in range(8)]
    for each in waiting:
        each.connect_ex(server.getsockname())
    return server, waiting


@over_each_poller
def test_connecting_that_is_cancelled_leaves_no_socket(make: Make) -> None:
    server, waiting = full()
    sock = nonblocking()
    with make() as rig:
        task = rig.start(lambda: connected(rig.reactor, sock, server.getsockname()))
        rig.settle()
        assert not task.done()
        rig.run(task.cancel)
        rig.until(task.done)
        assert task.cancelled()
        assert sock.fileno() == -1
    for each in (server, *waiting):
        each.close()
