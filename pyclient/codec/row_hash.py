# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Hashes of rows that are Arrow columns, with no Python object per row.

A row's share is chosen by XXH64 of its key, as Spark's ``xxhash64`` computes it: by its value if it has no key. All
that a row holds goes into its digest; the digests' sum is the same for the same rows in any order and in any batches.
Knows columns; knows neither Spark nor producers.
"""
import cython
from cython.cimports.libc.stdint import int64_t, uint8_t, uint32_t, uint64_t
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy
from cython.cimports.pyclient.codec.arrow_columns import DAMAGED, Column, damage, header_section, is_null, number_at, section_bound, value_at

P1 = cython.declare(uint64_t, 0x9E3779B185EBCA87)
P2 = cython.declare(uint64_t, 0xC2B2AE3D27D4EB4F)
P3 = cython.declare(uint64_t, 0x165667B19E3779F9)
P4 = cython.declare(uint64_t, 0x85EBCA77C2B2AE63)
P5 = cython.declare(uint64_t, 0x27D4EB2F165667C5)
SEED = cython.declare(uint64_t, 42)


def digest_rows(
    rows: cython.Py_ssize_t, shares: cython.Py_ssize_t, key: Column | None, value: Column | None, others: tuple, headers: Column | None
) -> tuple[int, int, int]:
    """The sum of the rows' digests, of 64 bits, and the lowest and highest share of a row among *shares*.

    *others* are columns of bytes or numbers. Rows are compared that have the same columns.

    Raises:
        ValueError: the offsets of a column are damaged.
    """
    total: uint64_t = 0
    state: uint64_t
    row: cython.Py_ssize_t
    low: cython.Py_ssize_t = shares
    high: cython.Py_ssize_t = -1
    share: cython.Py_ssize_t
    for row in range(rows):
        state = _bytes(key, row, SEED)
        if key is None or is_null(key, row):
            share = _share(value, row, shares)
        else:
            share = _rest(cython.cast(int64_t, state), shares)
        low = min(low, share)
        high = max(high, share)
        state = _bytes(value, row, state)
        for column in others:
            state = _any(column, row, state)
        if headers is not None:
            state = _headers(headers, row, state)
        total += state
    return total, low, high


@cython.cfunc
@cython.exceptval(-1, check=False)
def _share(value: Column | None, row: cython.Py_ssize_t, shares: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """By the value; Spark's hash of null is its seed."""
    if value is None or is_null(value, row):
        return _rest(cython.cast(int64_t, SEED), shares)
    return _rest(cython.cast(int64_t, _bytes(value, row, SEED)), shares)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _rest(number: int64_t, shares: cython.Py_ssize_t) -> cython.Py_ssize_t:
    rest: cython.Py_ssize_t = number % shares
    return rest + shares if rest < 0 else rest


# --- one column of one row ---


@cython.cfunc
@cython.exceptval(-1, check=True)
def _bytes(column: Column | None, row: cython.Py_ssize_t, seed: uint64_t) -> uint64_t:
    """Null is other than empty."""
    size: cython.Py_ssize_t = 0
    data: cython.p_const_uchar = value_at(column, row, cython.address(size))
    if size == DAMAGED:
        raise damage("keys, values or topics")
    return _null(seed) if size < 0 else xxh64(data, size, seed)


@cython.cfunc
@cython.exceptval(-1, check=True)
def _any(column: Column, row: cython.Py_ssize_t, seed: uint64_t) -> uint64_t:
    number: int64_t
    if is_null(column, row):
        return _null(seed)
    if column.offsets != cython.NULL:
        return _bytes(column, row, seed)
    number = number_at(column, row)
    return xxh64(cython.cast(cython.p_const_uchar, cython.address(number)), 8, seed)


@cython.cfunc
@cython.exceptval(-1, check=True)
def _headers(headers: Column, row: cython.Py_ssize_t, seed: uint64_t) -> uint64_t:
    """No headers are the same as null: records do not distinguish them."""
    room: cython.Py_ssize_t = section_bound(headers, row, row + 1)
    size: cython.Py_ssize_t
    if not room:
        return _null(seed)
    section: cython.p_uchar = cython.cast(cython.p_uchar, malloc(room))
    if section == cython.NULL:
        raise MemoryError
    try:
        size = header_section(headers, row, section, room)
        return xxh64(section, size, seed) if size else _null(seed)
    finally:
        free(section)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _null(seed: uint64_t) -> uint64_t:
    return (seed ^ P3) * P1


# --- XXH64 ---


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def xxh64(at: cython.p_const_uchar, size: cython.Py_ssize_t, seed: uint64_t) -> uint64_t:
    left: cython.Py_ssize_t = size
    word: uint32_t = 0
    state: uint64_t = seed + P5
    if size >= 32:
        state = _stripes(at, size, seed)
        at += size & ~cython.cast(cython.Py_ssize_t, 31)
        left &= 31
    state += cython.cast(uint64_t, size)
    while left >= 8:
        state = _turned(state ^ _mixed(0, _word(at)), 27) * P1 + P4
        at += 8
        left -= 8
    if left >= 4:
        memcpy(cython.address(word), at, 4)
        state = _turned(state ^ (word * P1), 23) * P2 + P3
        at += 4
        left -= 4
    while left > 0:
        state = _turned(state ^ (cython.cast(uint64_t, at[0]) * P5), 11) * P1
        at += 1
        left -= 1
    state = (state ^ (state >> 33)) * P2
    state = (state ^ (state >> 29)) * P3
    return state ^ (state >> 32)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _stripes(at: cython.p_const_uchar, size: cython.Py_ssize_t, seed: uint64_t) -> uint64_t:
    """The whole 32 bytes at its beginning."""
    one: uint64_t = seed + P1 + P2
    two: uint64_t = seed + P2
    three: uint64_t = seed
    four: uint64_t = seed - P1
    while size >= 32:
        one = _mixed(one, _word(at))
        two = _mixed(two, _word(at + 8))
        three = _mixed(three, _word(at + 16))
        four = _mixed(four, _word(at + 24))
        at += 32
        size -= 32
    state: uint64_t = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
    return _merged(_merged(_merged(_merged(state, one), two), three), four)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(at: cython.p_const_uchar) -> uint64_t:
    word: uint64_t = 0
    memcpy(cython.address(word), at, 8)
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _turned(number: uint64_t, bits: uint8_t) -> uint64_t:
    return (number << bits) | (number >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _mixed(state: uint64_t, word: uint64_t) -> uint64_t:
    return _turned(state + word * P2, 31) * P1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _merged(state: uint64_t, lane: uint64_t) -> uint64_t:
    return (state ^ _mixed(0, lane)) * P1 + P4
