# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Java's default hash of record keys. Byte-identical, or the same key lands on another partition than Java's.

Compiled under its own name; the same text runs as plain Python, where the masks do what C's 32 bits do implicitly.
Compiled, ``-> int`` returns a plain int: a method that may return `STICKY` declares it, or it would return -1.
"""
import cython

if cython.compiled:
    from cython.cimports.cpython.pycapsule import PyCapsule_New

from pyclient.plugins import KEY_HASH, STICKY, Partitions, Sticky


@cython.cclass
class Murmur2Partitioner:
    """murmur2 of the key, as Java's default partitioner and librdkafka's ``murmur2_random``."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int | Sticky:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        if key is None:
            return STICKY  # a statement of its own: in one expression with a C number it would be converted to one
        return _positive(key, len(key)) % len(partitions)

    def key_hash(self) -> object:
        """See `pyclient.plugins.HashesKeys`."""
        if cython.compiled:
            return PyCapsule_New(cython.cast(cython.p_void, _positive), KEY_HASH, cython.NULL)
        return None


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of *data* with Kafka's seed, unsigned (Java's ``Utils.murmur2`` is signed)."""
    return _hash(data, len(data))


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition that Java's producer chooses for *key* among *partitions* (P30), available or not."""
    if partitions < 1:
        raise ValueError(f"a topic has at least 1 partition, not {partitions}")
    return _positive(key, len(key)) % partitions


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _positive(source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.uint:
    return _hash(source, size) & 0x7FFFFFFF


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash(source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.uint:
    mask: cython.uint = 0xFFFFFFFF
    factor: cython.uint = 0x5BD1E995
    seed: cython.uint = 0x9747B28C
    word: cython.uint
    state: cython.uint
    whole: cython.Py_ssize_t = size - size % 4
    at: cython.Py_ssize_t = 0
    state = seed ^ (size & mask)
    while at < whole:
        word = source[at]
        word |= source[at + 1] << 8
        word |= source[at + 2] << 16
        word |= (source[at + 3] << 24) & mask
        word = (word * factor) & mask
        word ^= word >> 24
        word = (word * factor) & mask
        state = ((state * factor) & mask) ^ word
        at += 4
    if size > whole:
        word = source[whole]
        if size > whole + 1:
            word |= source[whole + 1] << 8
        if size > whole + 2:
            word |= source[whole + 2] << 16
        state = ((state ^ word) * factor) & mask
    state ^= state >> 13
    state = (state * factor) & mask
    state ^= state >> 15
    return state
