"""The arguments of a send: the accepted bytes, partitions, timestamps and headers, and the errors for all else."""
from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, Final, SupportsIndex, TypeAlias

from pyclient.codec.encode import encode_headers
from pyclient.records import Headers

NOW: Final = -1
LAST_MOMENT: Final = 2**63 - 1
GivenHeaders: TypeAlias = Headers | Mapping[str, bytes | None]
"""Headers as `send` takes them."""


def header_pairs(headers: GivenHeaders) -> Headers:
    """Headers as serializers, interceptors and records have them: pairs in order."""
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers


def headers_bytes(headers: Headers) -> bytes | None:
    """The encoded header section; None for no headers."""
    return encode_headers(headers) if headers else None


def check_partition(partition: SupportsIndex) -> int:
    """The partition's number.

    Raises:
        TypeError, ValueError: it cannot be a partition's number.
    """
    number = _whole("partition", partition, "partitions are numbered from 0; None lets the partitioner choose")
    if number < 0:
        raise ValueError(f"partition {partition} is negative: partitions are numbered from 0; None lets the partitioner choose")
    return number


def check_timestamp(timestamp: SupportsIndex | None) -> int:
    """The timestamp in ms since the epoch, or `NOW`.

    Raises:
        TypeError, ValueError: it is no whole number from 0 to `LAST_MOMENT`.
    """
    if timestamp is None:
        return NOW
    number = _whole("timestamp", timestamp, "give ms since the epoch, or None for now")
    if not 0 <= number <= LAST_MOMENT:
        raise ValueError(f"timestamp {timestamp} is not from 0 to {LAST_MOMENT}: give ms since the epoch, or None for now")
    return number


def _whole(what: str, number: SupportsIndex, instead: str) -> int:
    """Any kind of whole number except bool; no float, since ``time.time()`` counts seconds."""
    if type(number) is int:
        return number  # the usual case; an isinstance check against a protocol costs a microsecond
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        raise TypeError(f"{what} {number!r} is {type(number).__name__}, not int: {instead}")
    return index(number)


def as_bytes(what: str, value: Any) -> bytes | None:
    """A key or value of a producer without serializer, as bytes.

    Raises:
        TypeError: it is not bytes-like.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} is {type(value).__name__}, not bytes: encode it, or give the producer a {what}_serializer")
