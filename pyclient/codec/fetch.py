# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""A fetch of a session that names one partition or none, and the responses that nearly all fetches get.

Without schemas, and only for the versions that name topics by id. Everything else about Fetch is
`pyclient.codec.messages`'.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import int32_t
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.pyclient.codec.encode import put_int32, put_int64
from cython.cimports.pyclient.codec.parse import int32_at, int64_at

import datetime
import functools

from pyclient.codec.apis import Api
from pyclient.codec.messages import encode_request

TOPIC_IDS_SINCE = 13
NEWEST = 17
ONE = cython.declare(cython.uchar, 2)  # the length of an array of one element: compact lengths count themselves
NONE = cython.declare(cython.uchar, 1)
ID_SIZE = cython.declare(cython.Py_ssize_t, 16)
EMPTY_SIZE = cython.declare(cython.Py_ssize_t, 17)  # of a whole response without a topic
FIELDS_SIZE = cython.declare(cython.Py_ssize_t, 21)  # of a request: before its topics
NAMED_SIZE = cython.declare(cython.Py_ssize_t, 53)  # one topic with one partition, and none to forget
NONE_NAMED_SIZE = cython.declare(cython.Py_ssize_t, 2)
TOPIC_AT = cython.declare(cython.Py_ssize_t, 16)  # in a response: the id, behind the number of topics
PARTITION_AT = cython.declare(cython.Py_ssize_t, 33)  # behind the number of partitions
WATERMARK_AT = cython.declare(cython.Py_ssize_t, 39)
ABORTED_AT = cython.declare(cython.Py_ssize_t, 63)  # a list of transactions, null or empty; then the preferred replica
RECORDS_AT = cython.declare(cython.Py_ssize_t, 68)  # their length
END_SIZE = cython.declare(cython.Py_ssize_t, 3)  # no tags of the partition, the topic and the response
NO_RACK = b"\1\0"
"""With the tags behind it."""
NOTHING = {
    "replica_id": -1, "max_wait": datetime.timedelta(0), "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "session_id": 0, "session_epoch": 0,
    "topics": [], "forgotten_topics_data": []}
"""A request's fields by the schema, but for the rack."""


@cython.final
@cython.cclass
class OnePartition:
    """What one request of a session asks of the only partition that it names. The fields are declared in fetch.pxd."""

    def __init__(self, topic_id, partition, leader_epoch, offset, last_epoch, most_bytes):
        self.topic_id, self.partition, self.leader_epoch = topic_id, partition, leader_epoch
        self.offset, self.last_epoch, self.most_bytes = offset, last_epoch, most_bytes


@cython.final
@cython.cclass
class UsualResponse:
    """A response with nothing unusual: records of one partition, or none (*records* is None). Fields: fetch.pxd."""

    def __init__(self, session_id, topic_id=None, partition=-1, high_watermark=-1, records=None):
        self.session_id, self.topic_id, self.partition = session_id, topic_id, partition
        self.high_watermark, self.records = high_watermark, records


def knows(version: int) -> bool:
    """Whether requests and responses of *version* are written and read here."""
    return TOPIC_IDS_SINCE <= version <= NEWEST


