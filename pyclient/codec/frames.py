"""How much a compressed frame can hold, read from its own structure before anything is decompressed.

Decompressors grow their output until memory ends; a few hostile bytes become gigabytes. Every format here has its
block sizes uncompressed, and a block's output is bounded. So one pass over the block headers bounds the output, the
output is allocated once, at most that large, and the decompressor can only fill it. Knows nothing of record batches.
Formats: RFC 8878 (zstd), the LZ4 frame format 1.6, snappy's format description, and xerial's framing of snappy.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyclient.errors import CorruptRecordError

ZSTD_BLOCK: Final = 128 * 1024  # no zstd block decompresses to more
LZ4_MAGIC: Final = 0x184D2204
ZSTD_MAGIC: Final = 0xFD2FB528
SKIPPABLE: Final = 0x184D2A50  # … 5F: frames of both formats that carry no data
_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)  # XXH32's
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = 16  # magic, version, oldest compatible version
SNAPPY_RATIO: Final = 24  # a 3-byte element makes at most 64 bytes, so 21.3; the preamble may lie, but not beyond that


def little(data: memoryview, at: int, size: int) -> int:
    """An unsigned little-endian integer; raises where the data ends before it."""
    if at + size > len(data):
        raise CorruptRecordError(f"the compressed data ends at byte {len(data)}, within a field of its format")
    return int.from_bytes(data[at : at + size], "little")


def _skipped(data: memoryview, at: int, magic: int) -> int:
    """End of the skippable frame at *at*, or 0 if it is none."""
    if magic & 0xFFFFFFF0 != SKIPPABLE:
        return 0
    end = at + 8 + little(data, at + 4, 4)
    if end > len(data):
        raise CorruptRecordError(f"a skippable frame at byte {at} of the compressed data runs past its end")
    return end


# --- zstd -----------------------------------------------------------------------------------------------------------


def zstd_bound(data: memoryview) -> int:
    """The most bytes that these zstd frames can decompress to: exact where they declare their size."""
    at = bound = 0
    while at < len(data):
        magic = little(data, at, 4)
        end = _skipped(data, at, magic)
        if not end:
            if magic != ZSTD_MAGIC:
                raise CorruptRecordError(f"byte {at} of the zstd data begins no frame")
            end, size = _zstd_frame(data, at + 4)
            bound += size
        at = end
    return bound


def _zstd_frame(data: memoryview, at: int) -> tuple[int, int]:
    """End and bound of one frame, from its descriptor on."""
    descriptor = little(data, at, 1)
    single_segment = descriptor >> 5 & 1
    at += 1 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]  # window, dictionary id
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    declared = little(data, at, size_bytes) + (256 if size_bytes == 2 else 0)
    at, bound = _zstd_blocks(data, at + size_bytes)
    if descriptor & 4:
        little(data, at, 4)  # the checksum must be there; the decompressor compares it
        at += 4
    if not size_bytes:
        return at, bound
    if declared > bound:
        raise CorruptRecordError(f"a zstd frame declares {declared} bytes, its blocks hold at most {bound}")
    return at, declared


def _zstd_blocks(data: memoryview, at: int) -> tuple[int, int]:
    """End and bound of the blocks of a frame."""
    bound = 0
    last = False
    while not last:
        header = little(data, at, 3)
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == 3 or size > ZSTD_BLOCK:
            raise CorruptRecordError(f"byte {at} of the zstd data begins no block")
        at += 3 + (1 if kind == 1 else size)  # kinds: 0 stored, 1 one byte repeated, 2 compressed
        bound += ZSTD_BLOCK if kind == 2 else size
    if at > len(data):
        raise CorruptRecordError(f"the zstd data ends at byte {len(data)}, within a block")
    return at, bound


# --- lz4 ------------------------------------------------------------------------------------------------------------


def lz4_bound(data: memoryview) -> int:
    """The most bytes that these LZ4 frames can decompress to."""
    at = bound = 0
    while at < len(data):
        magic = little(data, at, 4)
        end = _skipped(data, at, magic)
        if not end:
            if magic != LZ4_MAGIC:
                raise CorruptRecordError(f"byte {at} of the LZ4 data begins no frame")
            end, size = _lz4_frame(data, at + 4)
            bound += size
        at = end
    return bound


def _lz4_frame(data: memoryview, at: int) -> tuple[int, int]:
    """End and bound of one frame, from its flags on."""
    flags, block = little(data, at, 1), little(data, at + 1, 1) >> 4 & 7
    if flags >> 6 != 1 or block < 4:
        raise CorruptRecordError(f"an LZ4 frame has version {flags >> 6} and block size code {block}; 1 and 4 to 7 are known")
    at += 3 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)  # flags, block size, header checksum; size, dictionary
    at, bound = _lz4_blocks(data, at, 1 << 8 + 2 * block, 4 if flags & 16 else 0)
    if flags & 4:
        little(data, at, 4)
        at += 4
    return at, bound


def _lz4_blocks(data: memoryview, at: int, largest: int, checksum: int) -> tuple[int, int]:
    """End and bound of the blocks of a frame: each makes at most *largest* bytes, and at most 255 from every one."""
    bound = 0
    while header := little(data, at, 4):
        size = header & 0x7FFFFFFF
        if size > largest:
            raise CorruptRecordError(f"an LZ4 block at byte {at} is {size} bytes, its frame allows {largest}")
        bound += size if header >> 31 else min(largest, size * 255)
        at += 4 + size + checksum
    return at + 4, bound


def with_right_lz4_checksum(data: memoryview) -> memoryview:
    """An LZ4 frame as its format wants it. In message format 0 Java summed the magic number too (KAFKA-3160)."""
    flags = little(data, 4, 1)
    at = 6 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    little(data, at, 1)
    out = bytearray(data)
    out[at] = _short_xxh32(out[4:at]) >> 8 & 0xFF
    return memoryview(out)


def _short_xxh32(data: bytearray) -> int:
    """XXH32 of less than 16 bytes, with seed 0."""
    words = len(data) // 4 * 4
    total = _PRIMES[4] + len(data)
    for at in range(0, words, 4):
        total = _turned(total + int.from_bytes(data[at : at + 4], "little") * _PRIMES[2], 17) * _PRIMES[3]
    for byte in data[words:]:
        total = _turned(total + byte * _PRIMES[4], 11) * _PRIMES[0]
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * _PRIMES[1] & 0xFFFFFFFF
    total = (total ^ total >> 13) * _PRIMES[2] & 0xFFFFFFFF
    return total ^ total >> 16


def _turned(number: int, bits: int) -> int:
    """The lower 32 bits, rotated to the left."""
    number &= 0xFFFFFFFF
    return (number << bits | number >> 32 - bits) & 0xFFFFFFFF


# --- snappy ---------------------------------------------------------------------------------------------------------


def snappy_size(block: memoryview) -> int:
    """Bytes that a raw snappy block says it decompresses to, if it can be true."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CorruptRecordError("a snappy block does not begin with its size")
    if size > len(block) * SNAPPY_RATIO:
        raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to hold {size}, which it cannot")
    return size


def xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """The raw snappy blocks within xerial's framing; streams may follow each other, each with its header."""
    at = 0
    while at < len(data):
        if data[at : at + 8].tobytes() == XERIAL_MAGIC:
            little(data, at, XERIAL_HEADER)
            at += XERIAL_HEADER
            continue
        little(data, at, 4)
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise CorruptRecordError(f"a snappy block at byte {at} is {size} bytes, and {len(data) - at} are left")
        yield data[at : at + size]
        at += size
