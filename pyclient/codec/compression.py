"""Compressing and decompressing the records of a batch, in the framings that Kafka's other clients read and write.

The codecs are cramjam's, and zlib for reading gzip; all release the GIL. What is decided here is the framing and the
bound on what comes out. Independent of batches.

Framings. gzip and zstd are plain. Snappy is written in xerial's framing, as Java does, because old Java readers know
no other; raw snappy is read too. LZ4 is written as a frame of independent 64 KiB blocks, because Java's reader refuses
linked ones; both kinds are read.
"""
from __future__ import annotations

import enum
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import cramjam

from pyclient.codec.frames import XERIAL_MAGIC, fill_from_xerial, little, lz4_bound, snappy_size, xerial_size, zstd_bound
from pyclient.codec.memory import unwritten
from pyclient.errors import CorruptRecordError

DEFAULT_LIMIT: Final = 64 * 1024 * 1024  # bytes that one batch may decompress to

Data: TypeAlias = bytes | bytearray | memoryview

_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"  # independent 64 KiB blocks, no checksums: the batch has its own
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_STORED: Final = 1 << 31
_XERIAL_HEADER: Final = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK: Final = 32 * 1024
_SCRATCH: Final = 1024 * 1024  # the largest scratch buffer that a thread keeps
_GZIP_PIECE: Final = 16 * 1024  # input and output step; bounds the memory beside the result
_GZIP_STEP: Final = 256 * 1024


class Compression(enum.IntEnum):
    """How records are compressed. The numbers are those in a batch's attributes; the names, in lower case, Kafka's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """The codec that ``compression.type`` calls *name*.

        Raises:
            ValueError: there is none of that name.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"compression {name!r} is unknown; Kafka has {known}") from None


class Levels:
    """The levels of a codec: its range and its default (KIP-390)."""

    def __init__(self, low: int, high: int, default: int) -> None:
        self.low, self.high, self.default = low, high, default


LEVELS: Final[Mapping[Compression, Levels]] = {
    Compression.GZIP: Levels(1, 9, 6),
    Compression.LZ4: Levels(1, 17, 9),  # 9 is the fast compressor, as in Java; the others are the slow, dense one
    Compression.ZSTD: Levels(-131072, 22, 3),
}


def checked_level(codec: Compression, level: int | None) -> int:
    """*level*, or the codec's default for None (gzip also takes Kafka's -1 for it).

    Raises:
        ValueError: the codec has no such level, or no levels at all.
    """
    levels = LEVELS.get(codec)
    if levels is None:
        if level is None:
            return 0
        raise ValueError(f"compression {codec.name.lower()} has no levels, but level {level} was given; leave it out")
    if level is None or (level == -1 and codec is Compression.GZIP):
        return levels.default
    if not levels.low <= level <= levels.high:
        raise ValueError(
            f"level {level} is not one of {codec.name.lower()}: {levels.low} to {levels.high}, default {levels.default}"
        )
    return level


def compress(codec: Compression, data: Data, level: int | None = None) -> Data:
    """*data* as the records of a batch, compressed. ``NONE`` returns *data* itself.

    Levels are gzip 1 to 9 (default 6), lz4 1 to 17 (default 9, which is the fast compressor), zstd -131072 to 22
    (default 3; 1 is often both faster and as dense): ``compression.gzip.level`` and its like, KIP-390.

    Raises:
        ValueError: the level is not one of the codec's.
    """
    return _COMPRESSORS[codec](data, checked_level(codec, level))


def decompress(codec: int, data: Data, limit: int = DEFAULT_LIMIT) -> memoryview:
    """Decompress the records of a batch, to at most *limit* bytes.

    Memory is taken for what the data can hold by its own structure, and never for more than the limit.

    Raises:
        CorruptRecordError: the data is damaged or cut off, something follows it, or it holds more than *limit* bytes.
    """
    out = _decompress(codec, data, limit, small=False)
    if out is None:
        raise CorruptRecordError(
            f"it decompresses to more than the {limit} bytes that one batch may hold; raise decompression_limit if it is genuine")
    return out


def decompress_small(codec: int, data: Data, most: int) -> memoryview | None:
    """As `decompress`, but None if there may be more than *most* bytes.

    That costs little: the structure of the data says so, and for gzip its last word, unless that lies.
    """
    return _decompress(codec, data, most, small=True)


def _decompress(codec: int, data: Data, limit: int, *, small: bool) -> memoryview | None:
    """None if there are more than *limit* bytes; *small*: also if there may be."""
    try:
        return _DECOMPRESSORS[codec](memoryview(data).cast("B"), limit, small)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptRecordError(f"its {Compression(codec).name.lower()} data is damaged: {error}") from None


# --- writing --------------------------------------------------------------------------------------------------------


def _none(data: Data, level: int) -> Data:
    return data


_scratch: Final = threading.local()


def _exact(compress_into: Callable[..., int], data: Data, level: int) -> bytes:
    """Compressed bytes of exact size, since they may be kept for long: a codec's own output buffer grows by doubling.

    Each thread reuses one scratch buffer: a buffer that grows and is freed with every batch fragments the heap. The
    scratch buffer is taken away while in use, because a signal handler may compress another batch meanwhile.
    """
    size = len(data)
    bound = size + (size >> 3) + 1024  # more than gzip and zstd need for incompressible data
    kept = _scratch.__dict__
    out = kept.pop("out", None)
    if out is None or len(out) < bound:
        out = bytearray(bound)
    packed = bytes(memoryview(out)[:compress_into(data, out, level=level)])
    if len(out) <= _SCRATCH:
        kept["out"] = out
    return packed


