"""What the system alone takes for what a service asks: one blocking socket, requests encoded once, no client around it.

A client in Python cannot cost less. It is no client: it knows one broker, no group, no deadline and no error. Where a
user is needed it logs in with PLAIN: no mechanism costs a record anything.
"""
from __future__ import annotations

import datetime
import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

from benchmarks._access import OPEN, Access
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

    def __init__(self, bootstrap: str, to: Access = OPEN) -> None:
        self._socket = connected(bootstrap, to.get("ca"))
        self.correlation_id = 0
        if "user" in to:
            self._log_in(to["user"], to["password"])

    def close(self) -> None:
        self._socket.close()

    def _log_in(self, user: str, password: str) -> None:
        self.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        answer = self.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{password}".encode())
        if answer.error_code:
            raise RuntimeError(f"one socket: {answer.error_message}")

    def next_id(self) -> int:
        self.correlation_id += 1
        return self.correlation_id

    def ask(self, api: Api, version: int, **fields: object) -> Any:
        request = encode_request(api, version, self.next_id(), None, fields)
        return decode_response(api, version, memoryview(self.exchange(len(request).to_bytes(4, "big") + request))[4:])

    def exchange(self, frame: bytes | bytearray) -> bytes:
        """Write a request with its size; its answer, its size included."""
        self.write(frame)
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


def connected(bootstrap: str, ca: str | None) -> socket.socket:
    """A blocking socket; over TLS if there is an authority."""
    host, port = bootstrap.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if ca is None else ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname=host)


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


def produce(topic: str, values: Mapping[int, list[bytes]]) -> bytes:
    """A request with a batch for each of the topic's partitions in *values*."""
    batches = [{"index": partition, "records": encode_batch([(0, None, value, ()) for value in those])} for partition, those in values.items()]
    return framed(Api.PRODUCE, PRODUCE_VERSION, {
        "transactional_id": None, "acks": -1, "timeout": datetime.timedelta(seconds=30), "topic_data": [{"name": topic, "partition_data": batches}]})


def check_stored(answer: bytes) -> None:
    """Raises unless the broker has stored all batches of the request."""
    found = decode_response(Api.PRODUCE, PRODUCE_VERSION, memoryview(answer)[4:])
    if codes := [part.error_code for topic in found.responses for part in topic.partition_responses if part.error_code]:
        raise RuntimeError(f"one socket: the broker refused a batch with error codes {codes}")
