"""Produce requests: written as kio writes them, byte for byte, without copying a record."""
from __future__ import annotations

import datetime
import itertools
import typing
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.messages import Buffer, decode_response, encode_response
from pyclient.codec.produce import TOPIC_IDS_SINCE, StoredResponse, encode_produce, stored_response
from tests.unit.codec.test_messages import kios_request

PIECES = st.lists(st.binary(max_size=200), max_size=3)
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), PIECES), max_size=3)
NAMED = st.dictionaries(st.text("abc-é", max_size=200), PARTITIONS, max_size=3)
BY_ID = st.dictionaries(st.binary(min_size=16, max_size=16), PARTITIONS, max_size=3)
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
            topic_class(**{name: uuid.UUID(bytes=topic) if isinstance(topic, bytes) else topic}, partition_data=tuple(
                partition_class(index=partition, records=b"".join(pieces)) for partition, pieces in partitions))
            for topic, partitions in topics.items()))


def item_class(schema: Any, name: str) -> Any:
    """Of ``tuple[X, ...]``, the X."""
    return typing.get_args(typing.get_type_hints(schema)[name])[0]


@pytest.mark.parametrize("version", [3, 12, 13])
def test_record_bytes_are_passed_on_and_not_copied(version: int) -> None:
    batch: list[Buffer] = [b"header" * 10, memoryview(bytearray(b"records" * 1000)), bytearray(b"more")]
    key: Any = bytes(16) if version >= TOPIC_IDS_SINCE else "topic"
    pieces = encode_produce(version, 1, None, acks=1, timeout_ms=1, topics={key: [(0, batch)]})
    assert [piece for piece in pieces if any(piece is mine for mine in batch)] == batch
    assert sum(len(piece) for piece in pieces if not any(piece is mine for mine in batch)) < 100


def test_lengths_of_every_size_of_varint_are_right() -> None:
    for size in (0, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152):
        topics: Any = {"t": [(0, [bytes(size)])]}
        made = b"".join(encode_produce(9, 1, None, acks=1, timeout_ms=1, topics=topics))
        assert made == kios_request(Api.PRODUCE, 9, 1, None, entity(9, 1, 1, topics, None))


# --- the response ----------------------------------------------------------------------------------------------------


def response(version: int, **changes: Any) -> bytes:
    """One batch, stored at 7, in the topic ``orders`` or with id 5, with *changes* to the partition or the response."""
    topic: dict[str, object] = {"topic_id": uuid.UUID(int=5)} if version >= TOPIC_IDS_SINCE else {"name": "orders"}
    whole: dict[str, object] = {name: changes.pop(name) for name in ("throttle_time", "responses", "node_endpoints") if name in changes}
    partition = {"index": 3, "error_code": 0, "base_offset": 7, "log_append_time": -1, "log_start_offset": 2, "record_errors": [],
                 "error_message": None, **changes}
    return encode_response(Api.PRODUCE, version, 9, {
        "responses": [{**topic, "partition_responses": [partition]}], "throttle_time": 0, **whole})


def read(version: int, frame: bytes) -> StoredResponse | None:
    return stored_response(version, frame)


@pytest.mark.parametrize("version", range(9, SPOKEN[Api.PRODUCE].high + 1))
@given(partition=st.integers(0, 2**31 - 1), offset=st.integers(-1, 2**63 - 1), appended=st.integers(-1, 2**40), throttled=st.integers(0, 2**31 - 1))
def test_the_response_of_a_stored_batch_is_read_as_kio_reads_it(version: int, partition: int, offset: int, appended: int, throttled: int) -> None:
    found = read(version, response(version, index=partition, base_offset=offset, log_append_time=appended, throttle_time=throttled))
    assert found is not None
    assert found.topic == (uuid.UUID(int=5).bytes if version >= TOPIC_IDS_SINCE else "orders")
    assert (found.partition, found.base_offset, found.append_time) == (partition, offset, appended)
    assert found.throttle_time == datetime.timedelta(milliseconds=throttled)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_response_is_left_to_the_general_decoder(version: int) -> None:
    partitions: list[dict[str, object]] = [{"index": each, "error_code": 0, "base_offset": 7, "log_append_time": -1, "record_errors": []} for each in (0, 1)]
    topic = {"topic_id": uuid.UUID(int=5)} if version >= TOPIC_IDS_SINCE else {"name": "orders"}
    others = [response(version, error_code=6), response(version, responses=[]), response(version)[:-1], response(version) + b"\0",
              response(version, responses=[{**topic, "partition_responses": partitions}]), b""]
    if version >= 8:
        others += [response(version, error_message="no"), response(version, record_errors=[{"batch_index": 0, "batch_index_error_message": None}])]
    if version >= 10:
        others += [response(version, current_leader={"leader_id": 1, "leader_epoch": 2}),
                   response(version, node_endpoints=[{"node_id": 1, "host": "a", "port": 2, "rack": None}])]
    assert [read(version, each) for each in others] == [None] * len(others)


@pytest.mark.parametrize("version", range(9, SPOKEN[Api.PRODUCE].high + 1))
def test_no_damage_of_a_response_is_read_as_something_that_the_general_decoder_does_not_read(version: int) -> None:
    whole = response(version)
    for at, value in itertools.product(range(4, len(whole)), (0, 1, 2, 0x7F)):
        damaged = whole[:at] + bytes([value]) + whole[at + 1:]
        found = read(version, damaged)
        if found is not None:
            (topic,) = decode_response(Api.PRODUCE, version, memoryview(damaged)).responses
            (partition,) = topic.partition_responses
            assert (partition.index, partition.base_offset, partition.error_code) == (found.partition, found.base_offset, 0)
            assert found.topic == ((topic.topic_id or uuid.UUID(int=0)).bytes if version >= TOPIC_IDS_SINCE else topic.name)
