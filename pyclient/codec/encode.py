# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""How records and batches are written: the bytes of record-batch format v2 (KIP-98), and nothing about when or why.

`put_record` is the hot path of the producer: C memory in, C memory out, no Python object, no allocation. The caller
owns the memory and has made room. `batch_header` is separate from the records because producer id, epoch and sequence
are known only when a batch leaves. `encode_batch` is the one-shot form for fixtures, fakes and tools.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.stdint import int64_t, uint8_t, uint32_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.crc import combine_crcs, crc_of_few
from cython.cimports.pyclient.codec.varints import put_uvarint, uvarint_size, zigzag

from pyclient.codec.compression import Compression, compress
from pyclient.codec.crc import crc32c
from pyclient.errors import with_article
from pyclient.records import TimestampType

HEADER_SIZE = 61  # bytes before the first record
CRC_END = 21  # the CRC covers everything from here on
LENGTH_END = 12  # batchLength counts the bytes from here on
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


# --- integers -------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def varint_size(value: int64_t) -> cython.Py_ssize_t:
    """Bytes that `put_varint` writes: one for every seven bits of the zig-zag number."""
    return uvarint_size(zigzag(value))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_varint(at: cython.p_uchar, value: int64_t) -> cython.p_uchar:
    """Write a zig-zag varint; return its end."""
    return put_uvarint(at, zigzag(value))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_int16(at: cython.p_uchar, value: int64_t) -> cython.void:
    at[0] = cython.cast(uint8_t, value >> 8)
    at[1] = cython.cast(uint8_t, value)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_int32(at: cython.p_uchar, value: int64_t) -> cython.void:
    put_int16(at, value >> 16)
    put_int16(at + 2, value)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_int64(at: cython.p_uchar, value: int64_t) -> cython.void:
    put_int32(at, value >> 32)
    put_int32(at + 4, value)


