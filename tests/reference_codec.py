"""A second reader of record batches, for comparison: slow, in plain Python, one field after the other.

Written from the format (KIP-98, KIP-32 and Kafka's protocol guide), not from `pyclient.codec`, and sharing no code
with it, so that a mistake must be made twice to go unseen. Only the decompressors are libraries', used in their
simplest form.
"""
from __future__ import annotations

import io
import struct
import zlib
from typing import Final, NamedTuple

import cramjam

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
WIDEST: Final = {32: 5, 64: 10}  # bytes of a varint


class DamagedError(Exception):
    """The bytes are not a record batch."""


class ReferenceRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class ReferenceBatch(NamedTuple):
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[ReferenceRecord]


def wrapped(number: int) -> int:
    """As a signed 64-bit integer, like Java's long."""
    return (number + 2**63) % 2**64 - 2**63


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Reader:
    """Reads the primitive types off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.stream = io.BytesIO(data)
        self.size = len(data)

    @property
    def left(self) -> int:
        return self.size - self.stream.tell()

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise DamagedError(f"{size} bytes wanted, {self.left} left")
        return self.stream.read(size)

    def varint(self, bits: int) -> int:
        groups: list[int] = []
        more = True
        while more:
            (byte,) = self.take(1)
            groups.append(byte & 0x7F)
            more = byte >= 0x80
            if more and len(groups) == WIDEST[bits]:
                raise DamagedError("a varint does not end")
        raw = sum(group << 7 * place for place, group in enumerate(groups))
        if raw >= 2**bits:
            raise DamagedError("a varint is too large")
        return -(raw + 1 >> 1) if raw & 1 else raw >> 1

    def nullable(self) -> bytes | None:
        size = self.varint(32)
        return None if size == -1 else self.take(size)


def decode_batch(data: bytes) -> ReferenceBatch:
    """Decode *data*, which is one batch; checks the header and the checksum."""
    if len(data) < HEADER.size:
        raise DamagedError("no whole header")
    (base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id,
     producer_epoch, base_sequence, count) = HEADER.unpack(data[:61])
    if magic != 2 or length != len(data) - 12:
        raise DamagedError("magic or length")
    if count < 0 or last_delta < 0 or not 0 <= base_offset <= 2**63 - 2 - last_delta:
        raise DamagedError("a field of the header is out of its range")
    if crc != crc32c(data[21:]):
        raise DamagedError("checksum")
    appended = max_timestamp if attributes & 8 else None
    reader = Reader(decompressed(attributes & 7, data[61:]))
    records: list[ReferenceRecord] = []
    before = -1
    for _ in range(count):
        delta, record = decode_record(Reader(reader.take(reader.varint(32))), base_offset, base_timestamp, appended)
        if not before < delta <= last_delta:
            raise DamagedError("offsets do not ascend within the batch")
        before = delta
        records.append(record)
    if reader.left:
        raise DamagedError("more bytes than records")
    return ReferenceBatch(base_offset, leader_epoch, attributes, last_delta, base_timestamp, max_timestamp, producer_id,
                          producer_epoch, base_sequence, records)


def decode_record(
    reader: Reader, base_offset: int, base_timestamp: int, appended: int | None
) -> tuple[int, ReferenceRecord]:
    """The offset delta of a record, and the record."""
    reader.take(1)
    timestamp = wrapped(base_timestamp + reader.varint(64)) if appended is None else (reader.varint(64), appended)[1]
    delta = reader.varint(32)
    key, value = reader.nullable(), reader.nullable()
    headers: list[tuple[str, bytes | None]] = []
    number = reader.varint(32)
    if number < 0:
        raise DamagedError("a negative number of headers")
    for _ in range(number):
        name = reader.nullable()
        if name is None:
            raise DamagedError("a header without a name")
        headers.append((as_java_shows(name), reader.nullable()))
    if reader.left:
        raise DamagedError("a record is longer than its fields")
    return delta, ReferenceRecord(base_offset + delta, timestamp, key, value, headers)


def as_java_shows(name: bytes) -> str:
    """Text of bytes that need not be UTF-8: a U+FFFD for each part that cannot be decoded."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        start, end = error.start, error.end
        if name[start] == 0xED and b"\xa0" <= name[start + 1 : start + 2] < b"\xc0":  # a surrogate: Java takes all of it as one
            end = start + 2 + (0x80 <= name[start + 2] < 0xC0 if start + 2 < len(name) else 0)
        return name[:start].decode() + "\ufffd" + as_java_shows(name[end:])


