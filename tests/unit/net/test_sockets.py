"""The options of sockets to brokers."""
from __future__ import annotations

import errno
import socket

import pytest

from pyclient.runtime.network import KEEPALIVE, SocketOptions, tune


class _Allows(socket.socket):
    """A socket of a system that refuses buffers above a size, as FreeBSD and macOS do."""

    allowed = 300_000

    def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
        if option == socket.SO_SNDBUF and value > self.allowed:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        super().setsockopt(level, option, value)


@pytest.mark.parametrize("allowed", [300_000, 0])
def test_a_socket_buffer_that_the_system_refuses_is_as_large_as_it_allows(allowed: int) -> None:
    with _Allows() as sock:
        sock.allowed = allowed
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        tune(sock, SocketOptions(send_buffer=1_000_000))
        after = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert after == before if not allowed else after in (250_000, 500_000)  # Linux doubles the value


def test_a_socket_is_probed_before_a_balancer_forgets_its_connection() -> None:
    with socket.socket() as sock:
        tune(sock, SocketOptions())
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        found = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name, _ in KEEPALIVE if hasattr(socket, name)}
    assert found
    assert found == {name: value for name, value in KEEPALIVE if name in found}
