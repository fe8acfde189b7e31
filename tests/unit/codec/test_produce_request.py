"""Produce requests: written as kio writes them, byte for byte, without copying a record."""
from __future__ import annotations

import datetime
import typing
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.produce import TOPIC_IDS_SINCE, Buffer, PartitionRecords, encode_produce
from tests.unit.codec.test_messages import kios_request

PIECES = st.lists(st.binary(max_size=200), max_size=3)
PARTITIONS = st.lists(st.builds(PartitionRecords, st.integers(0, 2**31 - 1), PIECES), max_size=3)
NAMED = st.dictionaries(st.text("abc-é", max_size=200), PARTITIONS, max_size=3)
BY_ID = st.dictionaries(st.uuids(), PARTITIONS, max_size=3)
VERSIONS = range(SPOKEN[Api.PRODUCE].low, SPOKEN[Api.PRODUCE].high + 1)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data(), acks=st.sampled_from([-1, 0, 1]), timeout_ms=st.integers(0, 2**31 - 1),
       client_id=st.none() | st.just("client"), transactional_id=st.none() | st.just("tx-é"))
def test_the_pieces_joined_are_what_kio_writes(
    version: int, data: st.DataObject, acks: int, timeout_ms: int, client_id: str | None, transactional_id: str | None
) -> None:
    topics: Any = data.draw(BY_ID if version >= TOPIC_IDS_SINCE else NAMED)
    pieces = encode_produce(version, 7, client_id, acks=acks, timeout_ms=timeout_ms, topics=topics, transactional_id=transactional_id)
    assert b"".join(pieces) == kios_request(
        Api.PRODUCE, version, 7, client_id, entity(version, acks, timeout_ms, topics, transactional_id))


def entity(version: int, acks: int, timeout_ms: int, topics: Any, transactional_id: str | None) -> Any:
    """The same request as a kio entity."""
    request: Any = load_request_schema(Api.PRODUCE, version)
    topic_class = item_class(request, "topic_data")
    partition_class = item_class(topic_class, "partition_data")
    name = "topic_id" if version >= TOPIC_IDS_SINCE else "name"
    return request(
        transactional_id=transactional_id, acks=acks, timeout=datetime.timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            topic_class(**{name: topic}, partition_data=tuple(
                partition_class(index=each.partition, records=b"".join(each.pieces)) for each in partitions))
            for topic, partitions in topics.items()))


def item_class(schema: Any, name: str) -> Any:
    """Of ``tuple[X, ...]``, the X."""
    return typing.get_args(typing.get_type_hints(schema)[name])[0]


@pytest.mark.parametrize("version", [3, 12, 13])
def test_record_bytes_are_passed_on_and_not_copied(version: int) -> None:
    batch: list[Buffer] = [b"header" * 10, memoryview(bytearray(b"records" * 1000)), bytearray(b"more")]
    key: Any = uuid.UUID(int=5) if version >= TOPIC_IDS_SINCE else "topic"
    pieces = encode_produce(version, 1, None, acks=1, timeout_ms=1, topics={key: [PartitionRecords(0, batch)]})
    assert [piece for piece in pieces if any(piece is mine for mine in batch)] == batch
    assert sum(len(piece) for piece in pieces if not any(piece is mine for mine in batch)) < 100


def test_lengths_of_every_size_of_varint_are_right() -> None:
    for size in (0, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152):
        topics: Any = {"t": [PartitionRecords(0, [bytes(size)])]}
        made = b"".join(encode_produce(9, 1, None, acks=1, timeout_ms=1, topics=topics))
        assert made == kios_request(Api.PRODUCE, 9, 1, None, entity(9, 1, 1, topics, None))
