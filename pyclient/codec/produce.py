# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""A Produce request as a list of pieces, so that record bytes are never copied on their way to the socket.

The only request that carries records; kio would copy them. Tested byte for byte against kio in every version.
`stored_response` reads the response that nearly every request gets, without an entity for each part.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import int64_t
from cython.cimports.pyclient.codec.entity_writer import Writer
from cython.cimports.pyclient.codec.parse import int16_at, int32_at, int64_at

from datetime import timedelta

from pyclient.codec.apis import Api

TOPIC_IDS_SINCE = 13
"""Produce names topics by id from this version on (KIP-516)."""
BY_ID_SINCE = cython.declare(cython.int, TOPIC_IDS_SINCE)
FLEXIBLE_SINCE = cython.declare(cython.int, 9)
SMALLEST_RESPONSE = cython.declare(cython.Py_ssize_t, 47)
"""With an empty name."""
AROUND_TOPIC = cython.declare(cython.Py_ssize_t, 46)
"""Bytes of such a response without the name or the id of its topic."""
NOT_THROTTLED = timedelta(0)
LATEST = cython.declare(int64_t, 253_402_300_799_999)
"""ms: the end of the year 9999, the last time that Python can name."""
_PRODUCE = cython.declare(cython.int, int(Api.PRODUCE))


@cython.ccall
def encode_produce(version: cython.int, correlation_id: cython.uint, client_id: str | None, acks: cython.int, timeout_ms: cython.uint,
                   topics: dict, transactional_id: str | None = None) -> list:
    """The request's bytes in order, header included, frame length not.

    Keys of *topics* are the bytes of ids from v13 on, else names; values are pairs of a partition and the pieces of its
    record batches.
    """
    out: Writer = Writer()
    pieces: list = []
    flexible: cython.bint = version >= FLEXIBLE_SINCE
    out.header(_PRODUCE, version, correlation_id, client_id, flexible)
    out.text(transactional_id, flexible)
    out.integer(acks, 2)
    out.integer(timeout_ms, 4)
    out.length(len(topics), flexible, 4)
    for topic, partitions in topics.items():
        if version >= TOPIC_IDS_SINCE:
            out.raw(topic)
        else:
            out.text(topic, flexible)
        out.length(len(partitions), flexible, 4)
        for partition, records in partitions:
            _records(out, pieces, partition, records, flexible)
        out.end(flexible)
    out.end(flexible)
    pieces.append(out.take())
    return pieces


@cython.cfunc
@cython.exceptval(-1, check=False)
def _records(out: Writer, pieces: list, partition: cython.int, records: object, flexible: cython.bint) -> cython.int:
    """What was written so far becomes a piece; the records are pieces of their own."""
    size: cython.Py_ssize_t = 0
    for piece in records:
        size += len(piece)
    out.integer(partition, 4)
    out.length(size, flexible, 4)
    pieces.append(out.take())
    pieces.extend(records)
    return out.end(flexible)


# --- the response ----------------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class StoredResponse:
    """The response to a request of one batch, which is stored.

    *topic* is its name, or the bytes of its id from v13 on. *append_time* in ms is -1 when the records keep the
    producer's timestamps; *throttle_time* is a timedelta, as in kio's entities. The fields are declared in produce.pxd.
    """


@cython.ccall
def stored_response(version: cython.int, frame: bytes) -> StoredResponse:
    """The response in *frame*, header included, if it holds one stored batch and nothing unusual, else None.

    `decode_response` reads every response, this one those of nearly every request in a fraction of the time. Compact
    lengths count themselves: an array of one has the length 2.
    """
    at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(frame))
    by_id: cython.bint = version >= BY_ID_SINCE
    if version < FLEXIBLE_SINCE or PyBytes_GET_SIZE(frame) < SMALLEST_RESPONSE:
        return None
    size: cython.Py_ssize_t = 16 if by_id else at[6]
    if PyBytes_GET_SIZE(frame) != size + AROUND_TOPIC or at[4] or at[5] != 2:  # tags of the header, number of topics
        return None
    part: cython.p_const_uchar = at + 6 + size
    end: cython.p_const_uchar = part + 31
    if part[0] != 2 or int16_at(part + 5) or end[0] != 1 or end[1] or end[2] or end[3] or end[8]:
        return None  # several partitions, an error, record errors, a text, or tags
    append_time: int64_t = int64_at(part + 15)
    if not -1 <= append_time <= LATEST:
        return None
    found: StoredResponse = StoredResponse.__new__(StoredResponse)
    found.topic = PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame) + 6, 16) if by_id else str(frame[7:6 + size], "utf-8", "replace")  # damage is no name of ours
    found.partition, found.base_offset, found.append_time = int32_at(part + 1), int64_at(part + 7), append_time
    throttled: cython.int = int32_at(end + 4)
    found.throttle_time = timedelta(milliseconds=throttled) if throttled else NOT_THROTTLED
    return found
