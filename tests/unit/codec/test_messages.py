"""Requests are written as kio writes them, in every version; responses are read completely or refused."""
from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.codec.entities import Reader
from pyclient.codec.messages import RequestHead, correlation_id_of, decode_response, encode_request, field_names, read_head, request_schema
from pyclient.codec.schemas import schema_of
from pyclient.core.admin.topics import create_topics_call, delete_topics_call, metadata_call
from pyclient.core.calls import Call, Coordinator, find_coordinator
from pyclient.core.transactions.calls import (
    V1, V2, OpenTransaction, ProducerId, add_offsets_call, add_partitions_call, end_call, init_call, offsets_call,
)
from pyclient.core.group.consumer_calls import HeartbeatFields, heartbeat_call, leave_call
from pyclient.core.group.coordinator import GroupOptions, Identity
from pyclient.core.group.offsets import commit_call, committed_call
from pyclient.core.handshake import ClientInfo, agree_on_versions
from pyclient.descriptions.topics import NewTopic
from pyclient.errors import ProtocolError
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.unit.codec.random_entities import SPOKEN_PAIRS, entities, plain

PAIRS = [pytest.param(api, version, id=f"{api.title}-v{version}") for api, version in SPOKEN_PAIRS]

CLIENT_IDS = (None, "", "client-1", "à-é")


