# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Fetch requests and responses without a mapping or an entity for each part.

Written in every version, tested byte for byte against kio. `fetch_response` reads what nearly every response holds
itself, and leaves the others (partitions with tags, older brokers) to `decode_response`.
"""
import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int64_t
from cython.cimports.pyclient.codec.entity_writer import Writer
from cython.cimports.pyclient.codec.parse import int16_at, int32_at, int64_at

from datetime import timedelta

from pyclient.codec.apis import Api
from pyclient.codec.messages import decode_response
from pyclient.codec.produce import NOT_THROTTLED

SESSIONS_SINCE = 7
"""Fetch has sessions from this version on (KIP-227)."""
TOPIC_IDS_SINCE = 13
"""Fetch names topics by id from this version on (KIP-516)."""
CONSUMER = -1
"""The replica id of clients."""
NO_REPLICA = -1
NO_SESSION = 0
WITH_SESSIONS = cython.declare(cython.int, SESSIONS_SINCE)
BY_ID = cython.declare(cython.int, TOPIC_IDS_SINCE)
FLEXIBLE = cython.declare(cython.int, 12)
LAST_EPOCH_SINCE = cython.declare(cython.int, 12)
RACK_SINCE = cython.declare(cython.int, 11)
LEADER_EPOCH_SINCE = cython.declare(cython.int, 9)
LOG_START_SINCE = cython.declare(cython.int, 5)
NO_REPLICA_ID_SINCE = cython.declare(cython.int, 15)
NO_OFFSET = cython.declare(int64_t, -1)
_FETCH = cython.declare(cython.int, int(Api.FETCH))
_CONSUMER = cython.declare(cython.int, CONSUMER)


# --- the request -----------------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class FetchParameters:
    """What one request asks of a broker, besides its partitions. Bytes and milliseconds; fields: fetch.pxd."""

    def __init__(self, max_wait_ms: cython.int, min_bytes: cython.int, max_bytes: cython.int, max_partition_bytes: cython.int,
                 isolation: cython.int, session_id: cython.int, session_epoch: cython.int, rack: str) -> None:
        self.max_wait_ms, self.min_bytes, self.max_bytes, self.max_partition_bytes = max_wait_ms, min_bytes, max_bytes, max_partition_bytes
        self.isolation, self.session_id, self.session_epoch, self.rack = isolation, session_id, session_epoch, rack


@cython.final
@cython.cclass
class PartitionRequest:
    """What is requested of one partition. *generation*, of the seek or assignment, is not sent.

    *topic_id* has the bytes of the topic's id; None: the brokers have none. The fields are declared in fetch.pxd.
    """

    def __init__(self, offset: int64_t, generation: int64_t, leader_epoch: cython.int, last_epoch: cython.int, topic_id: bytes | None) -> None:
        self.offset, self.generation, self.leader_epoch, self.last_epoch, self.topic_id = offset, generation, leader_epoch, last_epoch, topic_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionRequest) and self.same(other)

    __hash__ = None

    @cython.cfunc
    @cython.exceptval(check=False)
    def same(self, other: PartitionRequest) -> cython.bint:
        return (self.offset == other.offset and self.generation == other.generation and self.leader_epoch == other.leader_epoch
                and self.last_epoch == other.last_epoch and self.topic_id == other.topic_id)

    def __repr__(self) -> str:
        return f"PartitionRequest({self.offset}, {self.generation}, {self.leader_epoch}, {self.last_epoch}, {self.topic_id!r})"


@cython.ccall
def encode_fetch(version: cython.int, correlation_id: cython.uint, client_id: str | None, parameters: FetchParameters, topics: dict, forgotten: dict) -> bytes:
    """The request's bytes, header included, frame length not.

    Keys of *topics* and *forgotten* are the bytes of ids from v13 on, else names; values are lists: of *topics* pairs
    of a partition and its `PartitionRequest`, of *forgotten* partitions.
    """
    out: Writer = Writer()
    flexible: cython.bint = version >= FLEXIBLE
    out.header(_FETCH, version, correlation_id, client_id, flexible)
    if version < NO_REPLICA_ID_SINCE:
        out.integer(_CONSUMER, 4)
    out.integer(parameters.max_wait_ms, 4)
    out.integer(parameters.min_bytes, 4)
    out.integer(parameters.max_bytes, 4)
    out.integer(parameters.isolation, 1)
    if version >= WITH_SESSIONS:
        out.integer(parameters.session_id, 4)
        out.integer(parameters.session_epoch, 4)
    out.length(len(topics), flexible, 4)
    for topic, partitions in topics.items():
        _topic(out, version, topic, len(partitions))
        for number, requested in partitions:
            _partition(out, version, number, requested, parameters.max_partition_bytes)
        out.end(flexible)
    if version >= WITH_SESSIONS:
        out.length(len(forgotten), flexible, 4)
        for topic, numbers in forgotten.items():
            _topic(out, version, topic, len(numbers))
            for number in numbers:
                out.integer(number, 4)
            out.end(flexible)
    if version >= RACK_SINCE:
        out.text(parameters.rack, flexible)
    out.end(flexible)
    return out.take()


@cython.cfunc
@cython.exceptval(-1, check=False)
def _topic(out: Writer, version: cython.int, topic: object, partitions: cython.Py_ssize_t) -> cython.int:
    """Its name or id, and how many of its partitions follow."""
    if version >= BY_ID:
        out.raw(topic)
    else:
        out.text(topic, version >= FLEXIBLE)
    return out.length(partitions, version >= FLEXIBLE, 4)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _partition(out: Writer, version: cython.int, number: cython.int, requested: PartitionRequest, most: cython.int) -> cython.int:
    out.integer(number, 4)
    if version >= LEADER_EPOCH_SINCE:
        out.integer(requested.leader_epoch, 4)
    out.integer(requested.offset, 8)
    if version >= LAST_EPOCH_SINCE:
        out.integer(requested.last_epoch, 4)
    if version >= LOG_START_SINCE:
        out.integer(NO_OFFSET, 8)
    out.integer(most, 4)
    return out.end(version >= FLEXIBLE)


# --- the response ----------------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class AbortedTransaction:
    """A transaction whose records are not to be returned, from *first_offset* on. The fields are in fetch.pxd."""


@cython.final
@cython.cclass
class FetchedPartition:
    """A partition of a response. The fields are declared in fetch.pxd.

    *records* are a view of the response, or None. *diverging_epoch* and *current_leader* are kio's entities, or None:
    nearly no response has them.
    """


@cython.final
@cython.cclass
class FetchedTopic:
    """A topic of a response: the bytes of its *id*, None before v13; then its *name*. The fields are in fetch.pxd."""


@cython.final
@cython.cclass
class FetchResponse:
    """A whole response; *throttle_time* is a timedelta, as in kio's entities. The fields are declared in fetch.pxd."""