# --- formats 0 and 1 ---


class ReferenceMessage(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def decode_messages(data: bytes) -> list[ReferenceMessage]:
    """Decode messages of the formats 0 and 1, compressed or not; one cut off at the end is left out."""
    reader = Reader(data)
    messages: list[ReferenceMessage] = []
    while reader.left >= 12:
        offset, size = struct.unpack(">qi", reader.take(12))
        if size < 14:
            raise DamagedError("a length that no message has")
        if size > reader.left:
            break
        messages += decode_message(offset, reader.take(size))
    return messages


def decode_message(offset: int, body: bytes) -> list[ReferenceMessage]:
    """The message, or those in it."""
    reader = Reader(body)
    crc, magic, attributes = struct.unpack(">IbB", reader.take(6))
    if crc != zlib.crc32(body[4:]) or magic not in {0, 1}:
        raise DamagedError("checksum or magic")
    timestamp = struct.unpack(">q", reader.take(8))[0] if magic else -1
    kind = (attributes >> 3 & 1) if magic else -1
    key, value = sized(reader), sized(reader)
    codec = attributes & 7
    if not codec:
        return [ReferenceMessage(offset, timestamp, kind, key, value)]
    if value is None or codec > 3:
        raise DamagedError("no content, or a codec of later formats")
    if codec == 3 and magic == 0:
        value = value[:6] + b"\x82" + value[7:]  # Java summed the wrong bytes then; this is right for the frames used here
    inner = decode_messages(decompressed(codec, value))
    if not inner:
        raise DamagedError("no message in a message")
    first = offset - inner[-1].offset if magic else 0
    return [
        ReferenceMessage(first + each.offset, timestamp if kind == 1 else each.timestamp, kind, each.key, each.value)
        for each in inner
    ]


def sized(reader: Reader) -> bytes | None:
    (size,) = struct.unpack(">i", reader.take(4))
    return None if size < 0 else reader.take(size)


def decompressed(codec: int, data: bytes) -> bytes:
    """The records' bytes. Only for trusted test data: the output is not bounded."""
    if not data:
        return data
    try:
        match codec:
            case 0:
                return data
            case 1:
                return b"".join(gzip_members(data))
            case 2:
                return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in snappy_blocks(data))
            case 3:
                return bytes(cramjam.lz4.decompress(data))
            case 4:
                return bytes(cramjam.zstd.decompress(data))
            case _:
                raise DamagedError(f"compression {codec}")
    except (cramjam.DecompressionError, zlib.error) as error:
        raise DamagedError(str(error)) from error


def gzip_members(data: bytes) -> list[bytes]:
    members: list[bytes] = []
    while data:
        member = zlib.decompressobj(31)
        members.append(member.decompress(data))
        if not member.eof:
            raise DamagedError("a gzip member is cut off")
        data = member.unused_data.lstrip(b"\0")
    return members


def snappy_blocks(data: bytes) -> list[bytes]:
    if not data.startswith(b"\x82SNAPPY\x00"):
        return [data]
    reader = Reader(data)
    blocks: list[bytes] = []
    while reader.left:
        if data[reader.stream.tell() :].startswith(b"\x82SNAPPY\x00"):
            reader.take(16)
        else:
            blocks.append(reader.take(struct.unpack(">I", reader.take(4))[0]))
    return blocks
