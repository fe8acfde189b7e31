"""Writes messages of the formats 0 and 1, as clients and brokers before Kafka 0.11 did."""
from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import cramjam

from pyclient.codec.compression import Compression, compress

CODECS: Final = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
LOG_APPEND_TIME: Final = 8
LZ4_HEADER: Final = 7  # bytes; the last one is its checksum
WRONG_CHECKSUM: Final = 0x1A  # what Java wrote there in format 0

Fields = tuple[int, bytes | None, bytes | None]
"""Timestamp, key and value."""


def message(magic: int, offset: int, timestamp: int = 7, key: bytes | None = b"k", value: bytes | None = b"v", *, attributes: int = 0) -> bytes:
    """One message."""
    stamp = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bB", magic, attributes) + stamp + _sized(key) + _sized(value)
    return with_crc(offset, body)


def with_crc(offset: int, body: bytes) -> bytes:
    """A message whose *body* begins at its magic byte."""
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def packed(codec: Compression, magic: int, data: bytes) -> bytes:
    """*data* compressed as in a message of format *magic*."""
    out = bytearray(compress(codec, data)) if codec else bytearray(data)
    if codec is Compression.LZ4 and magic == 0:
        out[LZ4_HEADER - 1] = WRONG_CHECKSUM
    return bytes(out)


def wrapped(codec: Compression, magic: int, offset: int, inner: bytes, *, timestamp: int = 9, attributes: int = 0) -> bytes:
    """A compressed message that holds *inner*; *offset* is its own."""
    return message(magic, offset, timestamp, None, packed(codec, magic, inner), attributes=codec | attributes)


def written(codec: Compression, magic: int, base: int, rows: Sequence[Fields], *, attributes: int = 0) -> bytes:
    """*rows* at consecutive offsets from *base* on: one compressed message, or one message each."""
    if not codec:
        return b"".join(message(magic, base + at, *row, attributes=attributes) for at, row in enumerate(rows))
    first = 0 if magic else base
    inner = b"".join(message(magic, first + at, *row) for at, row in enumerate(rows))
    return wrapped(codec, magic, base + len(rows) - 1, inner, timestamp=max(row[0] for row in rows), attributes=attributes)


def linked_lz4(data: bytes) -> bytes:
    """A frame with its size in the header and linked blocks, as librdkafka's library wrote by default."""
    return bytes(cramjam.lz4.compress(data))


def _sized(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content