@cython.ccall
def fetch_response(version: cython.int, frame: object) -> FetchResponse:
    """The response in *frame*, header included. Raises ProtocolError."""
    found: FetchResponse = _fast_path(version, frame) if version >= FLEXIBLE else None
    return _general(decode_response(Api.FETCH, version, memoryview(frame))) if found is None else found


@cython.cfunc
def _fast_path(version: cython.int, frame: object) -> FetchResponse:
    """None if only the general path can read it, or it is damaged."""
    view: Py_buffer
    PyObject_GetBuffer(frame, cython.address(view), PyBUF_SIMPLE)
    try:
        found: FetchResponse = FetchResponse.__new__(FetchResponse)
        cursor: Cursor = Cursor.__new__(Cursor)
        cursor.at = cursor.begin = cython.cast(cython.p_const_uchar, view.buf)
        cursor.end = cursor.at + view.len
        cursor.source, cursor.by_id = memoryview(frame), version >= BY_ID
        return found if _read(cursor, found) else None
    finally:
        PyBuffer_Release(cython.address(view))


@cython.final
@cython.cclass
class Cursor:
    """Where reading a response stands. The fields are declared in fetch.pxd."""

    @cython.cfunc
    @cython.exceptval(check=False)
    def count(self) -> cython.Py_ssize_t:
        """A compact length: -1 is null; -2: it is too large, or not there. Never more than the bytes that are left."""
        value: cython.Py_ssize_t = 0
        shift: cython.int = 0
        while self.at < self.end and shift <= 28:
            byte: cython.uchar = self.at[0]
            self.at += 1
            value |= cython.cast(cython.Py_ssize_t, byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1 if value - 1 <= self.end - self.at else -2
            shift += 7
        return -2

    @cython.cfunc
    @cython.exceptval(check=False)
    def has(self, count: cython.Py_ssize_t) -> cython.bint:
        return self.end - self.at >= count

    @cython.cfunc
    @cython.exceptval(check=False)
    def no_tags(self) -> cython.bint:
        """Step over an empty tag section; False if it is not one."""
        if not self.has(1) or self.at[0]:
            return False
        self.at += 1
        return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _read(cursor: Cursor, found: FetchResponse) -> cython.bint:
    if not cursor.has(15) or cursor.at[4]:  # correlation id, tags of the header, throttle time, error, session
        return False
    throttled: cython.int = int32_at(cursor.at + 5)
    found.throttle_time = timedelta(milliseconds=throttled) if throttled else NOT_THROTTLED
    found.error_code, found.session_id = int16_at(cursor.at + 9), int32_at(cursor.at + 11)
    cursor.at += 15
    count: cython.Py_ssize_t = cursor.count()
    if count < 0:
        return False
    found.topics = []
    while count > 0:
        count -= 1
        topic: FetchedTopic = _read_topic(cursor)
        if topic is None:
            return False
        found.topics.append(topic)
    return cursor.no_tags() and cursor.at == cursor.end


@cython.cfunc
def _read_topic(cursor: Cursor) -> FetchedTopic:
    topic: FetchedTopic = FetchedTopic.__new__(FetchedTopic)
    size: cython.Py_ssize_t = 16 if cursor.by_id else cursor.count()
    if size < 0 or not cursor.has(size):
        return None
    name: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, cursor.at), size)
    cursor.at += size
    if cursor.by_id:
        topic.id = name
    else:
        try:
            topic.name = name.decode()
        except UnicodeDecodeError:
            return None
    count: cython.Py_ssize_t = cursor.count()
    if count < 0:
        return None
    topic.partitions = []
    while count > 0:
        count -= 1
        partition: FetchedPartition = _read_partition(cursor)
        if partition is None:
            return None
        topic.partitions.append(partition)
    return topic if cursor.no_tags() else None


