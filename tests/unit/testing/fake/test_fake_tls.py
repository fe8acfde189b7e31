"""A fake cluster with TLS: whole clients, sync and async, with large batches, client certificates and renewed files."""
from __future__ import annotations

import asyncio
import functools
import socket
import time
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import SslAuthenticationError
from pyclient.testing import CertificateAuthority, FakeCluster
from tests.waiting import eventually

PARTITION: Final = TopicPartition("t", 0)


@functools.cache
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SSL", "ssl_truststore_certificates": authority().pem, **more}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_batches_arrive_and_are_read_by_sync_clients(version: str) -> None:
    values = [bytes([number]) * 700_000 for number in range(40)]
    with FakeCluster(3, tls=authority().server_context()) as kafka:
        kafka.create_topic("t", partitions=1)
        with Producer(**options(kafka, ssl_enabled_protocols=version, batch_size=1_000_000)) as producer:
            for value in values:
                producer.send("t", value)
        with Consumer(**options(kafka, ssl_enabled_protocols=version, auto_offset_reset="earliest", fetch_max_bytes=50_000_000,
                                max_partition_fetch_bytes=20_000_000)) as consumer:
            consumer.assign([PARTITION])
            read: list[bytes | None] = []
            while len(read) < len(values):
                read += [record.value for record in consumer.poll(5.0)]
    assert read == values


def test_async_clients_of_a_group_work_with_a_certificate_of_their_own() -> None:
    shown = authority().issue()

    async def steps(kafka: FakeCluster) -> None:
        given = options(kafka, ssl_keystore_certificate_chain=shown.chain, ssl_keystore_key=shown.key)
        async with AsyncProducer(**given) as producer:
            for number in range(1000):
                await producer.send("t", b"%d" % number)
        async with AsyncConsumer(topics=["t"], **given, group_id="g", auto_offset_reset="earliest") as consumer:
            read: list[bytes | None] = []
            while len(read) < 1000:
                read += [record.value for record in await consumer.poll(5.0)]
            await consumer.commit()
        assert read == [b"%d" % number for number in range(1000)]

    with FakeCluster(2, tls=authority().server_context(clients=authority())) as kafka:
        kafka.create_topic("t", partitions=1)
        asyncio.run(steps(kafka))
        assert kafka.committed("g")[PARTITION].offset == 1000


def test_with_acks_0_nothing_is_lost_by_closing_and_closing_takes_no_longer() -> None:
    with FakeCluster(tls=authority().server_context()) as kafka:
        kafka.create_topic("t", partitions=1)
        with Producer(**options(kafka, acks=0, enable_idempotence=False)) as producer:
            for number in range(300):
                producer.send("t", b"%d" % number + bytes(100_000))
            began = time.monotonic()
        assert time.monotonic() - began < 5
        eventually(lambda: len(kafka.records("t")) == 300)
        assert [int((record.value or b"").rstrip(b"\0")) for record in kafka.records("t")] == list(range(300))


def test_with_acks_0_what_waits_below_tls_is_written_too() -> None:
    """Less than a gulp: TLS has handed all of it on, the kernel has taken a part."""
    with FakeCluster(tls=authority().server_context()) as kafka:
        kafka.create_topic("t", partitions=1)
        with Producer(**options(kafka, acks=0, enable_idempotence=False, send_buffer_bytes=4096, linger_ms=60_000)) as producer:
            producer.send("t", bytes(90_000))
        eventually(lambda: len(kafka.records("t")) == 1, 5.0)


def test_an_untrusted_certificate_is_an_error_at_once() -> None:
    with (FakeCluster(tls=CertificateAuthority().server_context()) as kafka, Producer(**options(kafka)) as producer,
          pytest.raises(SslAuthenticationError, match="not signed by an authority that this client trusts")):
        producer.send("t", b"")


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """The broker trusts the next authority only from its restart on; the client's file has changed by then."""
    store = tmp_path / "client.pem"
    before, after = CertificateAuthority(), CertificateAuthority()

    def put(signed_by: CertificateAuthority) -> None:
        issued = signed_by.issue()
        store.write_text(issued.chain + issued.key)

    put(before)
    server = authority().server_context(clients=before)
    with FakeCluster(tls=server) as kafka:
        kafka.create_topic("t", partitions=1)
        with Producer(**options(kafka, ssl_keystore_location=str(store))) as producer:
            producer.send("t", b"1").result(10)
            server.load_verify_locations(cadata=after.pem)
            put(after)
            kafka.kill(1)
            kafka.restart(1)
            producer.send("t", b"2").result(20)
    assert [record.value for record in kafka.records("t")] == [b"1", b"2"]


def test_a_cluster_ends_while_clients_are_busy_with_tls() -> None:
    with FakeCluster(tls=authority().server_context()) as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        stuck = [socket.create_connection((host, int(port))) for _ in range(3)]
        stuck[1].sendall(b"\x16\x03\x01")
        stuck[2].sendall(b"GET / HTTP/1.0\r\n\r\n")
        began = time.monotonic()
    assert time.monotonic() - began < 5
    for each in stuck:
        each.close()


def test_a_killed_broker_that_speaks_tls_comes_back() -> None:
    with FakeCluster(tls=authority().server_context()) as kafka:
        kafka.create_topic("t", partitions=1)
        with Producer(**options(kafka)) as producer:
            producer.send("t", b"1").result(10)
            kafka.kill(1)
            waiting = producer.send("t", b"2")
            kafka.restart(1)
            assert waiting.result(20).offset == 1
