"""Splits a sealed batch in two: a broker that rejected it as too large may accept the halves (P20)."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import attrs

from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import HEADER_SIZE, encode_batch
from pyclient.records.record import Record


@attrs.frozen
class Half:
    """The sealed records of one half."""

    count: int
    max_timestamp: int
    codec: Compression
    payload: memoryview
    crc: int


def halves(data: bytes, base_timestamp: int, compression: Compression, level: int | None) -> tuple[Half, Half]:
    """The records of the batch *data* (two at least) in their order, in two batches of about the same size."""
    (batch,) = read_batches(data)
    records = batch.records("", 0)
    at = _middle([_size(record) for record in records])
    first, second = (_sealed(part, base_timestamp, compression, level) for part in (records[:at], records[at:]))
    return first, second


def _middle(sizes: Sequence[int]) -> int:
    """The length of the first half, so that neither is empty and the larger one is as small as possible."""
    totals = list(accumulate(sizes))
    return 1 + min(range(len(sizes) - 1), key=lambda at: abs(2 * totals[at] - totals[-1]))


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(name) + len(value or b"") for name, value in record.headers) + 8


def _sealed(records: Sequence[Record], base_timestamp: int, compression: Compression, level: int | None) -> Half:
    rows = [(record.timestamp, record.key, record.value, record.headers) for record in records]
    whole = encode_batch(rows, base_timestamp=base_timestamp, compression=compression, level=level)
    (read,) = read_batches(whole)
    payload = memoryview(whole)[HEADER_SIZE:]
    return Half(len(rows), max(record.timestamp for record in records), Compression(read.compression), payload, crc32c(payload))
