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
from pyclient.codec.messages import Message, decode_response, encode_request

FETCH_VERSION: Final = 12
"""The last with topics' names."""
PRODUCE_VERSION: Final = 9
MIB: Final = 2**20


class OneSocket:
    """A connection to the broker that leads every partition."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answered_within(self, seconds: float) -> bytes | None:
        """The next response, None if none has begun to arrive."""
        if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            return None
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        return self._socket.recv(size, socket.MSG_WAITALL)


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

    connection.send(fetch(0))
    answer = connection.answered_within(10.0)
    assert answer is not None, "no answer to a fetch"
    found: Message = decode_response(Api.FETCH, FETCH_VERSION, memoryview(answer))
    return fetch(found.responses[0].partitions[0].high_watermark)


def poll(connection: OneSocket, fetch: bytes, seconds: float) -> None:
    """What an idle consumer's `poll` does: the fetch is sent again whenever it is answered."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if connection.answered_within(left) is not None:
            connection.send(fetch)


def produce(topic: str, values: list[bytes]) -> bytes:
    """A request with one batch for the topic's partition 0."""
    records = encode_batch([(0, None, value, ()) for value in values])
    return framed(Api.PRODUCE, PRODUCE_VERSION, {
        "transactional_id": None, "acks": -1, "timeout": datetime.timedelta(seconds=30),
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]})
