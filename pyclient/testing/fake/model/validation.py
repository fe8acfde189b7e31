"""A broker's checks of a batch before the append, in its order."""
from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, Self

import attrs
from kio.schema.errors import ErrorCode

from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression, decompress
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import (
    COMPRESSION_MASK, CRC_END, HEADER_SIZE, LENGTH_END, LOG_APPEND_TIME_BIT, MAGIC, TRANSACTIONAL_BIT, encode_batch,
)
from pyclient.errors import CorruptRecordError
from pyclient.records.record import Record
from pyclient.testing.fake.model.batch import ATTRIBUTES, ATTRIBUTES_AT, CRC, CRC_AT, NO_PRODUCER, Batch, timed
from pyclient.testing.fake.model.refusal import RecordError, RefusalError
from pyclient.testing.fake.model.settings import Settings

ZSTD_SINCE: Final = 7
SHOWN: Final = 3
AS_PRODUCED: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"
NO_TIMESTAMP: Final = -1
SIZE: Final = struct.Struct(">i")
SIZE_AT: Final = 8
MAGIC_AT: Final = 16
SMALLEST: Final = 14
"""Smallest valid size field, that of the oldest format; less means corruption, not truncation."""


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of a topic."""

    name: str
    """The partition's name in messages."""
    max_bytes: int
    by_broker: bool
    """Whether records get the broker's time."""
    oldest_ms: int
    newest_ms: int
    """How far behind and ahead of the broker's clock a record's time may be."""
    compacted: bool
    codec: Compression | None
    """Compression in the log; None: the producer's."""

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
            codec=_codec(config.get("compression.type", AS_PRODUCED)),
        )


def _codec(name: str) -> Compression | None:
    if name == AS_PRODUCED:
        return None
    return Compression.NONE if name == UNCOMPRESSED else Compression.named(name)


def batches_in(records: bytes) -> list[bytes]:
    """The complete batches; a truncated one ends them.

    Raises:
        RefusalError: the bytes are not a batch.
    """
    found: list[bytes] = []
    at = 0
    while len(records) - at >= LENGTH_END:
        (size,) = SIZE.unpack_from(records, at + SIZE_AT)
        if size < SMALLEST:
            raise _damaged(found, f"Record size {size} is less than the minimum record overhead ({SMALLEST})")
        end = at + LENGTH_END + size
        if len(records) - at > MAGIC_AT and not 0 <= records[at + MAGIC_AT] <= MAGIC:
            raise _damaged(found, f"Invalid magic found in record: {records[at + MAGIC_AT]}")
        if end > len(records):
            break
        found.append(records[at:end])
        at = end
    return found


def _damaged(before: list[bytes], message: str) -> RefusalError:
    """Real brokers send the message only for the first batch."""
    return RefusalError(ErrorCode.corrupt_message, None if before else message, has_log_start=False)


def only_batch(records: bytes, version: int) -> bytes:
    """The only batch of a partition; it must have format 2 and a codec that this version of Produce supports.

    Raises:
        RefusalError: the bytes are something else.
    """
    batches = batches_in(records)
    if len(batches) != 1 or batches[0][MAGIC_AT] != MAGIC:
        raise RefusalError(ErrorCode.invalid_record, has_log_start=False)
    if _attributes(batches[0]) & COMPRESSION_MASK == Compression.ZSTD and version < ZSTD_SINCE:
        raise RefusalError(ErrorCode.unsupported_compression_type, has_log_start=False)
    return batches[0]


def is_transactional(records: bytes) -> bool:
    """Whether a partition's bytes claim to belong to a transaction."""
    return len(records) >= HEADER_SIZE and bool(_attributes(records) & TRANSACTIONAL_BIT)


def _attributes(data: bytes) -> int:
    attributes: int = ATTRIBUTES.unpack_from(data, ATTRIBUTES_AT)[0]
    return attributes


