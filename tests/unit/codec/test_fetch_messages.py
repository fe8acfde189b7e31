"""Fetch requests and responses: written and read as the general codec does, in every version."""
from __future__ import annotations

import datetime
import itertools
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.fetch import NO_REPLICA, TOPIC_IDS_SINCE, FetchResponse, FetchParameters, PartitionRequest, encode_fetch, fetch_response
from pyclient.codec.messages import decode_response, encode_request, encode_response
from pyclient.errors import ProtocolError
from tests.unit.codec.random_entities import entities, plain
from tests.unit.codec.test_messages import kios_response

VERSIONS = range(SPOKEN[Api.FETCH].low, SPOKEN[Api.FETCH].high + 1)
INT32 = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(-1, 2**63 - 1)
PARAMETERS = st.builds(FetchParameters, INT32, INT32, INT32, INT32, st.sampled_from([0, 1]), INT32, st.integers(-1, 2**31 - 1), st.text("ab-é", max_size=200))
REQUESTED = st.builds(PartitionRequest, OFFSETS, st.just(3), st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1), st.none())


# ---- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(data=st.data(), parameters=PARAMETERS, client_id=st.none() | st.just("client-é"))
def test_a_request_is_written_as_the_general_encoder_writes_it(version: int, data: st.DataObject, parameters: FetchParameters, client_id: str | None) -> None:
    keys: Any = st.binary(min_size=16, max_size=16) if version >= TOPIC_IDS_SINCE else st.text("abc-é", max_size=200)
    topics = data.draw(st.dictionaries(keys, st.lists(st.tuples(INT32, REQUESTED), max_size=3), max_size=3))
    forgotten = data.draw(st.dictionaries(keys, st.lists(INT32, max_size=3), max_size=3))
    assert encode_fetch(version, 7, client_id, parameters, topics, forgotten) == encode_request(
        Api.FETCH, version, 7, client_id, fields(version, parameters, topics, forgotten))


def fields(version: int, parameters: FetchParameters, topics: Any, forgotten: Any) -> dict[str, object]:
    return {
        "replica_id": -1, "max_wait": datetime.timedelta(milliseconds=parameters.max_wait_ms), "min_bytes": parameters.min_bytes, "max_bytes": parameters.max_bytes,
        "isolation_level": parameters.isolation, "session_id": parameters.session_id, "session_epoch": parameters.session_epoch, "rack_id": parameters.rack,
        "topics": [{**named(version, key), "partitions": [
            {"partition": number, "fetch_offset": each.offset, "current_leader_epoch": each.leader_epoch, "last_fetched_epoch": each.last_epoch,
             "partition_max_bytes": parameters.max_partition_bytes} for number, each in partitions]} for key, partitions in topics.items()],
        "forgotten_topics_data": [{**named(version, key), "partitions": numbers} for key, numbers in forgotten.items()],
    }


def named(version: int, key: Any) -> dict[str, object]:
    return {"topic_id": uuid.UUID(bytes=key)} if version >= TOPIC_IDS_SINCE else {"topic": key}


# ---- responses ------------------------------------------------------------------------------------------------------


def seen(found: FetchResponse) -> Any:
    return (found.error_code, found.session_id, found.throttle_time, [
        (topic.name, topic.id, [(
            part.partition_index, part.error_code, part.high_watermark, part.preferred_read_replica,
            None if part.records is None else bytes(part.records),
            None if part.aborted_transactions is None else [(each.producer_id, each.first_offset) for each in part.aborted_transactions],
            plain(part.diverging_epoch), plain(part.current_leader)) for part in topic.partitions]) for topic in found.topics])


def expected(message: Any) -> Any:
    """The same of kio's entity."""
    return (getattr(message, "error_code", 0), getattr(message, "session_id", 0), message.throttle_time, [
        (getattr(topic, "topic", None), topic_id(topic), [(
            part.partition_index, part.error_code, part.high_watermark,
            getattr(part, "preferred_read_replica", NO_REPLICA), None if part.records is None else bytes(part.records),
            None if part.aborted_transactions is None else [(each.producer_id, each.first_offset) for each in part.aborted_transactions],
            differing(part, "diverging_epoch"), differing(part, "current_leader")) for part in topic.partitions])
        for topic in message.responses])


def topic_id(topic: Any) -> bytes | None:
    if hasattr(topic, "topic"):
        return None
    return bytes(16) if topic.topic_id is None else bytes(topic.topic_id.bytes)


def differing(part: Any, name: str) -> Any:
    """A tag of the partition, if it is written: then the general decoder reads all of the response."""
    fields = plain(getattr(part, name, None))
    return fields if fields is not None and any(value != -1 for value in fields.values()) else None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_response_is_read_as_the_general_decoder_reads_it(version: int) -> None:
    for entity in entities(load_response_schema(Api.FETCH, version), 60):
        frame = kios_response(Api.FETCH, version, 9, entity)
        message = decode_response(Api.FETCH, version, memoryview(frame))
        for whole in (frame, memoryview(bytearray(frame))):
            assert without_defaults(seen(fetch_response(version, whole))) == expected(message)


def without_defaults(found: Any) -> Any:
    """A tag that is not written has its default in kio's entity; of a usual response it is None."""
    *head, topics = found
    return (*head, [(name, id_, [(*part[:-2], *(None if tag is None or all(value == -1 for value in tag.values()) else tag for tag in part[-2:])) for part in partitions])
                    for name, id_, partitions in topics])


def response(version: int, **changes: Any) -> bytes:
    """One partition with ten bytes of records."""
    topic: dict[str, object] = {"topic_id": uuid.UUID(int=5)} if version >= TOPIC_IDS_SINCE else {"topic": "orders"}
    partition = {"partition_index": 3, "error_code": 0, "high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 1,
                 "aborted_transactions": [{"producer_id": 4, "first_offset": 6}], "preferred_read_replica": -1, "records": b"0123456789", **changes}
    return encode_response(Api.FETCH, version, 9, {
        "throttle_time": 0, "error_code": 0, "session_id": 77, "responses": [{**topic, "partitions": [partition]}]})


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_a_view_of_the_response(version: int) -> None:
    frame = bytearray(response(version))
    (topic,) = fetch_response(version, memoryview(frame)).topics
    (partition,) = topic.partitions
    at = frame.index(b"0123456789")
    frame[at:at + 3] = b"abc"
    assert partition.records is not None
    assert bytes(partition.records) == b"abc3456789"


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_read_as_the_general_decoder_reads_it_or_refused(version: int) -> None:
    whole = response(version)
    for at, value in itertools.product(range(4, len(whole)), (0, 1, 2, 0x7F, 0xFF)):
        damaged = whole[:at] + bytes([value]) + whole[at + 1:]
        check(version, damaged)
    for size in range(4, len(whole)):
        check(version, whole[:size])
    check(version, whole + b"\0")


def check(version: int, frame: bytes) -> None:
    try:
        message = decode_response(Api.FETCH, version, memoryview(frame))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            fetch_response(version, frame)
    else:
        assert without_defaults(seen(fetch_response(version, frame))) == expected(message)
