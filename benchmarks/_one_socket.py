"""What the system alone takes for what a service asks: one blocking socket, requests encoded once, no client around it.

A client in Python cannot cost less. It is no client: it knows one broker, no group, no deadline and no error.
"""
from __future__ import annotations

import datetime
import select
import socket
import time
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.codec.encode import encode_batch
from pyclient.codec.messages import decode_response, encode_request

FETCH_VERSION: Final = 12
"""The last with topics' names."""
PRODUCE_VERSION: Final = 9
MIB: Final = 2**20
MOST: Final = 1 << 16


class OneSocket:
    """A blocking connection to the broker that leads every partition, and coordinates everything."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def next_id(self) -> int:
        self.correlation_id += 1
        return self.correlation_id

    def ask(self, api: Api, version: int, **fields: object) -> Any:
        frame = encode_request(api, version, self.next_id(), None, fields)
        return decode_response(api, version, memoryview(self.exchange([frame]))[4:])

    def exchange(self, pieces: list[Any]) -> bytes:
        """Write a request in *pieces*; its answer, its size included."""
        size = sum(map(len, pieces))
        self._socket.sendmsg([size.to_bytes(4, "big"), *pieces])  # blocks until all is taken
        return self.read()

    def read(self) -> bytes:
        """The next answer, its size included."""
        answer = self._socket.recv(MOST)
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += self._socket.recv(MOST)
        return answer

    def read_within(self, seconds: float) -> bytes | None:
        """As `read`; None if nothing comes."""
        return self.read() if select.select([self._socket], [], [], max(0.0, seconds))[0] else None

    def write(self, frame: bytes | bytearray) -> None:
        """A request with its size."""
        self._socket.sendall(frame)


def framed(api: Api, version: int, fields: dict[str, Any]) -> bytes:
    request = encode_request(api, version, 1, "one socket", fields)
    return len(request).to_bytes(4, "big") + request


def fetch_at_the_end(connection: OneSocket, topic: str) -> bytes:
    """A fetch of the topic's partition 0, from where the log ends, that waits for half a second."""
    def fetch(offset: int) -> bytes:
        partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1,
                     "partition_max_bytes": MIB}
        return framed(Api.FETCH, FETCH_VERSION, {
            "cluster_id": None, "replica_id": -1, "max_wait": datetime.timedelta(seconds=0.5), "min_bytes": 1, "max_bytes": MIB,
            "isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [partition]}],
            "forgotten_topics_data": [], "rack_id": ""})

    connection.write(fetch(0))
    found = decode_response(Api.FETCH, FETCH_VERSION, memoryview(connection.read())[4:])
    return fetch(found.responses[0].partitions[0].high_watermark)


def poll(connection: OneSocket, fetch: bytes, seconds: float) -> None:
    """What an idle consumer's `poll` does: the fetch is sent again whenever it is answered."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if connection.read_within(left) is not None:
            connection.write(fetch)


def produce(topic: str, values: list[bytes]) -> bytes:
    """A request with one batch for the topic's partition 0."""
    records = encode_batch([(0, None, value, ()) for value in values])
    return framed(Api.PRODUCE, PRODUCE_VERSION, {
        "transactional_id": None, "acks": -1, "timeout": datetime.timedelta(seconds=30),
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]})
