"""TCP peers that follow a script, byte by byte: what no real broker does, or does too rarely."""
from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

Talk = Callable[[socket.socket], None]


class Peer:
    """Listens, and talks to each connection as scripted, in a thread of its own."""

    def __init__(self, talk: Talk, *, host: str = "127.0.0.1") -> None:
        self._talk = talk
        self._server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._host, self.port = self._server.getsockname()[:2]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.connections = 0
        self._main = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        """As users write it; the same after the end."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    def __enter__(self) -> Self:
        self._main.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._sockets:
            _hang_up(each)
        for thread in [self._main, *self._threads]:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=[connection], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._talk(connection)
            except (OSError, EOFError):
                return


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def request(connection: socket.socket) -> tuple[int, int, int]:
    """Read one request: (API key, version, correlation id)."""
    size, = struct.unpack(">i", exactly(connection, 4))
    key, version, correlation_id = struct.unpack(">hhi", exactly(connection, size)[:8])
    return key, version, correlation_id


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def answer(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def silence(connection: socket.socket) -> None:
    """Take everything, say nothing, until the other side has enough."""
    while connection.recv(65536):
        pass


API_VERSIONS = 18
METADATA = 3
OLD_BROKER = struct.pack(">h", 0) + struct.pack(">i", 3) + struct.pack(">hhh", 18, 0, 0) + struct.pack(">hhh", 3, 0, 1) \
    + struct.pack(">hhh", 19, 0, 1)
"""An ApiVersions answer in version 0: ApiVersions 0, Metadata 0-1 and CreateTopics 0-1 are spoken."""


def metadata_v1(host: str, port: int) -> bytes:
    """A cluster of one broker without topics."""
    name = host.encode()
    return (struct.pack(">i", 1) + struct.pack(">ih", 1, len(name)) + name + struct.pack(">ih", port, -1)
            + struct.pack(">i", 1) + struct.pack(">i", 0))