def checked(data: bytes, limits: Limits, now_ms: int) -> bytes:
    """The batch with its timestamps in the log.

    Raises:
        RefusalError: the batch is invalid.
    """
    if any(data[:SIZE_AT]):
        raise RefusalError(ErrorCode.invalid_record)  # its base offset is the log's to say
    if len(data) > limits.max_bytes:
        raise RefusalError(ErrorCode.message_too_large, has_log_start=False)
    if len(data) < HEADER_SIZE or CRC.unpack_from(data, CRC_AT)[0] != crc32c(data[CRC_END:]):
        raise RefusalError(ErrorCode.corrupt_message, has_log_start=False)
    batch = Batch.of(data)
    _check_header(batch)
    records = _records(batch)
    newest = _check_records(batch, records, limits, now_ms)
    if limits.codec not in (None, batch.attributes & COMPRESSION_MASK):
        data = _recompressed(batch, records, limits)
    if limits.by_broker:
        return timed(data, now_ms, by_broker=True)
    claims_broker_time = batch.attributes & LOG_APPEND_TIME_BIT
    return data if newest == batch.max_timestamp and not claims_broker_time else timed(data, newest, by_broker=False)


def _check_header(batch: Batch) -> None:
    if not 0 < batch.count == batch.last_offset - batch.base_offset + 1:
        raise RefusalError(ErrorCode.invalid_record)
    if batch.is_control:
        raise RefusalError(ErrorCode.invalid_record)
    if batch.producer_id != NO_PRODUCER and batch.base_sequence < 0:
        raise RefusalError(ErrorCode.invalid_record)


def _records(batch: Batch) -> list[Record]:
    codec = batch.attributes & COMPRESSION_MASK
    if codec > max(Compression):
        raise RefusalError(ErrorCode.unknown_server_error)
    try:
        return read_batches(batch.data, check_crcs=False)[0].records("", 0)
    except CorruptRecordError:
        raise RefusalError(ErrorCode.invalid_record if _decompresses(codec, batch.data) else ErrorCode.unknown_server_error) from None


def _recompressed(batch: Batch, records: list[Record], limits: Limits) -> bytes:
    assert limits.codec is not None
    data = encode_batch([(each.timestamp, each.key, each.value, each.headers) for each in records], compression=limits.codec,
                        producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, base_sequence=batch.base_sequence,
                        transactional=batch.is_transactional)
    if len(data) > limits.max_bytes:
        raise RefusalError(ErrorCode.message_too_large, has_log_start=False)
    return data


def _decompresses(codec: int, data: bytes) -> bool:
    try:
        decompress(codec, data[HEADER_SIZE:])
    except CorruptRecordError:
        return False
    return True


def _check_records(batch: Batch, records: list[Record], limits: Limits, now_ms: int) -> int:
    """The newest timestamp of the records, which the broker trusts more than the header."""
    faults = list(_faults(batch, records, limits, now_ms))
    if any(code == ErrorCode.invalid_timestamp for code, _ in faults):
        raise RefusalError(ErrorCode.invalid_timestamp, "One or more records have been rejected due to invalid timestamp",
                      records=tuple(each for _, each in faults))
    if faults:
        shown = ", ".join(f"RecordError(batchIndex={each.at}, message='{each.message}')" for _, each in faults[:SHOWN])
        raise RefusalError(ErrorCode.invalid_record, f"One or more records have been rejected due to {len(faults)} record errors in total, and "
                      f"only showing the first three errors at most: [{shown}]", records=tuple(each for _, each in faults))
    return max(each.timestamp for each in records)


def _faults(batch: Batch, records: list[Record], limits: Limits, now_ms: int) -> Iterator[tuple[int, RecordError]]:
    oldest, newest = now_ms - limits.oldest_ms, now_ms + limits.newest_ms
    timed_by_broker = bool(batch.attributes & LOG_APPEND_TIME_BIT)
    for index, record in enumerate(records):
        time = record.timestamp
        if limits.compacted and record.key is None:
            yield ErrorCode.invalid_record, RecordError(
                index, f"Compacted topic cannot accept message without key in topic partition {limits.name}")
        elif not limits.by_broker and time != NO_TIMESTAMP:
            if not oldest <= time <= newest:
                yield ErrorCode.invalid_timestamp, RecordError(
                    index, f"Timestamp {time} of message with offset {record.offset} is out of range. The timestamp should be "
                    f"within [{oldest}, {newest}]")
        elif timed_by_broker:
            yield ErrorCode.invalid_timestamp, RecordError(
                index, f"Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime.")
