"""A record batch as a broker stores it: its bytes and the header fields that a log needs."""
from __future__ import annotations

import struct
from typing import Final, NamedTuple

import attrs

from pyclient.codec.batches import read_batches
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import CONTROL_BIT, CRC_END, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
OFFSET: Final = struct.Struct(">q")
EPOCH: Final = struct.Struct(">i")
CRC: Final = struct.Struct(">I")
ATTRIBUTES: Final = struct.Struct(">h")
EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
MARKER_KEY: Final = struct.Struct(">hh")
MARKER_VALUE: Final = struct.Struct(">hi")
COMMIT: Final = 1
NO_PRODUCER: Final = -1
WRAPPED: Final = 2**31
"""Sequences go from 2**31 - 1 back to 0."""


class Marker(NamedTuple):
    """The content of a control batch: the end of a producer's transaction."""

    commits: bool
    coordinator_epoch: int


@attrs.frozen(slots=True, eq=False)
class Batch:
    """One batch of a log. Replicas share it; its bytes never change."""

    data: bytes
    base_offset: int
    last_offset: int
    epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @classmethod
    def of(cls, data: bytes) -> Batch:
        """Parse one complete batch."""
        (base, _, epoch, _, _, attributes, last, _, newest, producer, producer_epoch, sequence, count) = HEADER.unpack_from(data)
        return cls(data, base, base + last, epoch, attributes, newest, producer, producer_epoch, sequence, count)

    def __repr__(self) -> str:
        return f"<batch {self.base_offset} to {self.last_offset} of epoch {self.epoch}, {self.size} B>"

    @property
    def size(self) -> int:
        """Bytes, header included."""
        return len(self.data)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        return (self.base_sequence + self.last_offset - self.base_offset) % WRAPPED

    @property
    def is_control(self) -> bool:
        """Whether it ends a transaction instead of carrying records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether its records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    def marker(self) -> Marker:
        """The content of a control batch."""
        (record,) = read_batches(self.data)[0].records("", 0)
        _, kind = MARKER_KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = MARKER_VALUE.unpack_from(record.value or b"")
        return Marker(kind == COMMIT, coordinator_epoch)

    def since(self, timestamp: int, start: int) -> tuple[int, int] | None:
        """Offset and timestamp of its first record from *start* on that is not older than this."""
        if self.max_timestamp < timestamp:
            return None
        records = read_batches(self.data, check_crcs=False)[0].records("", 0)
        return next(((each.offset, each.timestamp) for each in records
                     if each.timestamp >= timestamp and each.offset >= start), None)


def placed(data: bytes, base_offset: int, epoch: int) -> bytes:
    """The batch with the log's base offset and epoch; the CRC covers neither field."""
    out = bytearray(data)
    OFFSET.pack_into(out, 0, base_offset)
    EPOCH.pack_into(out, EPOCH_AT, epoch)
    return bytes(out)


def timed(data: bytes, max_timestamp: int, *, by_broker: bool) -> bytes:
    """The batch with this max timestamp. With *by_broker* it is the timestamp of every record."""
    out = bytearray(data)
    (attributes,) = ATTRIBUTES.unpack_from(out, ATTRIBUTES_AT)
    ATTRIBUTES.pack_into(out, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT if by_broker else attributes & ~LOG_APPEND_TIME_BIT)
    OFFSET.pack_into(out, MAX_TIMESTAMP_AT, max_timestamp)
    CRC.pack_into(out, CRC_AT, crc32c(bytes(out[CRC_END:])))
    return bytes(out)
