# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Where batches begin and end in a response: the fixed headers of the formats 0, 1 and 2.

Before format 2 there were no batches: every message stands for itself, and a compressed one holds others. Uncompressed
messages in a row are read as one batch, so that a response of small messages needs few objects. Brokers of 4.x still
return both formats from old segments (KIP-724).
Independent of records.
"""
import cython
from cython.cimports.libc.stdint import int8_t, int64_t
from cython.cimports.pyclient.codec.parse import int32_at, int64_at, uint32_at

SMALLEST = cython.declare(cython.int, 14)  # of the length field: a message of format 0 without key and value
TO_MAGIC = cython.declare(cython.int, 17)  # bytes up to the magic byte, which decides how to read the rest
LARGEST_OFFSET = cython.declare(int64_t, 0x7FFFFFFFFFFFFFFE)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _magic(at: cython.p_const_uchar) -> cython.int:
    return cython.cast(int8_t, at[16])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def whole_size(at: cython.p_const_uchar, rest: cython.Py_ssize_t) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t
    if rest < TO_MAGIC:
        return 0
    size = 12 + cython.cast(cython.Py_ssize_t, int32_at(at + 8))
    return size if size <= rest else 0


@cython.cfunc
def header_fault(at: cython.p_const_uchar, rest: cython.Py_ssize_t, size: cython.Py_ssize_t) -> str:
    length: cython.int = int32_at(at + 8)
    if length < SMALLEST:
        return f"its length is {length}, and no record takes less than {SMALLEST} bytes: this is no record batch"
    if rest < TO_MAGIC:
        return None
    if _magic(at) < 0:
        return f"its magic byte is {_magic(at)}: this is no record batch"
    if _magic(at) > 2:
        return f"its message format is {_magic(at)}, and this client knows 0 to 2; a newer client may read it"
    if size == 0:
        return None
    return _batch_fault(at, size) if _magic(at) == 2 else _message_fault(at, size)


@cython.cfunc
def _batch_fault(at: cython.p_const_uchar, size: cython.Py_ssize_t) -> str:
    if size < 61:
        return f"its length is {size} bytes, and the header alone takes 61"
    if at[22] & 7 > 4:
        return f"its compression is {at[22] & 7}, and this client knows 0 to 4; a newer client may read it"
    if int32_at(at + 57) < 0 or int32_at(at + 23) < 0:
        return f"it counts {int32_at(at + 57)} records, the last one {int32_at(at + 23)} after the first"
    if int64_at(at) < 0 or int64_at(at) > LARGEST_OFFSET - int32_at(at + 23):
        return f"its first offset is {int64_at(at)}, its last one {int32_at(at + 23)} after that"
    return None


# --- formats 0 and 1 ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _overhead(magic: cython.int) -> cython.Py_ssize_t:
    """Size of a message without key and value: offset, length, CRC, magic, attributes, [timestamp,] two lengths."""
    return 34 if magic else 26


@cython.cfunc
def _message_fault(at: cython.p_const_uchar, size: cython.Py_ssize_t) -> str:
    if size < _overhead(_magic(at)):
        return f"its length is {size} bytes, and a message of format {_magic(at)} takes at least {_overhead(_magic(at))}"
    if at[17] & 7 > 3:
        return f"its compression is {at[17] & 7}, and message format {_magic(at)} has 0 to 3"
    if int64_at(at) < 0 or int64_at(at) > LARGEST_OFFSET:
        return f"its offset is {int64_at(at)}"
    return None


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_message(at: cython.p_const_uchar, message: cython.pointer(Message)) -> cython.bint:
    end: cython.p_const_uchar
    message.offset = int64_at(at)
    message.size = 12 + cython.cast(cython.Py_ssize_t, int32_at(at + 8))
    message.crc = uint32_at(at + 12)
    message.magic = cython.cast(int8_t, at[16])
    message.attributes = cython.cast(int8_t, at[17])
    message.timestamp = int64_at(at + 18) if message.magic else -1
    end = at + message.size
    at += _overhead(message.magic) - 8
    message.key = at + 4
    message.key_len = max(-1, int32_at(at))  # Java reads any negative length as null
    if message.key_len > end - at - 8:
        return False
    at = message.key + max(0, message.key_len)
    message.value = at + 4
    message.value_len = max(-1, int32_at(at))
    return message.value_len <= end - message.value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _goes_on(run: cython.pointer(Run), at: cython.p_const_uchar, rest: cython.Py_ssize_t) -> cython.bint:
    """Whether the message at *at* belongs to *run*, uncompressed as the others."""
    size: cython.Py_ssize_t = whole_size(at, rest)
    offset: int64_t
    if size == 0 or _magic(at) != run.magic or size < _overhead(run.magic) or at[17] & 7:
        return False
    offset = int64_at(at)
    if offset <= run.last_offset or offset - run.first_offset > 0x7FFFFFFF or offset > LARGEST_OFFSET:
        return False
    return run.magic == 0 or run.timestamp_type == (at[17] >> 3) & 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def measure_run(at: cython.p_const_uchar, rest: cython.Py_ssize_t, run: cython.pointer(Run)) -> cython.void:
    size: cython.Py_ssize_t = whole_size(at, rest)
    run.magic = cython.cast(int8_t, at[16])
    run.codec = at[17] & 7
    run.timestamp_type = (at[17] >> 3) & 1 if run.magic else -1
    run.first_offset = run.last_offset = int64_at(at)
    run.max_timestamp = int64_at(at + 18) if run.magic else -1
    run.count = 1
    run.size = size
    if run.codec:
        return
    while _goes_on(run, at + size, rest - size):
        at += size
        rest -= size
        size = whole_size(at, rest)
        run.last_offset = int64_at(at)
        run.count += 1
        run.size += size
        if run.magic:
            run.max_timestamp = max(run.max_timestamp, int64_at(at + 18))
