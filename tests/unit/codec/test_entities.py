"""Messages are read as kio reads them, and damaged ones are refused. kio itself never sees hostile bytes here: its
reader believes array lengths."""
from __future__ import annotations

import io
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.metadata.v1.response import MetadataResponse as OldMetadata
from kio.schema.metadata.v12.response import MetadataResponse as Metadata12
from kio.schema.metadata.v13.response import MetadataResponse
from kio.schema.produce.v7.response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kio.serial import entity_reader, entity_writer

from pyclient.codec.entities import Reader
from pyclient.errors import ProtocolError
from tests.unit.codec.random_entities import EPOCH, MILLISECOND, REQUESTS, RESPONSES, YEAR_9999_S, entities, our_schema, plain

EVERY_MESSAGE = [pytest.param(schema, id=f"{schema.__module__.removeprefix('kio.schema.')}") for schema in [*RESPONSES, *REQUESTS]]


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def read(schema: type, data: bytes) -> Any:
    reader = Reader(data)
    message = reader.read(our_schema(schema))
    assert reader.left == 0
    return message


def kios_own(schema: type, data: bytes) -> Any:
    decode: Any = entity_reader(schema)
    message, size = decode(data, 0)
    assert size == len(data)
    return message


def make(schema: Any, **fields: Any) -> Any:
    """An entity of plain numbers, where kio's types ask for their own."""
    return schema(**fields)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# --- the same as kio -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", EVERY_MESSAGE)
def test_every_message_is_read_as_kio_reads_it(schema: type) -> None:
    for entity in entities(schema, 10):
        wire = written(entity)
        assert plain(read(schema, wire)) == plain(kios_own(schema, wire))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_a_time_to_the_millisecond_is_read_exactly(data: bytes) -> None:
    """kio's reader rounds it to the nearest float."""
    moment = EPOCH + int.from_bytes(data[:6].ljust(6, b"\0"), "big") % (YEAR_9999_S * 1000) * MILLISECOND
    partition = make(
        PartitionProduceResponse, index=0, error_code=ErrorCode.none, base_offset=0, log_append_time=moment, log_start_offset=0)
    topic = make(TopicProduceResponse, name="t", partition_responses=(partition,))
    wire = written(make(ProduceResponse, responses=(topic,), throttle_time=0 * MILLISECOND))
    assert read(ProduceResponse, wire).responses[0].partition_responses[0].log_append_time == moment


# --- damaged ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", EVERY_MESSAGE)
def test_every_truncation_of_a_message_is_refused(schema: type) -> None:
    for wire in map(written, entities(schema, 2)):
        for end in range(len(wire)):
            with pytest.raises(ProtocolError):
                Reader(wire[:end]).read(our_schema(schema))


def metadata(brokers: int = 0, topics: bytes = b"\1") -> bytes:
    """A Metadata response (version 12) with this many nodes."""
    node = bytes(4) + b"\2h" + bytes(4) + b"\0\0"
    return bytes(4) + uvarint(brokers + 1) + node * brokers + b"\0" + bytes(4) + topics + b"\0"


def topic_of(partitions: int) -> bytes:
    """The topics of a Metadata response: one."""
    one = bytes(2) + bytes(4) + bytes(4) + bytes(4) + b"\1\1\1\0"
    return b"\2" + bytes(2) + b"\2t" + bytes(16) + b"\0" + uvarint(partitions + 1) + one * partitions + bytes(4) + b"\0"


def test_M12_more_nodes_or_partitions_than_any_cluster_has_are_refused_before_memory_is_taken() -> None:
    """A node of 11 B becomes connections and a history of failures, 65 times as much."""
    assert len(read(Metadata12, metadata(10_000)).brokers) == 10_000
    assert len(read(Metadata12, metadata(1, topic_of(200_000))).topics[0].partitions) == 200_000
    for data, name, count in ((metadata(10_001), "brokers", 10_001), (metadata(1, topic_of(200_001)), "partitions", 200_001)):
        tracemalloc.start()
        with pytest.raises(ProtocolError, match=f"array {name} has {count} items, and at most"):
            Reader(data).read(our_schema(Metadata12))
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x10000000, 1000, -2, -0x80000000])
def test_M12_a_length_beyond_the_message_is_refused_before_memory_is_taken(length: int) -> None:
    wire = length.to_bytes(4, "big", signed=True) + bytes(40)  # the number of brokers
    peak = peak_of(OldMetadata, wire)
    assert peak < 100_000


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 2**28, 1000])
def test_M12_a_compact_length_beyond_the_message_is_refused_before_memory_is_taken(length: int) -> None:
    wire = bytes(4) + uvarint(length) + bytes(40)  # throttle time, then the number of brokers
    assert peak_of(MetadataResponse, wire) < 100_000


def peak_of(schema: type, wire: bytes) -> int:
    """The most memory that refusing *wire* took."""
    our_schema(schema)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            Reader(wire).read(our_schema(schema))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_length_that_does_not_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="more than 32 bits"):
        Reader(bytes(4) + b"\xff" * 10 + bytes(40)).read(our_schema(MetadataResponse))