# --- one record -----------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def record_bound(key_len: cython.Py_ssize_t, value_len: cython.Py_ssize_t, headers_len: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Widest form of every varint: length 5, attributes 1, timestamp 10, offset 10, key 5, value 5, headers 1."""
    bound: cython.Py_ssize_t = 37
    if key_len > 0:
        bound += key_len
    if value_len > 0:
        bound += value_len
    if headers_len > 0:
        bound += headers_len
    return bound


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def body_size(
    timestamp_delta: int64_t,
    offset_delta: int64_t,
    key_len: cython.Py_ssize_t,
    value_len: cython.Py_ssize_t,
    headers_len: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Bytes of a record after its length field. Lengths as `put_record` takes them, nulls as -1."""
    size: cython.Py_ssize_t = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    size += varint_size(key_len) + varint_size(value_len)
    if key_len > 0:
        size += key_len
    if value_len > 0:
        size += value_len
    size += headers_len if headers_len > 0 else 1
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def record_size(
    timestamp_delta: int64_t,
    offset_delta: int64_t,
    key_len: cython.Py_ssize_t,
    value_len: cython.Py_ssize_t,
    headers_len: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    if key_len < 0:
        key_len = -1
    if value_len < 0:
        value_len = -1
    body: cython.Py_ssize_t = body_size(timestamp_delta, offset_delta, key_len, value_len, headers_len)
    return body + varint_size(body)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_bytes(at: cython.p_uchar, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.p_uchar:
    """Length and content; a length of -1 alone is a null."""
    at = put_varint(at, size)
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_record(
    at: cython.p_uchar,
    timestamp_delta: int64_t,
    offset_delta: int64_t,
    key: cython.p_const_uchar,
    key_len: cython.Py_ssize_t,
    value: cython.p_const_uchar,
    value_len: cython.Py_ssize_t,
    headers: cython.p_const_uchar,
    headers_len: cython.Py_ssize_t,
) -> cython.p_uchar:
    if key == cython.NULL or key_len < 0:
        key_len = -1
    if value == cython.NULL or value_len < 0:
        value_len = -1
    if headers == cython.NULL:
        headers_len = 0
    at = put_varint(at, body_size(timestamp_delta, offset_delta, key_len, value_len, headers_len))
    at[0] = 0  # attributes: none is defined for a record
    at = put_varint(put_varint(at + 1, timestamp_delta), offset_delta)
    at = put_bytes(put_bytes(at, key, key_len), value, value_len)
    if headers_len > 0:
        memcpy(at, headers, headers_len)
        return at + headers_len
    at[0] = 0  # no headers
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _content(data: bytes | None) -> cython.p_const_uchar:
    """Where the bytes are; NULL for None."""
    if data is None:
        return cython.NULL
    return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _length(data: bytes | None) -> cython.Py_ssize_t:
    """-1 for None."""
    return -1 if data is None else PyBytes_GET_SIZE(data)


# --- headers of a record --------------------------------------------------------------------------------------------


@cython.cfunc
def _header_fault(index: cython.Py_ssize_t, header: object) -> object:
    """The error for a header that is not a `(str, bytes | None)` pair."""
    if not isinstance(header, (tuple, list)) or len(header) != 2:
        return TypeError(
            f"header {index} is {header!r}; a header is a pair (str, bytes | None), "
            "and headers are a list of such pairs (of a dict, pass list(headers.items()))"
        )
    name, value = header
    if not isinstance(name, str):
        return TypeError(f"the name of header {index} is {type(name).__name__} {name!r}, not str; decode it first")
    return TypeError(
        f"the value of header {index} ({name!r}) is {type(value).__name__}, not bytes or None; "
        "encode it first, for instance with str.encode()"
    )


@cython.cfunc
@cython.exceptval(-1, check=False)
def _utf8(index: cython.Py_ssize_t, name: str, text: cython.pointer(cython.p_const_char)) -> cython.Py_ssize_t:
    """Point *text* at the UTF-8 bytes of *name*, which it keeps; return their number."""
    size: cython.Py_ssize_t = 0
    try:
        text[0] = PyUnicode_AsUTF8AndSize(name, cython.address(size))
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the name of header {index}, {name!r}, cannot be written as UTF-8: {error.reason} at character {error.start}"
        ) from None
    return size


@cython.cfunc
def _pairs(headers: object) -> list:
    """Headers as exact tuples `(str, bytes | None)`, which no other thread can change while they are written."""
    pairs: list = []
    if isinstance(headers, (str, bytes, dict)):
        raise TypeError(
            f"headers are {with_article(type(headers).__name__)}; pass a list of (str, bytes | None) pairs"
            + (", list(headers.items())" if isinstance(headers, dict) else "")
        )
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise _header_fault(len(pairs), header)
        name, value = header
        if type(name) is not str or not (value is None or type(value) is bytes):
            raise _header_fault(len(pairs), header)
        pairs.append(header if type(header) is tuple else (name, value))
    return pairs


def encode_headers(headers: object) -> bytes:
    """A record's header section: the number of headers, then each name and value. ``None`` and empty mean no headers.

    Raises:
        TypeError: an item is not a ``(str, bytes | None)`` pair; the message names its index.
        ValueError: a name holds a lone surrogate, which UTF-8 cannot carry.
    """
    pairs: list = [] if headers is None else _pairs(headers)
    pair: tuple
    text: cython.p_const_char = cython.NULL
    size: cython.Py_ssize_t = varint_size(len(pairs))
    length: cython.Py_ssize_t
    index: cython.Py_ssize_t
    for index, pair in enumerate(pairs):
        length = _utf8(index, pair[0], cython.address(text))
        size += varint_size(length) + length
        length = _length(pair[1])
        size += varint_size(length) + max(0, length)
    section: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    at: cython.p_uchar = put_varint(cython.cast(cython.p_uchar, PyBytes_AS_STRING(section)), len(pairs))
    for index, pair in enumerate(pairs):
        length = _utf8(index, pair[0], cython.address(text))
        at = put_bytes(at, cython.cast(cython.p_const_uchar, text), length)
        at = put_bytes(at, _content(pair[1]), _length(pair[1]))
    return section


# --- a batch --------------------------------------------------------------------------------------------------------


def _check_range(name: str, value: object, low: object, high: object) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; a record batch holds {low} to {high}")


def batch_header(
    *,
    records_crc: int,
    records_size: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    last_offset_delta: int | None = None,
) -> bytes:
    """The 61 bytes before the records of a batch.

    ``records_crc`` and ``records_size`` are CRC-32C and length of the records as they are sent (compressed, if they
    are); the header's own part of the checksum is combined with it, so a batch sent again with another sequence costs
    61 bytes, not another pass. ``last_offset_delta`` is ``count - 1`` unless compaction removed records.

    Raises:
        ValueError: a field does not fit its place in the format.
    """
    if last_offset_delta is None:
        last_offset_delta = count - 1 if count else 0
    _check_range("records_size", records_size, 0, 2**31 - 1 - (HEADER_SIZE - LENGTH_END))
    _check_range("records_crc", records_crc, 0, 2**32 - 1)
    _check_range("count", count, 0, 2**31 - 1)
    _check_range("last_offset_delta", last_offset_delta, 0, 2**31 - 1)
    _check_range("attributes", attributes, -(2**15), 2**15 - 1)
    _check_range("base_sequence", base_sequence, -(2**31), 2**31 - 1)
    _check_range("producer_epoch", producer_epoch, -(2**15), 2**15 - 1)
    _check_range("leader_epoch", leader_epoch, -(2**31), 2**31 - 1)
    return _header(records_crc, records_size, count, last_offset_delta, attributes, base_offset, leader_epoch, base_timestamp, max_timestamp,
                   producer_id, producer_epoch, base_sequence)


@cython.cfunc
def header_of_batch(records_crc: uint32_t, records_size: int64_t, count: cython.int, attributes: cython.int, base_timestamp: int64_t,
                    max_timestamp: int64_t, producer_id: int64_t, producer_epoch: cython.int, base_sequence: cython.int) -> bytes:
    """As `batch_header`, of a batch on its way to a broker, whose fields fit."""
    return _header(records_crc, records_size, count, count - 1, attributes, 0, -1, base_timestamp, max_timestamp, producer_id, producer_epoch,
                   base_sequence)


@cython.cfunc
def _header(records_crc: uint32_t, records_size: int64_t, count: int64_t, last_offset_delta: int64_t, attributes: int64_t, base_offset: int64_t,
            leader_epoch: int64_t, base_timestamp: int64_t, max_timestamp: int64_t, producer_id: int64_t, producer_epoch: int64_t,
            base_sequence: int64_t) -> bytes:
    header: bytes = PyBytes_FromStringAndSize(cython.NULL, 61)
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(header))
    put_int64(at, base_offset)
    put_int32(at + 8, records_size + 49)
    put_int32(at + 12, leader_epoch)
    at[16] = 2
    put_int16(at + 21, attributes)
    put_int32(at + 23, last_offset_delta)
    put_int64(at + 27, base_timestamp)
    put_int64(at + 35, max_timestamp)
    put_int64(at + 43, producer_id)
    put_int16(at + 51, producer_epoch)
    put_int32(at + 53, base_sequence)
    put_int32(at + 57, count)
    put_int32(at + 17, combine_crcs(crc_of_few(at + 21, 40), records_crc, records_size))
    return header


@cython.final
@cython.cclass
class _Writer:
    """Writes records into one `bytes` of a size known beforehand, behind room for the header."""

    buffer: bytes
    used: cython.Py_ssize_t
    count: cython.Py_ssize_t
    base: int64_t
    latest: int64_t

    def __cinit__(self, room: cython.Py_ssize_t, base: int64_t) -> None:
        self.buffer = PyBytes_FromStringAndSize(cython.NULL, 61 + room)
        self.used = 61
        self.base = base
        self.latest = base

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def add(
        self, timestamp: int64_t, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> cython.void:
        """Append a record; None is null, headers None is none. The room is there."""
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(self.buffer))
        if self.count == 0 or timestamp > self.latest:
            self.latest = timestamp
        self.used = (
            put_record(
                start + self.used,
                cython.cast(int64_t, cython.cast(uint64_t, timestamp) - cython.cast(uint64_t, self.base)),
                self.count,
                _content(key),
                _length(key),
                _content(value),
                _length(value),
                _content(headers),
                _length(headers),
            )
            - start
        )
        self.count += 1


def _finish(writer: _Writer, compression: object, level: object, fields: dict) -> bytes:
    """Compress what was written, put the header before it."""
    codec = compression if isinstance(compression, Compression) else Compression.named(compression)
    records = compress(codec, memoryview(writer.buffer)[HEADER_SIZE : writer.used], level)
    fields["attributes"] |= int(codec)
    header: bytes = batch_header(
        records_crc=crc32c(records),
        records_size=len(records),
        count=writer.count,
        base_timestamp=writer.base,
        max_timestamp=writer.latest,
        **fields,
    )
    if codec or writer.used != len(writer.buffer):
        return b"".join((header, records))
    # No other code has this bytes object yet, so its first 61 bytes may still be written.
    memcpy(PyBytes_AS_STRING(writer.buffer), PyBytes_AS_STRING(header), 61)
    return writer.buffer


def _attributes(timestamp_type: int, transactional: bool, control: bool) -> int:
    bits = LOG_APPEND_TIME_BIT if timestamp_type == TimestampType.LOG_APPEND_TIME else 0
    bits |= TRANSACTIONAL_BIT if transactional else 0
    return bits | (CONTROL_BIT if control else 0)


def encode_batch(
    records: object,
    *,
    base_offset: int = 0,
    compression: object = "none",
    level: int | None = None,
    base_timestamp: int | None = None,
    timestamp_type: int = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One whole batch from ``(timestamp, key, value, headers)`` tuples, offsets counting from ``base_offset``.

    Timestamps are ms since the epoch; ``base_timestamp`` is the first record's unless given. ``compression`` is a name
    or a `Compression`. Meant for tests, fixtures and fakes: a producer appends with `put_record` instead.

    Raises:
        TypeError: a key or value is neither bytes nor None, or a header is no ``(str, bytes | None)`` pair.
        ValueError: a field does not fit its place, or the level is not one of the codec's.
    """
    checked: list = []
    room: cython.Py_ssize_t = 0
    timestamp: int64_t
    for moment, key, value, headers in records:
        if not (key is None or type(key) is bytes) or not (value is None or type(value) is bytes):
            raise TypeError(
                f"record {len(checked)} has {with_article(type(key).__name__)} key and {with_article(type(value).__name__)} value; both must be bytes or None"
            )
        section = encode_headers(headers) if headers else None
        checked.append((moment, key, value, section))
        room += record_bound(_length(key), _length(value), _length(section))
    if base_timestamp is None:
        base_timestamp = checked[0][0] if checked else -1
    writer: _Writer = _Writer(room, base_timestamp)
    for timestamp, key, value, section in checked:
        writer.add(timestamp, key, value, section)
    fields = {
        "base_offset": base_offset,
        "attributes": _attributes(timestamp_type, transactional, control),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "leader_epoch": leader_epoch,
    }
    return _finish(writer, compression, level, fields)


def encode_values(
    values: object,
    *,
    timestamp: int = 0,
    base_offset: int = 0,
    compression: object = "none",
    level: int | None = None,
) -> bytes:
    """One whole batch of records without key and headers, all of one *timestamp* (ms since the epoch).

    Raises:
        TypeError: a value is neither bytes nor None.
        ValueError: the level is not one of the codec's.
    """
    items: list = list(values)  # a copy: no other thread can change it while C reads it
    room: cython.Py_ssize_t = 0
    position: cython.Py_ssize_t
    for position, value in enumerate(items):
        if not (value is None or type(value) is bytes):
            raise TypeError(f"value {position} is {with_article(type(value).__name__)}; it must be bytes or None")
        room += record_size(0, position, -1, _length(value), 0)
    writer: _Writer = _Writer(room, timestamp)
    for value in items:
        writer.add(timestamp, None, value, None)
    return _finish(writer, compression, level, {"base_offset": base_offset, "attributes": 0})
