from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.testing import probe
from pyclient.testing.common.errors import BrokerStartError
from pyclient.testing.fake.cluster import FakeCluster
from pyclient.testing.probe import NotReadyError, Replication, discover, one_record_batch, wait_until_ready


def nothing() -> None:
    pass


@given(st.binary(max_size=50))
def test_the_probes_batch_states_its_true_length_and_checksum(value: bytes) -> None:
    batch = one_record_batch(value)
    _, length, _, magic, checksum = struct.unpack_from(">qiibI", batch)
    assert (length, magic, checksum) == (len(batch) - 12, 2, crc32c.crc32c(batch[21:]))
    assert batch.endswith(value + b"\x00")


@pytest.mark.parametrize(("leader", "isr", "expected", "lags"), [
    (1, {1, 2, 3}, {1, 2, 3}, False),
    (1, {1, 2}, {1, 2, 3}, True),
    (1, {1, 2}, {2}, False),  # another broker is down, this one is back
    (-1, {1, 2, 3}, {1}, True),
    (2, {2, 3}, {4}, False),  # no replica there
])
def test_a_partition_lags_without_leader_or_when_an_expected_replica_is_out_of_sync(
    leader: int, isr: set[int], expected: set[int], lags: bool
) -> None:
    assert Replication("t", 0, leader, frozenset({1, 2, 3}), frozenset(isr)).lags(expected) is lags


@contextlib.contextmanager
def listener(behave: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A server that is no broker: *behave* is what it does with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65536)
                        behave(connection)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[:2]
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join(10)


@pytest.mark.parametrize(("behave", "said"), [
    (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not a plaintext Kafka listener"),
    (lambda connection: connection.sendall(b"\x00\x00\x00\x08\x00"), "closed the connection"),
    (lambda connection: None, "closed the connection"),
])
def test_another_server_is_reported_with_its_answer(behave: Callable[[socket.socket], None], said: str) -> None:
    with listener(behave) as address, pytest.raises(TimeoutError, match=said):
        wait_until_ready({1: address}, timeout_s=0.1, alive=nothing)


def test_waiting_ends_at_once_when_a_broker_has_died() -> None:
    def dead() -> None:
        raise BrokerStartError("broker 1 ended")

    with pytest.raises(BrokerStartError, match="broker 1 ended"):
        wait_until_ready({1: ("127.0.0.1", 1)}, timeout_s=600, alive=dead)


def test_another_clusters_broker_on_the_port_is_not_ready(fake_cluster: FakeCluster) -> None:
    host, _, port = fake_cluster.bootstrap_servers.partition(":")
    with pytest.raises(NotReadyError, match="belongs to the cluster .*, not to ours"):
        probe._expect_cluster([(host, int(port))], "ours", 20)


def test_discovery_names_every_address_and_why_it_failed() -> None:
    with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:1: .*refused.*127\.0\.0\.1:2: .*refused"):
        discover([("127.0.0.1", 1), ("127.0.0.1", 2)], timeout_s=0.0)


def test_a_reply_larger_than_any_true_one_is_not_read() -> None:
    frame = struct.pack(">i", probe.MAX_REPLY_BYTES + 1)
    with listener(lambda connection: connection.sendall(frame)) as address, pytest.raises(TimeoutError, match="frame of"):
        discover([address], timeout_s=0.0)