def test_text_that_is_not_utf8_is_refused() -> None:
    wire = bytes([0, 0, 0, 1]) + bytes(4) + b"\x00\x02\xff\xfe" + bytes(40)  # one broker with a bad host
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(wire).read(our_schema(OldMetadata))


def test_a_null_where_none_may_be_is_refused() -> None:
    wire = bytes([0, 0, 0, 1]) + bytes(4) + b"\xff\xff" + bytes(40)  # one broker with a null host
    with pytest.raises(ProtocolError, match="host is null"):
        Reader(wire).read(our_schema(OldMetadata))


@pytest.mark.parametrize("milliseconds", [2**63 - 1, -(2**63), 300_000_000_000_000])
def test_a_time_beyond_the_calendar_is_refused(milliseconds: int) -> None:
    partition = bytes(4 + 2 + 8) + milliseconds.to_bytes(8, "big", signed=True) + bytes(8)
    with pytest.raises(ProtocolError, match="out of range"):
        Reader(b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + partition).read(our_schema(ProduceResponse))


def test_a_reader_begins_within_its_bytes() -> None:
    with pytest.raises(ProtocolError, match="ends before byte 5"):
        Reader(b"1234", 5)
    with pytest.raises(ProtocolError):
        Reader(b"1234", -1)
    assert Reader(b"", 0).left == 0


# --- from a newer broker ---------------------------------------------------------------------------------------------


def with_tags(*tags: tuple[int, bytes]) -> bytes:
    """An ApiVersions response with these tagged fields."""
    plain = written(make(ApiVersionsResponse, error_code=ErrorCode.none, api_keys=(), throttle_time=0 * MILLISECOND))
    assert plain[-1:] == b"\0"
    return plain[:-1] + uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)


@given(st.lists(st.tuples(st.integers(5, 2**31 - 1), st.binary(max_size=20)), max_size=5, unique_by=lambda tag: tag[0]))
def test_unknown_tags_are_skipped(unknown: list[tuple[int, bytes]]) -> None:
    epoch = (1, (77).to_bytes(8, "big"))
    message = read(ApiVersionsResponse, with_tags(epoch, *sorted(unknown)))
    assert message.finalized_features_epoch == 77


def test_absent_tags_have_their_defaults() -> None:
    message = read(ApiVersionsResponse, with_tags())
    assert (message.finalized_features_epoch, message.supported_features) == (-1, ())
    assert plain(message) == plain(kios_own(ApiVersionsResponse, with_tags()))


@pytest.mark.parametrize("size", [0, 7, 9, 20])
def test_a_tagged_field_is_exactly_as_long_as_its_length_says(size: int) -> None:
    with pytest.raises(ProtocolError):
        Reader(with_tags((1, bytes(size))) + bytes(20)).read(our_schema(ApiVersionsResponse))


def test_a_tags_content_cannot_reach_beyond_the_tag() -> None:
    """One feature of a name that would end in the next field: the bytes are there, but they are not the tag's."""
    overlong = bytes([2, 21]) + b"x" * 10
    with pytest.raises(ProtocolError):
        Reader(with_tags((0, overlong), (1, bytes(8))) + bytes(40)).read(our_schema(ApiVersionsResponse))


@given(code=st.integers(-(2**15), 2**15 - 1))
def test_an_error_code_of_a_newer_broker_is_a_plain_number(code: int) -> None:
    wire = bytes(4) + code.to_bytes(2, "big", signed=True) + bytes(4) + b"\x01" + b"\x00"
    assert read(FetchResponse, wire).error_code == code


def test_records_are_a_view_of_the_message() -> None:
    partition = make(
        PartitionData, partition_index=0, error_code=ErrorCode.none, high_watermark=0, last_stable_offset=0,
        log_start_offset=0, aborted_transactions=(), preferred_read_replica=-1, records=b"R" * 100)
    topic = make(FetchableTopicResponse, topic_id=uuid.UUID(int=1), partitions=(partition,))
    wire = written(make(FetchResponse, throttle_time=0 * MILLISECOND, error_code=ErrorCode.none, session_id=0, responses=(topic,)))
    records = read(FetchResponse, wire).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is wire
    assert records == b"R" * 100


@given(number=st.integers(0, 2**32 - 1))
def test_int32_reads_a_correlation_id(number: int) -> None:
    assert Reader(number.to_bytes(4, "big") + b"rest").int32() % 2**32 == number


def test_an_id_is_read_the_same_each_time_and_after_many_others() -> None:
    """Ids that were read are kept, but no more than some thousands of them."""
    topics = [uuid.UUID(int=number) for number in (1, *range(2, 9000), 1, 0, 0, 1)]
    assert [_topic_id(each.bytes) for each in topics] == [each if each.int else None for each in topics]


def _topic_id(raw: bytes) -> uuid.UUID | None:
    message = read(FetchResponse, bytes(4 + 2 + 4) + b"\2" + raw + b"\1\0" + b"\0")
    found: uuid.UUID | None = message.responses[0].topic_id
    return found
