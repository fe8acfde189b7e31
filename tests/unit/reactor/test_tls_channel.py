"""TLS handshakes over each poller: in pieces, refused, cut, silent and cancelled."""
from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.reactor.channels import PlainChannel
from pyclient.reactor.pollers import WRITABLE
from pyclient.runtime.network import Endpoint, SocketNetwork, SocketOptions, secured
from pyclient.testing import CertificateAuthority
from tests.unit.reactor.rigs import (
    MUCH, Limited, Make, Owner, Peer, Rig, TlsPeer, over_each_poller, rigs, tcp_pair, tls_pair, tls_parameters, tls_server,
)

HELLO = b"\0\0\0\5hello"


@over_each_poller
def test_a_handshake_may_come_in_small_pieces_and_what_follows_byte_by_byte(make: Make) -> None:
    with make() as rig:
        plain, peer = tls_server(rig)
        peer.most = 11
        channel = rig.call(lambda: secured(rig.reactor, plain, tls_parameters()))
        peer.most = 1
        assert channel.peer_certificate()["subject"]
        owner = Owner(rig, channel)
        rig.run(lambda: owner.write(HELLO))
        rig.until(lambda: peer.received == HELLO)
        peer.send(HELLO)
        rig.until(lambda: owner.read == HELLO)


@pytest.mark.parametrize("allowed", [0, 1, 5, 6, 100, 500])
def test_a_handshake_goes_on_when_the_system_takes_its_bytes_again(allowed: int) -> None:
    with rigs()[0].values[0]() as rig:
        plain, peer = tls_server(rig)
        sock = plain.socket = Limited(fileno=plain.socket.detach())
        plain.of_system = False
        sock.setblocking(False)
        sock.allowed = allowed
        task = rig.start(lambda: secured(rig.reactor, plain, tls_parameters()))
        rig.settle()
        assert not peer.shaken
        sock.allowed = 1 << 20
        rig.run(lambda: plain.on_events(WRITABLE))
        rig.until(task.done)
        channel = task.result()
        rig.until(lambda: peer.shaken)
        assert rig.run(lambda: channel.write([HELLO]))
        rig.until(lambda: peer.received == HELLO)


# ---- failures -------------------------------------------------------------------------------------------------------


@over_each_poller
def test_a_certificate_that_is_not_trusted_is_refused_and_the_peer_learns_why(make: Make) -> None:
    with make() as rig:
        plain, peer = tls_server(rig, CertificateAuthority().server_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            rig.call(lambda: secured(rig.reactor, plain, tls_parameters()))
        rig.until(lambda: peer.refused)
        assert "UNKNOWN_CA" in str(peer.refused)


class Broken(Limited):
    """A socket whose peer is gone once the first flight is sent."""

    def send(self, data: Any, *_: Any) -> int:
        if not self.allowed:
            raise BrokenPipeError
        self.allowed = 0
        return super(Limited, self).send(data)


def test_the_reason_of_a_failed_handshake_is_raised_even_to_a_peer_that_has_hung_up() -> None:
    with rigs()[0].values[0]() as rig:
        plain, _ = tls_server(rig, CertificateAuthority().server_context())
        sock = plain.socket = Broken(fileno=plain.socket.detach())
        plain.of_system = False
        sock.setblocking(False)
        sock.allowed = 1
        with pytest.raises(ssl.SSLCertVerificationError):
            rig.call(lambda: secured(rig.reactor, plain, tls_parameters()))


@over_each_poller
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100), b"\x15\x03\x03\x00\x02\x02\x50"], ids=["HTTP", "zeros", "alert"])
def test_a_peer_that_does_not_agree_is_an_error(make: Make, said: bytes) -> None:
    with make() as rig:
        plain, tls_peer = tls_server(rig)
        rig.peers = [peer := Peer(tls_peer.sock)]
        peer.send(said)
        with pytest.raises(ssl.SSLError):
            rig.call(lambda: secured(rig.reactor, plain, tls_parameters()))