@cython.cfunc
def _read_partition(cursor: Cursor) -> FetchedPartition:
    found: FetchedPartition = FetchedPartition.__new__(FetchedPartition)
    if not cursor.has(30):
        return None
    found.partition_index, found.error_code = int32_at(cursor.at), int16_at(cursor.at + 4)
    found.high_watermark = int64_at(cursor.at + 6)
    cursor.at += 30  # the last stable offset and the start of the log are not used
    if not _read_aborted(cursor, found) or not cursor.has(4):
        return None
    found.preferred_read_replica = int32_at(cursor.at)
    cursor.at += 4
    size: cython.Py_ssize_t = cursor.count()
    if size < -1:
        return None
    if size >= 0:
        start: cython.Py_ssize_t = cursor.at - cursor.begin
        found.records = cursor.source[start:start + size]
        cursor.at += size
    return found if cursor.no_tags() else None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _read_aborted(cursor: Cursor, found: FetchedPartition) -> cython.bint:
    count: cython.Py_ssize_t = cursor.count()
    if count < -1:
        return False
    if count < 0:
        return True
    found.aborted_transactions = []
    while count > 0:
        count -= 1
        if not cursor.has(17) or cursor.at[16]:
            return False
        found.aborted_transactions.append(_aborted(int64_at(cursor.at), int64_at(cursor.at + 8)))
        cursor.at += 17
    return True


@cython.cfunc
def _aborted(producer_id: int64_t, first_offset: int64_t) -> AbortedTransaction:
    made: AbortedTransaction = AbortedTransaction.__new__(AbortedTransaction)
    made.producer_id, made.first_offset = producer_id, first_offset
    return made


@cython.cfunc
def _general(message: object) -> FetchResponse:
    """What kio's entity holds."""
    made: FetchResponse = FetchResponse.__new__(FetchResponse)
    made.throttle_time = message.throttle_time
    made.error_code = getattr(message, "error_code", 0)  # since version 7, as the session
    made.session_id = getattr(message, "session_id", NO_SESSION)
    made.node_endpoints = tuple(getattr(message, "node_endpoints", ()))
    made.topics = [_general_topic(each) for each in message.responses]
    return made


@cython.cfunc
def _general_topic(entity: object) -> FetchedTopic:
    made: FetchedTopic = FetchedTopic.__new__(FetchedTopic)
    if hasattr(entity, "topic"):
        made.name = entity.topic
    else:
        made.id = bytes(16) if entity.topic_id is None else entity.topic_id.bytes
    made.partitions = [_general_partition(each) for each in entity.partitions]
    return made


@cython.cfunc
def _general_partition(entity: object) -> FetchedPartition:
    made: FetchedPartition = FetchedPartition.__new__(FetchedPartition)
    made.partition_index, made.error_code = entity.partition_index, entity.error_code
    made.high_watermark = entity.high_watermark
    made.preferred_read_replica = getattr(entity, "preferred_read_replica", NO_REPLICA)  # since version 11
    made.records = entity.records
    if entity.aborted_transactions is not None:
        made.aborted_transactions = [_aborted(each.producer_id, each.first_offset) for each in entity.aborted_transactions]
    made.diverging_epoch = getattr(entity, "diverging_epoch", None)  # since version 12, as the leader
    made.current_leader = getattr(entity, "current_leader", None)
    return made