@cython.ccall
def encode_fetch(version: cython.int, correlation_id: int32_t, client_id: object, asked: OnePartition | None, wait_ms: int32_t, min_bytes: int32_t,
                 max_bytes: int32_t, isolation: cython.int, session_id: int32_t, session_epoch: int32_t, rack: object) -> bytes:
    """The request's bytes, header included, frame length not."""
    before: bytes
    between: bytes
    after: bytes
    before, between, after = _frame(version, client_id, rack)
    named: cython.Py_ssize_t = NONE_NAMED_SIZE if asked is None else NAMED_SIZE
    start: cython.Py_ssize_t = PyBytes_GET_SIZE(before) + 4 + PyBytes_GET_SIZE(between)
    data: bytes = PyBytes_FromStringAndSize(cython.NULL, start + FIELDS_SIZE + named + PyBytes_GET_SIZE(after))
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
    memcpy(at, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
    put_int32(at + PyBytes_GET_SIZE(before), correlation_id)
    memcpy(at + PyBytes_GET_SIZE(before) + 4, PyBytes_AS_STRING(between), PyBytes_GET_SIZE(between))
    at += start
    put_int32(at, wait_ms)
    put_int32(at + 4, min_bytes)
    put_int32(at + 8, max_bytes)
    at[12] = isolation
    put_int32(at + 13, session_id)
    put_int32(at + 17, session_epoch)
    at += FIELDS_SIZE
    if asked is None:
        at[0] = at[1] = NONE
    else:
        _put_partition(at, asked)
    memcpy(at + named, PyBytes_AS_STRING(after), PyBytes_GET_SIZE(after))
    return data


@cython.cfunc
@cython.exceptval(check=False)
def _put_partition(at: cython.p_uchar, asked: OnePartition) -> cython.void:
    at[0] = at[17] = ONE
    memcpy(at + 1, PyBytes_AS_STRING(asked.topic_id), ID_SIZE)
    put_int32(at + 18, asked.partition)
    put_int32(at + 22, asked.leader_epoch)
    put_int64(at + 26, asked.offset)
    put_int32(at + 34, asked.last_epoch)
    put_int64(at + 38, -1)  # where the log starts: only followers say so
    put_int32(at + 46, asked.most_bytes)
    memset(at + 50, 0, 2)  # no tags of the partition and the topic
    at[52] = NONE


@functools.lru_cache(maxsize=64)
def _frame(version: int, client_id: str | None, rack: str) -> tuple[bytes, bytes, bytes]:
    """What is before the correlation id, between it and the first field, and behind the topics to forget.

    The schemas' encoder writes all of it.
    """
    whole, without_rack = (encode_request(Api.FETCH, version, 0, client_id, {**NOTHING, "rack_id": each}) for each in (rack, ""))
    fields = len(without_rack) - len(NO_RACK) - NONE_NAMED_SIZE - FIELDS_SIZE
    return whole[:4], whole[8:fields], whole[fields + FIELDS_SIZE + NONE_NAMED_SIZE:]


@cython.ccall
def usual_response(frame: bytes, correlation_id: int32_t) -> UsualResponse:
    """The response in *frame*, header included, if it answers that request with records of one partition or nothing.

    Else None.

    `decode_response` reads every response, this one those of nearly every fetch that waited, in a fraction of the time.
    """
    size: cython.Py_ssize_t = PyBytes_GET_SIZE(frame)
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(frame))
    if size < EMPTY_SIZE or int32_at(at) != correlation_id or memcmp(at + 4, cython.cast(cython.p_char, b"\0\0\0\0\0\0\0"), 7):
        return None  # behind the correlation id: tags, throttling, an error
    if size == EMPTY_SIZE:
        return UsualResponse(int32_at(at + 11)) if at[15] == NONE and not at[16] else None
    if size <= RECORDS_AT or at[15] != ONE or at[32] != ONE or at[37] or at[38] or at[ABORTED_AT] > NONE or int32_at(at + ABORTED_AT + 1) != -1:
        return None
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    start, end = _records(at, size)
    if end <= start or end + END_SIZE != size or at[end] or at[end + 1] or at[end + 2]:
        return None
    return UsualResponse(int32_at(at + 11), frame[TOPIC_AT:TOPIC_AT + ID_SIZE], int32_at(at + PARTITION_AT), int64_at(at + WATERMARK_AT),
                         memoryview(frame)[start:end])


@cython.cfunc
@cython.exceptval(check=False)
def _records(at: cython.p_uchar, size: cython.Py_ssize_t) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t]:
    """Where the records begin and end; their end is before their begin if the compact length is too large to be read
    here, or cut off.
    """
    length: cython.Py_ssize_t = 0
    shift: cython.int = 0
    place: cython.Py_ssize_t = RECORDS_AT
    while place < size and shift < 28:
        length |= cython.cast(cython.Py_ssize_t, at[place] & 0x7F) << shift
        shift += 7
        place += 1
        if at[place - 1] < 0x80:
            return place, place + length - 1  # it counts itself
    return place, -1
