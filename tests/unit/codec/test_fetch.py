"""A fetch of one partition and its usual response, beside the encoder and decoder that know schemas."""
from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.fetch import NEWEST, TOPIC_IDS_SINCE, OnePartition, encode_fetch, knows, usual_response
from pyclient.codec.messages import decode_response, encode_request, encode_response

VERSIONS = range(TOPIC_IDS_SINCE, NEWEST + 1)
TOPIC = uuid.UUID(int=5)
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def test_every_version_that_names_topics_by_id_is_known() -> None:
    assert [version for version in range(SPOKEN[Api.FETCH].low, SPOKEN[Api.FETCH].high + 2) if knows(version)] == list(VERSIONS)
    assert SPOKEN[Api.FETCH].high == NEWEST


@pytest.mark.parametrize("version", VERSIONS)
@given(topic=st.uuids().filter(lambda each: each.int > 0), asked=st.tuples(int32, int32, int64, int32, int32), limits=st.tuples(int32, int32, int32),
       isolation=st.integers(0, 1), session=st.tuples(int32, int32), client_id=st.none() | st.text("aé", max_size=200), rack=st.text("rä", max_size=200),
       correlation_id=st.integers(0, 2**31 - 1), names=st.booleans())
def test_the_request_is_what_the_schemas_encoder_writes(
    version: int, topic: uuid.UUID, asked: tuple[int, ...], limits: tuple[int, int, int], isolation: int, session: tuple[int, int],
    client_id: str | None, rack: str, correlation_id: int, names: bool) -> None:
    partition, leader_epoch, offset, last_epoch, most = asked
    wait, least, room = limits
    expected = encode_request(Api.FETCH, version, correlation_id, client_id, {
        "replica_id": -1, "max_wait": datetime.timedelta(milliseconds=wait), "min_bytes": least, "max_bytes": room, "isolation_level": isolation,
        "rack_id": rack, "session_id": session[0], "session_epoch": session[1], "forgotten_topics_data": [],
        "topics": [{"topic_id": topic, "partitions": [{
            "partition": partition, "fetch_offset": offset, "current_leader_epoch": leader_epoch, "last_fetched_epoch": last_epoch,
            "partition_max_bytes": most}]}] * names})
    one = OnePartition(topic.bytes, partition, leader_epoch, offset, last_epoch, most) if names else None
    assert encode_fetch(version, correlation_id, client_id, one, wait, least, room, isolation, session[0], session[1], rack) == expected


# --- the response ----------------------------------------------------------------------------------------------------


def response(version: int, partitions: int = 1, topics: int = 1, more: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Records of the topic, with *changes* to the partition, and what *more* the response has."""
    partition = {"partition_index": 3, "error_code": 0, "high_watermark": 8, "last_stable_offset": 7, "log_start_offset": 1,
                 "aborted_transactions": None, "preferred_read_replica": -1, "records": b"records", **changes}
    return encode_response(Api.FETCH, version, 9, {
        "throttle_time": datetime.timedelta(0), "error_code": 0, "session_id": 11, **(more or {}),
        "responses": [{"topic_id": TOPIC, "partitions": [partition] * partitions}] * topics})


@pytest.mark.parametrize("version", VERSIONS)
@given(session_id=int32, partition=int32, offsets=st.tuples(int64, int64, int64), size=st.integers(1, 300) | st.sampled_from([16_382, 16_383, 16_384, 70_000]))
def test_the_usual_response_is_read_as_the_schemas_decoder_reads_it(
    version: int, session_id: int, partition: int, offsets: tuple[int, int, int], size: int) -> None:
    frame = response(version, more={"session_id": session_id}, partition_index=partition, high_watermark=offsets[0], last_stable_offset=offsets[1],
                     log_start_offset=offsets[2], aborted_transactions=[] if size % 2 else None, records=bytes(size))
    found, message = usual_response(frame, 9), decode_response(Api.FETCH, version, memoryview(frame))
    (topic,) = message.responses
    (data,) = topic.partitions
    assert found is not None
    assert (found.session_id, found.topic_id, found.partition, found.high_watermark, found.records) == (
        message.session_id, topic.topic_id.bytes, data.partition_index, data.high_watermark, data.records)


UNUSUAL: dict[str, dict[str, Any]] = {
    "an error of the session": {"more": {"error_code": 70}},
    "throttling": {"more": {"throttle_time": datetime.timedelta(milliseconds=1)}},
    "an error of the partition": {"error_code": 6},
    "an aborted transaction": {"aborted_transactions": [{"producer_id": 1, "first_offset": 2}]},
    "another replica": {"preferred_read_replica": 2},
    "a divergence": {"diverging_epoch": {"epoch": 1, "end_offset": 2}},
    "another leader": {"current_leader": {"leader_id": 1, "leader_epoch": 2}},
    "no records": {"records": b""},
    "null records": {"records": None},
    "two partitions": {"partitions": 2},
    "two topics": {"topics": 2},
    "nothing, and throttling": {"topics": 0, "more": {"throttle_time": datetime.timedelta(milliseconds=1)}},
    "nothing, and an error": {"topics": 0, "more": {"error_code": 70}},
}


@pytest.mark.parametrize("version", VERSIONS)
@given(session_id=int32)
def test_a_response_without_news_is_known(version: int, session_id: int) -> None:
    found = usual_response(response(version, topics=0, more={"session_id": session_id}), 9)
    assert found is not None
    assert (found.session_id, found.records) == (session_id, None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", UNUSUAL)
def test_anything_unusual_is_left_to_the_schemas_decoder(version: int, case: str) -> None:
    assert usual_response(response(version, **UNUSUAL[case]), 9) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_off_or_longer_is_left_to_the_schemas_decoder(version: int) -> None:
    for topics in (0, 1):
        frame = response(version, topics=topics)
        assert usual_response(frame, 9) is not None
        assert not any(usual_response(frame[:size], 9) for size in range(len(frame)))
        assert usual_response(frame + b"\0", 9) is None


def test_a_response_to_another_request_is_left_to_the_schemas_decoder() -> None:
    assert not any(usual_response(response(16, topics=topics), number) for topics in (0, 1) for number in (8, 10, -9))


def test_endpoints_of_nodes_are_left_to_the_schemas_decoder() -> None:
    assert usual_response(response(16, more={"node_endpoints": [{"node_id": 1, "host": "h", "port": 1, "rack": None}]}), 9) is None
