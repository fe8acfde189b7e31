# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Sarama's hash of record keys, also in librdkafka: the absolute value of FNV-1a as a signed number.

Compiled under its own name; the same text runs as plain Python, where the mask does what C's 32 bits do implicitly.
Compiled, ``-> int`` returns a plain int: a method that may return `STICKY` declares it, or it would return -1.
"""
import cython

if cython.compiled:
    from cython.cimports.cpython.pycapsule import PyCapsule_New

from pyclient.plugins import KEY_HASH, STICKY, Partitions, Sticky


@cython.cclass
class Fnv1aPartitioner:
    """FNV-1a of the key, as Sarama's hash partitioner and librdkafka's ``fnv1a_random``."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int | Sticky:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        if key is None:
            return STICKY  # a statement of its own: in one expression with a C number it would be converted to one
        return _hash(key, len(key)) % len(partitions)

    def key_hash(self) -> object:
        """See `pyclient.plugins.HashesKeys`."""
        if cython.compiled:
            return PyCapsule_New(cython.cast(cython.p_void, _hash), KEY_HASH, cython.NULL)
        return None


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash of *data*; from 2^31 on its distance to 2^32, because Go and C read it as negative."""
    return _hash(data, len(data))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash(source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.uint:
    mask: cython.uint = 0xFFFFFFFF
    prime: cython.uint = 0x01000193
    state: cython.uint = 0x811C9DC5
    negative: cython.uint = 0x80000000
    at: cython.Py_ssize_t = 0
    while at < size:
        state = ((state ^ source[at]) * prime) & mask
        at += 1
    return (mask - state) + 1 if state > negative else state
