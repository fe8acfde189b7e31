"""What a broker finds wrong with a batch before it looks at the log, in the order in which it looks."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self

import attrs

from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import COMPRESSION_MASK, CRC_END, HEADER_SIZE, LENGTH_END, LOG_APPEND_TIME_BIT, MAGIC
from pyclient.codec.record import Record
from pyclient.errors import CorruptRecordError
from pyclient.testing.fake.batch import CRC, CRC_AT, EPOCH, MAGIC_AT, NO_PRODUCER, OFFSET, Batch, timed, whole_batches
from pyclient.testing.fake.refused import RecordError, Refused
from pyclient.testing.fake.settings import Settings

CORRUPT_MESSAGE: Final = 2
MESSAGE_TOO_LARGE: Final = 10
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
INVALID_RECORD: Final = 87
ZSTD_SINCE: Final = 7
SHOWN: Final = 3
NO_TIMESTAMP: Final = -1
SMALLEST_RECORDS: Final = 14
"""A batch that says it is smaller than the head of the oldest format is damage, not a batch that is cut off."""


@attrs.frozen(kw_only=True)
class Limits:
    """What a topic lets in."""

    name: str
    """Of the partition, as messages spell it."""
    max_bytes: int
    by_broker: bool
    """Whether records get the broker's time."""
    oldest_ms: int
    newest_ms: int
    """How far behind and ahead of the broker's clock a record's time may be."""
    compacted: bool

    @classmethod
    def of(cls, name: str, config: Mapping[str, str], settings: Settings) -> Self:
        """A topic's own settings, else the broker's."""
        return cls(
            name=name,
            max_bytes=int(config.get("max.message.bytes", settings.message_max_bytes)),
            by_broker=config.get("message.timestamp.type", settings.log_message_timestamp_type) == "LogAppendTime",
            oldest_ms=int(config.get("message.timestamp.before.max.ms", settings.log_message_timestamp_before_max_ms)),
            newest_ms=int(config.get("message.timestamp.after.max.ms", settings.log_message_timestamp_after_max_ms)),
            compacted="compact" in config.get("cleanup.policy", "delete"),
        )


def check_request(records: bytes | None, version: int) -> None:
    """What is wrong with a partition's bytes whatever the topic: one batch of format 2, in a codec the version knows.

    Raises:
        Refused: something is.
    """
    records = records or b""
    if len(records) >= LENGTH_END and EPOCH.unpack_from(records, OFFSET.size)[0] < SMALLEST_RECORDS:
        raise Refused(CORRUPT_MESSAGE, tells_start=False)
    if len(records) > MAGIC_AT and records[MAGIC_AT] != MAGIC:
        raise Refused(INVALID_RECORD, tells_start=False)
    batches = whole_batches(records)
    if len(batches) != 1:
        raise Refused(INVALID_RECORD, tells_start=False)
    if Batch.of(batches[0]).attributes & COMPRESSION_MASK == Compression.ZSTD and version < ZSTD_SINCE:
        raise Refused(UNSUPPORTED_COMPRESSION_TYPE, tells_start=False)


def checked(records: bytes, limits: Limits, now_ms: int) -> bytes:
    """The one batch in a partition's bytes, with the timestamps it gets in the log.

    Raises:
        Refused: a client may not write it.
    """
    data = whole_batches(records)[0]
    batch = Batch.of(data)
    if batch.base_offset != 0:
        raise Refused(INVALID_RECORD)
    if len(data) > limits.max_bytes:
        raise Refused(MESSAGE_TOO_LARGE, tells_start=False)
    if len(data) < HEADER_SIZE or CRC.unpack_from(data, CRC_AT)[0] != crc32c(data[CRC_END:]):
        raise Refused(CORRUPT_MESSAGE, tells_start=False)
    _check_header(batch)
    newest = _check_records(batch, _records(data), limits, now_ms)
    if limits.by_broker:
        return timed(data, now_ms, by_broker=True)
    claims_broker_time = batch.attributes & LOG_APPEND_TIME_BIT
    return data if newest == batch.max_timestamp and not claims_broker_time else timed(data, newest, by_broker=False)


def _check_header(batch: Batch) -> None:
    if not 0 < batch.count == batch.last_offset - batch.base_offset + 1:
        raise Refused(INVALID_RECORD)
    if batch.is_control:
        raise Refused(INVALID_RECORD)
    if batch.producer_id != NO_PRODUCER and batch.base_sequence < 0:
        raise Refused(INVALID_RECORD)


def _records(data: bytes) -> list[Record]:
    try:
        return read_batches(data, check_crcs=False)[0].records("", 0)
    except CorruptRecordError:
        raise Refused(INVALID_RECORD) from None


def _check_records(batch: Batch, records: list[Record], limits: Limits, now_ms: int) -> int:
    """The newest timestamp of the records, which the broker trusts more than the header."""
    faults = list(_faults(batch, records, limits, now_ms))
    if any(code == INVALID_TIMESTAMP for code, _ in faults):
        raise Refused(INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp",
                      records=tuple(each for _, each in faults))
    if faults:
        shown = ", ".join(f"RecordError(batchIndex={each.at}, message='{each.message}')" for _, each in faults[:SHOWN])
        raise Refused(INVALID_RECORD, f"One or more records have been rejected due to {len(faults)} record errors in total, and "
                      f"only showing the first three errors at most: [{shown}]", records=tuple(each for _, each in faults))
    return max(each.timestamp for each in records)


def _faults(batch: Batch, records: list[Record], limits: Limits, now_ms: int) -> Iterator[tuple[int, RecordError]]:
    oldest, newest = now_ms - limits.oldest_ms, now_ms + limits.newest_ms
    timed_by_broker = bool(batch.attributes & LOG_APPEND_TIME_BIT)
    for index, record in enumerate(records):
        time = record.timestamp
        if limits.compacted and record.key is None:
            yield INVALID_RECORD, RecordError(
                index, f"Compacted topic cannot accept message without key in topic partition {limits.name}")
        elif not limits.by_broker and time != NO_TIMESTAMP:
            if not oldest <= time <= newest:
                yield INVALID_TIMESTAMP, RecordError(
                    index, f"Timestamp {time} of message with offset {record.offset} is out of range. The timestamp should be "
                    f"within [{oldest}, {newest}]")
        elif timed_by_broker:
            yield INVALID_TIMESTAMP, RecordError(
                index, f"Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime.")
