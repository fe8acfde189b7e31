# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""CRC-32C (Castagnoli): of bytes, and of joined parts from the CRCs of each.

A batch's checksum covers producer id, epoch and sequence, which are known only when the batch is sent, long after its
records were checksummed. So the two parts are summed apart and combined: the cost grows with the number of
bits of the length.
"""
import cython
from cython.cimports.libc.stdint import uint32_t, uint64_t

import importlib
import sys
from importlib.machinery import PathFinder

__all__ = ["combine", "crc32c"]


def _loaded():
    """The function of crc32c, from its extension alone: the package reads its own version, which takes long."""
    package = PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if "crc32c" in sys.modules or spec is None:  # it is there already, or in an archive
        return importlib.import_module("crc32c").crc32c
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return module.crc32c


crc32c = _loaded()

# The polynomial, bits reversed; declared in C because a Python constant above 2**31 would be an object in `nogil` code.
_POLYNOMIAL = cython.declare(uint32_t, 0x82F63B78)
_POWERS = cython.declare(uint32_t[32])  # _POWERS[k] is x**(2**k) modulo the polynomial
_OF_BYTE = cython.declare(uint32_t[256])  # what each byte changes
_SHIFTS = cython.declare(uint64_t[64])
"""Of lengths that were used: the length, and its shift in the lower half. Each is read and written at once."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def multiply(a: uint32_t, b: uint32_t) -> uint32_t:
    """Product of two polynomials over GF(2), modulo the CRC's."""
    product: uint32_t = 0
    mask: uint32_t = 0x80000000
    while mask:
        if a & mask:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL & (0 - (b & 1)))
        mask >>= 1
    return product


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def combine_crcs(first: uint32_t, second: uint32_t, length: uint64_t) -> uint32_t:
    """CRC of ``a + b`` from the CRCs of ``a`` and ``b`` and the length of ``b``: shifts *first* over *length* bytes."""
    kept: uint64_t = _SHIFTS[length & 63]
    if kept >> 32 != length or kept == 0:
        kept = length << 32 | _shift_over(length)
        if length >> 32 == 0:
            _SHIFTS[length & 63] = kept
    return multiply(cython.cast(uint32_t, kept), first) ^ second


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _shift_over(length: uint64_t) -> uint32_t:
    """The power of x to the number of bits, modulo the polynomial; never 0."""
    shift: uint32_t = 0x80000000
    k: cython.int = 3  # a byte is 2**3 bits
    while length:
        if length & 1:
            shift = multiply(_POWERS[k & 31], shift)
        length >>= 1
        k += 1
    return shift


@cython.cfunc
def _fill_powers() -> cython.void:
    k: cython.int
    _POWERS[0] = 0x40000000
    for k in range(31):
        _POWERS[k + 1] = multiply(_POWERS[k], _POWERS[k])


@cython.cfunc
def _fill_bytes() -> cython.void:
    number: cython.int
    left: cython.int
    for number in range(256):
        crc: uint32_t = number
        for left in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL & (0 - (crc & 1)))
        _OF_BYTE[number] = crc


_fill_powers()
_fill_bytes()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def crc_of_few(at: cython.p_const_uchar, size: cython.Py_ssize_t) -> uint32_t:
    """As `crc32c`, of a header: for so few bytes a call of Python's takes longer than the sum."""
    crc: uint32_t = 0xFFFFFFFF
    number: cython.Py_ssize_t
    for number in range(size):
        crc = (crc >> 8) ^ _OF_BYTE[(crc ^ at[number]) & 0xFF]
    return ~crc


def combine(first: uint32_t, second: uint32_t, length: uint64_t) -> int:
    """CRC-32C of two byte strings joined, from each one's CRC and the *length* in bytes of the second.

    Raises:
        OverflowError: a CRC outside 0 … 2**32-1, or a negative length.
    """
    return combine_crcs(first, second, length)
