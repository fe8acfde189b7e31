# cython: language_level=3, freethreading_compatible=True
"""A fetch of a session that names one partition or none, and the responses that nearly all fetches get.

Without schemas, and only for the versions that name topics by id. Everything else about Fetch is
`pyclient.codec.messages`'.
"""
from __future__ import annotations

import datetime
import functools
import struct
from typing import Final, NamedTuple

from pyclient.codec.apis import Api
from pyclient.codec.messages import encode_request

TOPIC_IDS_SINCE: Final = 13
NEWEST: Final = 17
ONE: Final = 2
"""The length of an array of one element: compact lengths count themselves."""
NONE: Final = 1
RESPONSE: Final = struct.Struct(">iBihiB16sBihqqqBi")
"""The header, up to and with the preferred replica, for a transaction list that is null or empty."""
EMPTY: Final = struct.Struct(">iBihiBB")
"""A whole response without a topic."""
FIELDS: Final = struct.Struct(">iiibii")
NAMED: Final = struct.Struct(">B16sBiiqiqiBBB")
"""The topics, and those to forget."""
NONE_NAMED: Final = b"\1\1"
NO_RACK: Final = b"\1\0"
"""With the tags behind it."""
NOTHING: Final = {
    "replica_id": -1, "max_wait": datetime.timedelta(0), "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "session_id": 0, "session_epoch": 0,
    "topics": [], "forgotten_topics_data": []}
"""A request's fields by the schema, but for the rack."""
NO_REPLICA: Final = -1
NO_ABORTED: Final = (0, 1)
"""A list of aborted transactions that is null, or empty."""
END: Final = b"\0\0\0"
"""No tags of the partition, the topic and the response."""


class OnePartition(NamedTuple):
    """What one request of a session asks of the only partition that it names."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    most_bytes: int


class EmptyResponse(NamedTuple):
    """A response without news."""

    session_id: int


class OneResponse(NamedTuple):
    """A response with records of one partition and nothing unusual."""

    session_id: int
    topic_id: bytes
    partition: int
    high_watermark: int
    records: memoryview


def knows(version: int) -> bool:
    """Whether requests and responses of *version* are written and read here."""
    return TOPIC_IDS_SINCE <= version <= NEWEST


def encode_fetch(version: int, correlation_id: int, client_id: str | None, asked: OnePartition | None, *, wait_ms: int, min_bytes: int, max_bytes: int,
                 isolation: int, session_id: int, session_epoch: int, rack: str) -> bytes:
    """The request's bytes, header included, frame length not."""
    before, between, after = _frame(version, client_id, rack)
    topics = NONE_NAMED if asked is None else NAMED.pack(
        ONE, asked.topic_id, ONE, asked.partition, asked.leader_epoch, asked.offset, asked.last_epoch, -1, asked.most_bytes, 0, 0, NONE)
    fields = FIELDS.pack(wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
    return b"".join((before, correlation_id.to_bytes(4, "big"), between, fields, topics, after))


@functools.lru_cache(maxsize=64)
def _frame(version: int, client_id: str | None, rack: str) -> tuple[bytes, bytes, bytes]:
    """What is before the correlation id, between it and the first field, and behind the topics to forget.

    The schemas' encoder writes all of it.
    """
    whole, without_rack = (encode_request(Api.FETCH, version, 0, client_id, {**NOTHING, "rack_id": each}) for each in (rack, ""))
    fields = len(without_rack) - len(NO_RACK) - len(NONE_NAMED) - FIELDS.size
    return whole[:4], whole[8:fields], whole[fields + FIELDS.size + len(NONE_NAMED):]


def usual_response(frame: bytes, correlation_id: int) -> OneResponse | EmptyResponse | None:
    """The response in *frame*, header included, if it answers that request with records of one partition or nothing.

    Else None.

    `decode_response` reads every response, this one those of nearly every fetch that waited, in a tenth of the time.
    """
    if len(frame) == EMPTY.size:
        number, tags, throttle, error, session_id, topics, end = EMPTY.unpack(frame)
        usual = number == correlation_id and topics == NONE and not (tags or throttle or error or end)
        return EmptyResponse(session_id) if usual else None
    if len(frame) < RESPONSE.size:
        return None
    (number, tags, throttle, error, session_id, topics, topic_id, partitions, partition, failed, high_watermark, _stable, _start, aborted, replica,
     ) = RESPONSE.unpack_from(frame)
    if number != correlation_id or tags or throttle or error or failed or (topics, partitions) != (ONE, ONE) or aborted not in NO_ABORTED or replica != NO_REPLICA:
        return None
    size, at = _size(frame, RESPONSE.size)
    end = at + size
    if size <= 0 or frame[end:] != END:
        return None
    return OneResponse(session_id, topic_id, partition, high_watermark, memoryview(frame)[at:end])


def _size(frame: bytes, at: int) -> tuple[int, int]:
    """The compact length at *at*, and where its bytes begin; -1 if it is cut off or too large to be read here."""
    size = shift = 0
    for byte in frame[at:at + 4]:
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size - 1, at
    return -1, at

