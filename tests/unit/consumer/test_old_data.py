"""A consumer of data that clients and brokers before Kafka 0.11 wrote: brokers convert nothing."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer
from pyclient.codec.compression import Compression
from pyclient.codec.encode import encode_batch
from pyclient.errors import CorruptRecordError
from pyclient.testing import FakeCluster
from tests.unit.codec.damage import record, with_records, zigzag
from tests.unit.codec.old_messages import CODECS, message, written
from tests.unit.consumer.stored import T0, reading, store

ROWS = [(1000 + at, b"k%d" % at, b"v%d" % at) for at in range(10)]
VALUES = [row[2] for row in ROWS]
FORMATS = pytest.mark.parametrize(("magic", "codec"), [(magic, codec) for magic in (0, 1) for codec in (Compression.NONE, *CODECS)])
CRCS = pytest.mark.parametrize("check_crcs", [True, False])


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


def store_old(cluster: FakeCluster, magic: int, codec: Compression) -> None:
    """`ROWS` in an old format at the offsets 0 to 9, and a record of today at 10."""
    if codec:
        store(cluster, (written(codec, magic, 0, ROWS), len(ROWS)))
    else:
        store(cluster, *((message(magic, at, *row), 1) for at, row in enumerate(ROWS)))
    store(cluster, (encode_batch([(2000, None, b"new", ())], base_offset=len(ROWS)), 1))


@FORMATS
@CRCS
def test_old_formats_are_read_from_any_offset(cluster: FakeCluster, magic: int, codec: Compression, check_crcs: bool) -> None:
    store_old(cluster, magic, codec)
    expected = [*VALUES, b"new"]
    with Consumer(**reading(cluster, check_crcs=check_crcs)) as consumer:
        consumer.assign([T0])
        for start in (0, 4, 9, 10):
            consumer.seek(T0, start)
            polled = taken(consumer, 11 - start)
            assert [(each.offset, each.value) for each in polled] == list(enumerate(expected))[start:]
            assert [each.timestamp for each in polled[:-1]] == [row[0] if magic else -1 for row in ROWS[start:]]
            assert (consumer.position(T0), consumer.lag()[T0]) == (11, 0)
        consumer.seek(T0, 4)
        assert [each.value for _, each in zip(range(7), consumer, strict=False)] == expected[4:]
        assert consumer.position(T0) == 11


@FORMATS
@CRCS
def test_old_formats_are_read_as_columns_and_by_an_async_consumer(cluster: FakeCluster, magic: int, codec: Compression, check_crcs: bool) -> None:
    store_old(cluster, magic, codec)

    async def test() -> None:
        async with AsyncConsumer(**reading(cluster, check_crcs=check_crcs)) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 4)
            rows: list[Any] = []
            while len(rows) < 7:
                rows += (await consumer.poll(30)).to_arrow().select(["offset", "key", "value"]).to_pylist()
            assert [(row["offset"], row["value"]) for row in rows] == list(enumerate([*VALUES, b"new"]))[4:]
            assert [row["key"] for row in rows] == [*(row[1] for row in ROWS[4:]), None]
            assert (await consumer.position(T0), (await consumer.lag())[T0]) == (11, 0)
            consumer.seek(T0, 9)
            async for each in consumer:
                assert (each.offset, each.value) == (9, b"v9")
                break
            assert await consumer.position(T0) == 10

    asyncio.run(test())


def test_a_position_within_an_old_compressed_message_is_kept_by_small_polls(cluster: FakeCluster) -> None:
    store_old(cluster, 1, Compression.GZIP)
    with Consumer(**reading(cluster, max_poll_records=3)) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 2)
        for end in (5, 8):
            assert [each.offset for each in consumer.poll(30)] == list(range(end - 3, end))
            assert (consumer.position(T0), consumer.lag()[T0]) == (end, 11 - end)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_old_message_stops_the_consumer_at_its_offset(cluster: FakeCluster, magic: int) -> None:
    damaged = bytearray(message(magic, 1, *ROWS[1]))
    damaged[-1] ^= 1
    store(cluster, (message(magic, 0, *ROWS[0]), 1), (bytes(damaged), 1), (message(magic, 2, *ROWS[2]), 1))
    with Consumer(**reading(cluster)) as consumer:
        consumer.assign([T0])
        assert [each.offset for each in consumer.poll(30)] == [0]
        with pytest.raises(CorruptRecordError):
            consumer.poll(30)
        assert consumer.position(T0) == 1
        consumer.seek(T0, 2)
        assert [each.offset for each in consumer.poll(30)] == [2]


def taken(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(30)
    return found


# ---- names of headers -----------------------------------------------------------------------------------------------

NAMES = [b"plain", b"\xff\xfe", b"caf\xe9", "grün".encode()]
SHOWN = ["plain", "\ufffd\ufffd", "caf\ufffd", "grün"]
READERS: list[Callable[[Any], list[tuple[str, bytes]]]] = [
    lambda records: [pair for each in records for pair in each.headers],
    lambda records: [(pair["key"], pair["value"]) for row in records.to_arrow().column("headers").to_pylist() for pair in row],
]


@CRCS
@pytest.mark.parametrize("read", READERS)
def test_names_that_are_not_UTF_8_are_shown_as_Java_shows_them(cluster: FakeCluster, read: Any, check_crcs: bool) -> None:
    headers = b"".join(zigzag(len(name)) + name + zigzag(1) + b"x" for name in NAMES)
    template = encode_batch([(2000, None, b"", ())])
    store(cluster, (with_records(template, record(b"\0\0\0\1\2v" + zigzag(len(NAMES)) + headers)), 1))
    with Consumer(**reading(cluster, check_crcs=check_crcs)) as consumer:
        consumer.assign([T0])
        assert read(consumer.poll(30)) == [(name, b"x") for name in SHOWN]
        assert (consumer.position(T0), consumer.lag()[T0]) == (1, 0)
