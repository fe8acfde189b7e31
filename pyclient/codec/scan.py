# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Whether bytes are records: one pass over all of them, in which every length is checked before it is used.

Runs without the GIL, allocates nothing and stops at the first fault. What it has passed may be read without any check
(`parse.pxd`). Numbers may be written longer than needed, as some clients do, but not wider than their type.
"""
import cython
from cython.cimports.libc.stdint import int64_t, uint32_t, uint64_t
from cython.cimports.libc.string import memset
from cython.cimports.pyclient.codec.utf8 import is_utf8

SMALLEST_BODY = cython.declare(cython.int, 6)  # attributes, timestamp, offset, key, value, headers: a byte each
MOST_HEADERS = cython.declare(cython.int, 1_000_000)  # of a record: each becomes an object when the record is looked at (B10)
LONGEST_HEAD = cython.declare(cython.int, 11)  # of a short record: length, attributes, timestamp, offset and key's length take 2, 1, 3, 3, 2

# What may be wrong with a record, by the number in `Scan.fault`, as the end of a sentence about it.
_FAULTS: tuple = (
    "",
    "its length field is damaged or runs past the end of the batch",
    "its length is not that of its fields",
    "a number in it is damaged (a varint that is too long or does not end)",
    "its offset is not between those of the record before it and the end of the batch",
    "its key is longer than the record",
    "its value is longer than the record",
    "its number of headers is negative or more than the record can hold",
    "a header's name is null or longer than the record",
    "a header's value is longer than the record",
    "it has more than 1,000,000 headers",
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _long_varint(scan: cython.pointer(Scan), widest: cython.int) -> int64_t:
    """A zig-zag varint of at most *widest* bits; one that does not fit or end sets the fault and returns 0."""
    raw: uint64_t = 0
    low: uint64_t
    shift: cython.int = 0
    while scan.at < scan.end and shift < widest:
        low = scan.at[0]
        scan.at += 1
        if shift + 7 > widest and (low & 0x7F) >> (widest - shift):
            break
        raw |= (low & 0x7F) << shift
        if low < 0x80:
            return cython.cast(int64_t, (raw >> 1) ^ (0 - (raw & 1)))
        shift += 7
    scan.fault = scan.fault or 3
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(scan: cython.pointer(Scan), widest: cython.int) -> int64_t:
    """As `_long_varint`; one and two bytes are decoded here."""
    raw: uint64_t
    if scan.end - scan.at >= 2:
        raw = scan.at[0]
        if raw < 0x80:
            scan.at += 1
            return cython.cast(int64_t, (raw >> 1) ^ (0 - (raw & 1)))
        if scan.at[1] < 0x80:
            raw = (raw & 0x7F) | (cython.cast(uint64_t, scan.at[1]) << 7)
            scan.at += 2
            return cython.cast(int64_t, (raw >> 1) ^ (0 - (raw & 1)))
    return _long_varint(scan, widest)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _bytes(scan: cython.pointer(Scan), fault: cython.int) -> int64_t:
    """Read a length and skip its content; return the length, -1 for null. Too long sets *fault*."""
    size: int64_t = _varint(scan, 32)
    if size < -1 or size > scan.end - scan.at:
        scan.fault = scan.fault or fault
        return -1
    if size > 0:
        scan.at += size
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _scan_headers(scan: cython.pointer(Scan), totals: cython.pointer(Totals), count: int64_t) -> cython.void:
    size: int64_t
    if count < 0 or count > (scan.end - scan.at) // 2:  # a header has at least two lengths
        scan.fault = 7
        return
    if count > MOST_HEADERS:
        scan.fault = 10
        return
    totals.headers += count
    while count and not scan.fault:
        size = _bytes(scan, 8)
        if size < 0:
            scan.fault = scan.fault or 8
        elif not is_utf8(scan.at - size, size):
            scan.unreadable_names += 1
        totals.header_name_bytes += size
        size = _bytes(scan, 9)
        if size < 0:
            totals.null_header_values += 1
        else:
            totals.header_value_bytes += size
        count -= 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _scan_record(scan: cython.pointer(Scan), totals: cython.pointer(Totals), before: int64_t, last: int64_t) -> int64_t:
    """Check one record and add it to *totals*. Return its offset delta: above *before*, at most *last*."""
    rest: cython.p_const_uchar = scan.end
    size: int64_t = _varint(scan, 32)
    delta: int64_t
    headers: int64_t
    if scan.fault or size < SMALLEST_BODY or size > rest - scan.at:
        scan.fault = 1
        return 0
    scan.end = scan.at + size
    scan.at += 1  # attributes: none is defined
    _varint(scan, 64)  # the timestamp: any is possible
    delta = _varint(scan, 32)
    if delta <= before or delta > last:
        scan.fault = scan.fault or 4
        return 0
    size = _bytes(scan, 5)
    if size < 0:
        totals.null_keys += 1
    else:
        totals.key_bytes += size
    size = _bytes(scan, 6)
    if size < 0:
        totals.null_values += 1
    else:
        totals.value_bytes += size
    headers = _varint(scan, 32)
    if headers and not scan.fault:
        _scan_headers(scan, totals, headers)
    if scan.at != scan.end:
        scan.fault = scan.fault or 2
    scan.end = rest
    return delta


# --- short records ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_varint(at: cython.p_const_uchar, value: cython.pointer(int64_t), three: cython.bint) -> cython.p_const_uchar:
    """Read a varint of at most two bytes (*three* if set), all readable. Return its end, NULL when it is longer."""
    raw: uint64_t = at[0]
    if raw < 0x80:
        at += 1
    elif at[1] < 0x80:
        raw = (raw & 0x7F) | (cython.cast(uint64_t, at[1]) << 7)
        at += 2
    elif three and at[2] < 0x80:
        raw = (raw & 0x7F) | (cython.cast(uint64_t, at[1] & 0x7F) << 7) | (cython.cast(uint64_t, at[2]) << 14)
        at += 3
    else:
        return cython.NULL
    value[0] = cython.cast(int64_t, (raw >> 1) ^ (0 - (raw & 1)))
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _short_record(
    at: cython.p_const_uchar, end: cython.p_const_uchar, totals: cython.pointer(Totals), delta: cython.pointer(int64_t), last: int64_t
) -> cython.p_const_uchar:
    """Where the record at *at* ends if it is sound, without headers and with short numbers.

    NULL decides nothing: `_scan_record` does. Nearly all records are of this kind and take half the time here, because
    everything stays in registers.
    """
    number: int64_t = 0
    key: int64_t = 0
    value: int64_t = 0
    if end - at < LONGEST_HEAD:
        return cython.NULL
    at = _short_varint(at, cython.address(number), False)
    if at == cython.NULL or number < SMALLEST_BODY or number > end - at:
        return cython.NULL
    end = at + number
    at = _short_varint(at + 1, cython.address(number), True)  # after the attributes: the timestamp
    if at == cython.NULL:
        return cython.NULL
    at = _short_varint(at, cython.address(number), True)
    if at == cython.NULL or number <= delta[0] or number > last:
        return cython.NULL
    at = _short_varint(at, cython.address(key), False)
    if at == cython.NULL or key < -1 or key > end - at:
        return cython.NULL
    at += max(0, key)
    if end - at < 2:
        return cython.NULL
    at = _short_varint(at, cython.address(value), False)
    if at == cython.NULL or value < -1 or end - at != (max(0, value)) + 1 or (end - 1)[0] != 0:
        return cython.NULL
    delta[0] = number
    if key < 0:
        totals.null_keys += 1
    else:
        totals.key_bytes += key
    if value < 0:
        totals.null_values += 1
    else:
        totals.value_bytes += value
    return end


# --- all records ------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_records(
    scan: cython.pointer(Scan),
    totals: cython.pointer(Totals),
    index: cython.pointer(uint32_t),
    count: cython.Py_ssize_t,
    last: int64_t,
) -> cython.Py_ssize_t:
    start: cython.p_const_uchar = scan.at
    after: cython.p_const_uchar
    delta: int64_t = -1
    position: cython.Py_ssize_t
    scan.fault = 0
    scan.unreadable_names = 0
    memset(totals, 0, cython.sizeof(Totals))
    for position in range(count):
        index[position] = cython.cast(uint32_t, scan.at - start)
        after = _short_record(scan.at, scan.end, totals, cython.address(delta), last)
        if after != cython.NULL:
            scan.at = after
            continue
        delta = _scan_record(scan, totals, delta, last)
        if scan.fault:
            return position
    return count


@cython.cfunc
def fault_text(fault: cython.int) -> str:
    return _FAULTS[fault]