def _gzip(data: Data, level: int) -> Data:
    return _exact(cramjam.gzip.compress_into, data, level)


def _zstd(data: Data, level: int) -> Data:
    return _exact(cramjam.zstd.compress_into, data, level)


def _xerial(data: Data, level: int) -> Data:
    view = memoryview(data)
    out: list[Data] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        packed = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += len(packed).to_bytes(4, "big"), packed
    return b"".join(out)


def _lz4(data: Data, level: int) -> Data:
    view = memoryview(data)
    block = _lz4_fast if level == LEVELS[Compression.LZ4].default else _lz4_dense
    out: list[Data] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        raw = view[start : start + _LZ4_BLOCK]
        packed = block(raw, level)
        if len(packed) < len(raw):
            out += len(packed).to_bytes(4, "little"), packed
        else:
            out += (len(raw) | _LZ4_STORED).to_bytes(4, "little"), raw
    out.append(bytes(4))  # the end mark
    return b"".join(out)


def _lz4_fast(raw: memoryview, level: int) -> memoryview:
    return memoryview(cramjam.lz4.compress_block(raw, store_size=False))


def _lz4_dense(raw: memoryview, level: int) -> memoryview:
    """One block of the slow compressor, which cramjam offers without the GIL for whole frames only.

    A frame of a single block links to nothing, so its block is an independent one: seven bytes of header, its size, it.
    """
    frame = memoryview(cramjam.lz4.compress(raw, level=min(level, 12)))  # LZ4 has no level above 12
    size = little(frame, 7, 4)
    return raw if size & _LZ4_STORED else frame[11 : 11 + size]


_COMPRESSORS: Final[Mapping[Compression, Callable[[Data, int], Data]]] = {
    Compression.NONE: _none,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _xerial,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}


# --- reading --------------------------------------------------------------------------------------------------------


def _filled(out: bytearray, used: int) -> memoryview:
    """The first *used* bytes; memory beyond them is freed."""
    if used * 2 < len(out):
        del out[used:]
    return memoryview(out)[:used]


def _stored(data: memoryview, limit: int, small: bool) -> memoryview:
    return data


def _from_gzip(data: memoryview, limit: int, small: bool) -> memoryview | None:
    """Any number of gzip members; zeros behind one are ignored, as gzip does."""
    if small and len(data) >= 4 and little(data, len(data) - 4, 4) > limit:
        return None
    out = bytearray()
    member = zlib.decompressobj(31)  # gzip headers only
    for start in range(0, len(data), _GZIP_PIECE):
        piece: Data = data[start : start + _GZIP_PIECE]
        while piece:
            if member.eof:
                piece = bytes(piece).lstrip(b"\0")
                if not piece:
                    break
                member = zlib.decompressobj(31)
            out += member.decompress(piece, min(_GZIP_STEP, limit - len(out) + 1))
            if len(out) > limit:
                return None
            piece = member.unused_data if member.eof else member.unconsumed_tail
    while not member.eof:  # output that the decompressor still buffers
        rest = member.decompress(b"", min(_GZIP_STEP, limit - len(out) + 1))
        out += rest
        if len(out) > limit:
            return None
        if not rest:
            raise CorruptRecordError(f"its gzip data ends at byte {len(data)}, before its last block")
    return memoryview(out)


def _bounded(data: memoryview, bound: int, limit: int, small: bool, into: Callable[[memoryview, bytearray], int]) -> memoryview | None:
    """Decompress into memory of the size that the data can fill, or the limit if that is less."""
    if small and bound > limit:
        return None
    out = unwritten(min(bound, limit))
    try:
        return _filled(out, into(data, out))
    except cramjam.DecompressionError as error:
        if bound > limit and "whole buffer" in str(error):
            return None
        raise


def _from_zstd(data: memoryview, limit: int, small: bool) -> memoryview | None:
    return _bounded(data, zstd_bound(data), limit, small, cramjam.zstd.decompress_into)


def _from_lz4(data: memoryview, limit: int, small: bool) -> memoryview | None:
    return _bounded(data, lz4_bound(data), limit, small, cramjam.lz4.decompress_into)


def _from_snappy(data: memoryview, limit: int, small: bool) -> memoryview | None:
    """Raw, or xerial's framing of blocks."""
    framed = data[:8].tobytes() == XERIAL_MAGIC
    size = xerial_size(data) if framed else snappy_size(data)
    if size > limit:
        return None
    out = unwritten(size)
    if framed:
        return memoryview(out)[: fill_from_xerial(data, memoryview(out), _snappy_block)]
    return memoryview(out)[: cramjam.snappy.decompress_raw_into(data, out)]


def _snappy_block(data: memoryview, out: memoryview) -> int:
    """Decompress a raw block into *out*; the bytes written."""
    try:
        return cramjam.snappy.decompress_raw_into(data, out)
    except TypeError:  # where there is no GIL, cramjam writes into no memoryview
        block = unwritten(len(out))
        used = cramjam.snappy.decompress_raw_into(data, block)
        out[:used] = memoryview(block)[:used]
        return used


_DECOMPRESSORS: Final[Mapping[int, Callable[[memoryview, int, bool], memoryview | None]]] = {
    Compression.NONE: _stored,
    Compression.GZIP: _from_gzip,
    Compression.SNAPPY: _from_snappy,
    Compression.LZ4: _from_lz4,
    Compression.ZSTD: _from_zstd,
}