class Cut(TlsPeer):
    """Ends the stream behind so many bytes of its own."""

    def __init__(self, sock: socket.socket, after: int, how: str) -> None:
        super().__init__(sock)
        self._left, self._how = after, how
        self.most = 1

    def pump(self) -> None:
        if self.sock.fileno() >= 0 and self._left >= 0:
            self.most = MUCH
            unsent, self._unsent = self._unsent, bytearray()
            super().pump()
            unsent += self._unsent
            self._unsent = bytearray()
            sent = bytes(unsent[:self._left])
            self._left -= len(sent)
            self.sock.send(sent)
            if not self._left:
                self._left = -1
                getattr(self, self._how)()

    def _take(self, data: bytes) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._incoming.write(data)
            self.tls.do_handshake()
        self._unsent += self._outgoing.read()


@over_each_poller
@pytest.mark.parametrize("how", ["cut", "reset"])
def test_a_handshake_that_is_cut_anywhere_is_an_error(make: Make, how: str) -> None:
    with make() as rig:
        for after in (1, 4, 5, 6, 90, 127, 128, 400, 700):
            ours, theirs = tcp_pair()
            rig.peers.append(Cut(theirs, after, how))
            plain = rig.run(lambda: PlainChannel(rig.reactor, ours))  # noqa: B023 called here
            rig.channels.append(plain)
            with pytest.raises(OSError, match=r"EOF|reset|Broken"):
                rig.call(lambda: secured(rig.reactor, plain, tls_parameters()))  # noqa: B023 called here


@over_each_poller
def test_a_stream_that_ends_without_a_last_word_is_cut_and_not_ended(make: Make) -> None:
    with make() as rig:
        channel, peer = tls_pair(rig)
        owner = Owner(rig, channel)
        peer.send(HELLO)
        peer.cut()
        rig.until(lambda: owner.over)
        assert owner.read == HELLO
        assert isinstance(owner.error, ssl.SSLEOFError)


# ---- sockets --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, Endpoint]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, Endpoint(socket.AF_INET, server.getsockname())


def accepted(rig: Rig, server: socket.socket) -> Peer:
    sock, _ = server.accept()
    rig.peers.append(peer := Peer(sock))
    return peer


@over_each_poller
def test_a_silent_peer_is_given_up_in_time_and_its_socket_is_closed(make: Make) -> None:
    network = SocketNetwork()
    with make() as rig, listening() as (server, endpoint):
        task = rig.start(lambda: network.open(rig.reactor, endpoint, SocketOptions(), tls_parameters(timeout=0.05)))
        peer = accepted(rig, server)
        rig.until(task.done)
        with pytest.raises(ConnectionAbortedError, match=r"longer than 0\.1 s|longer than 0\.0 s"):
            task.result()
        rig.until(lambda: peer.ended)
    assert all(each.fileno() == -1 for each in network._sockets)


@over_each_poller
def test_a_handshake_that_is_cancelled_leaves_no_socket(make: Make) -> None:
    network = SocketNetwork()
    with make() as rig, listening() as (server, endpoint):
        task = rig.start(lambda: network.open(rig.reactor, endpoint, SocketOptions(), tls_parameters()))
        peer = accepted(rig, server)
        rig.until(lambda: peer.received)
        rig.run(task.cancel)
        rig.until(task.done)
        assert task.cancelled()
        rig.until(lambda: peer.ended)
    assert all(each.fileno() == -1 for each in network._sockets)


@over_each_poller
@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_channel_may_be_closed_during_its_handshake(make: Make, how: str) -> None:
    with make() as rig:
        plain, tls_peer = tls_server(rig)
        rig.peers = [peer := Peer(tls_peer.sock)]
        task = rig.start(lambda: secured(rig.reactor, plain, tls_parameters()))
        rig.until(lambda: peer.received)
        rig.run(getattr(plain, how))
        rig.until(lambda: peer.ended)
        rig.settle()
        rig.run(task.cancel)
        rig.until(task.done)
        assert task.cancelled()