def kios_request(api: Api, version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    return kios_header(api, version, correlation_id, client_id) + written(entity)


def kios_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header: Any = HeaderV2 if load_request_schema(api, version).__flexible__ else HeaderV1
    return written(header(
        request_api_key=api.value, request_api_version=version, correlation_id=correlation_id, client_id=client_id))


def kios_response(api: Api, version: int, correlation_id: int, entity: Any) -> bytes:
    header: Any = load_response_schema(api, version).__header_schema__
    return written(header(correlation_id=correlation_id)) + written(entity)


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_the_header_of_a_request_is_read_in_every_version(api: Api, version: int) -> None:
    """Before anything is known of its version: brokers respond to unknown versions too."""
    for client_id in CLIENT_IDS:
        frame = memoryview(kios_header(api, version, 2**31 - 1, client_id) + b"body")
        assert read_head(frame) == RequestHead(api, version, 2**31 - 1, client_id)


@pytest.mark.parametrize("damaged", [
    b"", b"\0\3\0\1\0\0\0\1\0", b"\0\3\0\1\0\0\0\1\0\2x", b"\0\3\0\1\0\0\0\1\xff\xfe", b"\0\3\0\1\0\0\0\1\x7f\xffx",
    b"\0\3\0\1\0\0\0\1\0\1\xff",
])
def test_M12_a_damaged_request_header_is_rejected(damaged: bytes) -> None:
    """Cut off, with a length beyond the frame or below null, or no text."""
    with pytest.raises(ProtocolError):
        read_head(memoryview(damaged))


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_a_request_of_plain_fields_is_written_as_kio_writes_the_entity(api: Api, version: int) -> None:
    for correlation_id, entity in zip((0, 1, 255, 256, 2**31 - 1, *range(7, 10)), entities(load_request_schema(api, version), 8), strict=True):
        client_id = CLIENT_IDS[correlation_id % 4]
        mine = encode_request(api, version, correlation_id, client_id, dataclasses.asdict(entity))
        assert mine == kios_request(api, version, correlation_id, client_id, entity)


def nothing(result: object, error: BaseException | None) -> None:
    """No caller waits for these calls."""


GROUP = GroupOptions(group_id="g", instance_id="i", session_timeout=45.0, heartbeat_interval=3.0, rebalance_timeout=300.0, request_timeout=30.0,
                     rack="r", remote_assignor="uniform")
OPEN = OpenTransaction("x", ProducerId(7, 1))
A, B = TopicPartition("a", 0), TopicPartition("b", 7)
CALLS: Mapping[str, Call] = {
    "create topics": create_topics_call(
        [NewTopic("t", 3, 1, {"retention.ms": "1"}), NewTopic("u", replica_assignments={0: [1, 2]})],
        validate_only=True, timeout=30.0, finish=nothing, deadline=None),
    "delete topics": delete_topics_call(["t", "u"], timeout=30.0, finish=nothing, deadline=None),
    "all topics": metadata_call(None, finish=nothing, deadline=None),
    "some topics": metadata_call(["t", "u"], finish=nothing, deadline=None),
    "commit": commit_call("g", {A: OffsetAndMetadata(5), B: OffsetAndMetadata(6, "note", 3)}, nothing, None),
    "committed": committed_call("g", [A, B], nothing, None),
    "heartbeat of a new member": heartbeat_call(
        GROUP, Identity(3, "m"), HeartbeatFields(full=True, topics=("t",), pattern="", owned=frozenset({(UUID(int=1), 0)})), nothing),
    "leave of a new member": leave_call(GROUP, "m", nothing, None),
    "init of a transactional producer": init_call("x", 60.0, nothing),
    "add partitions": add_partitions_call(OPEN, [A, B], nothing, early=None, deadline=None),
    "add offsets": add_offsets_call(OPEN, "g", nothing, early=None, deadline=None),
    "transactional offsets": offsets_call(OPEN, ConsumerGroupMetadata("g", 3, "m", "i"), {A: OffsetAndMetadata(5)}, V2, nothing, early=None, deadline=None),
    "end": end_call(OPEN, V1, nothing, commit=True),
    "coordinator": find_coordinator(Coordinator("g"), lambda target, node, error: None),
}
CALL_VERSIONS = [
    pytest.param(call, version, id=f"{what} v{version}")
    for what, call in CALLS.items()
    for version in range(SPOKEN[call.api].low, SPOKEN[call.api].high + 1)
]


@pytest.mark.parametrize(("call", "version"), CALL_VERSIONS)
def test_every_call_can_be_written_in_every_supported_version(call: Call, version: int) -> None:
    wire = encode_request(call.api, version, 1, "client", call.fields(version))
    reader = Reader(wire, len(kios_header(call.api, version, 1, "client")))
    assert reader.read(request_schema(call.api, version)) is not None
    assert reader.left == 0


@pytest.mark.parametrize(("call", "version"), CALL_VERSIONS)
def test_every_field_of_a_call_exists_in_some_version(call: Call, version: int) -> None:
    """A field's name that no version knows would be left out in silence."""
    assert set(names_in(call.fields(version))) <= field_names(call.api)


@pytest.mark.parametrize("version", range(5))
def test_ApiVersions_can_be_written_in_every_version(version: int) -> None:
    question = next(agree_on_versions(ClientInfo("pyclient", "1.0"), version))
    assert set(question.fields) <= field_names(Api.API_VERSIONS)
    assert encode_request(question.api, question.version, 1, None, question.fields)


def names_in(value: object) -> Iterable[str]:
    """Every key at any depth, but not the keys of arrays of plain values."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from names_in(inner)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from names_in(item)


def test_a_message_or_version_that_the_table_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(ValueError, match="MetadataRequest has no version 99: 0-13 are known"):
        request_schema(Api.METADATA, 99)
    with pytest.raises(ValueError, match="no message Nonsense"):
        schema_of("Nonsense", 1)


def test_fields_that_a_version_lacks_are_left_out() -> None:
    fields = {"topics": None, "allow_auto_topic_creation": True, "include_topic_authorized_operations": True, "no_such_field": 1}
    assert len(encode_request(Api.METADATA, 1, 1, None, {**fields, "topics": ()})) < len(
        encode_request(Api.METADATA, 8, 1, None, {**fields, "topics": (), "include_cluster_authorized_operations": False}))


def test_a_value_that_is_no_structure_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match="MetadataRequestTopic"):
        encode_request(Api.METADATA, 1, 1, None, {"topics": [5]})
    with pytest.raises(TypeError, match="topics"):
        encode_request(Api.METADATA, 1, 1, None, {"topics": 5})


@pytest.mark.parametrize(("fields", "complaint"), [
    ({"allow_auto_topic_creation": True}, "needs topics"),
    ({"topics": [{"name": None}], "allow_auto_topic_creation": True}, "name is None"),
    ({"topics": [{"name": "x" * 40_000}], "allow_auto_topic_creation": True}, "32767"),
])
def test_a_request_that_its_schema_does_not_allow_is_refused_with_the_field(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_request(Api.METADATA, 4, 1, None, fields)


@pytest.mark.parametrize("timeout", [2**31, -2**31 - 1, 2**70])
def test_a_number_that_does_not_fit_its_field_is_refused_with_its_range(timeout: int) -> None:
    with pytest.raises(ValueError, match="timeout"):
        encode_request(Api.DELETE_TOPICS, 1, 1, None, {"topic_names": ["t"], "timeout": timeout})


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_a_response_is_read_with_the_header_of_its_version(api: Api, version: int) -> None:
    for correlation_id, entity in zip((0, 1, 255, 2**31 - 1), entities(load_response_schema(api, version), 4), strict=True):
        frame = memoryview(kios_response(api, version, correlation_id, entity))
        assert correlation_id_of(frame) == correlation_id
        assert plain(decode_response(api, version, frame)) == plain(entity)


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_bytes_after_the_end_of_a_response_are_ignored_as_java_does_except_where_they_show_a_wrong_version(api: Api, version: int) -> None:
    for rest, entity in zip((b"\0", b"\xff\x01\0\x7f"), entities(load_response_schema(api, version), 2), strict=True):
        frame = memoryview(kios_response(api, version, 1, entity) + rest)
        if api is Api.API_VERSIONS:
            with pytest.raises(ProtocolError, match="after its end"):
                decode_response(api, version, frame)
        else:
            assert plain(decode_response(api, version, frame)) == plain(entity)


def test_M12_the_error_of_a_damaged_response_names_its_api_and_version() -> None:
    with pytest.raises(ProtocolError, match="ListOffsets v5 response does not decode"):
        decode_response(Api.LIST_OFFSETS, 5, memoryview(bytes(4) + b"\x7f" * 8))


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0"])
def test_a_response_shorter_than_its_correlation_id_is_rejected(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        correlation_id_of(memoryview(frame))


# --- versions --------------------------------------------------------------------------------------------------------


@given(*[st.integers(-2, 20)] * 5)
def test_M15_the_common_range_is_the_intersection(low: int, high: int, other_low: int, other_high: int, version: int) -> None:
    mine, other = VersionRange(low, high), VersionRange(other_low, other_high)
    assert (version in mine.common(other)) == (version in mine and version in other)
    assert bool(mine) == (low <= high)


def test_M15_the_lowest_versions_are_those_that_Kafka_4_still_accepts() -> None:
    floors = {Api.PRODUCE: 3, Api.FETCH: 4, Api.LIST_OFFSETS: 1, Api.OFFSET_COMMIT: 2, Api.OFFSET_FETCH: 1}
    assert {api: SPOKEN[api].low for api in floors} == floors


@pytest.mark.parametrize("api", SPOKEN)
def test_flexible_versions_stay_flexible(api: Api) -> None:
    known = [request_schema(api, version).flexible for version in range(SPOKEN[api].low, SPOKEN[api].high + 1)]
    assert known == sorted(known)
