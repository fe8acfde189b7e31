# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""How much a compressed frame can hold, read from its own structure before anything is decompressed.

Decompressors grow their output until memory ends; a few hostile bytes become gigabytes. Every format here has its
block sizes uncompressed, and a block's output is bounded. So one pass over the block headers bounds the output, the
output is allocated once, at most that large, and the decompressor can only fill it. Independent of record batches.
Compiled, because empty blocks take three to five bytes: a megabyte of them kept interpreted code busy for half a
second.
Formats: RFC 8878 (zstd), the LZ4 frame format 1.6, snappy's format description, and xerial's framing of snappy.
"""
import cython
from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
from cython.cimports.libc.stdint import int64_t, uint64_t
from cython.cimports.libc.string import memcmp

from pyclient.errors import CorruptRecordError

ZSTD_BLOCK = cython.declare(int64_t, 128 * 1024)  # no zstd block decompresses to more
LZ4_MAGIC = cython.declare(uint64_t, 0x184D2204)
ZSTD_MAGIC = cython.declare(uint64_t, 0xFD2FB528)
SKIPPABLE = cython.declare(uint64_t, 0x184D2A50)  # … 5F: frames of both formats that carry no data
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)  # XXH32's
XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_MAGIC = cython.declare(cython.p_const_uchar, b"\x82SNAPPY\x00")
XERIAL_HEADER = cython.declare(cython.Py_ssize_t, 16)  # magic, version, oldest compatible version
SNAPPY_RATIO = cython.declare(int64_t, 24)  # a 3-byte element makes at most 64 bytes, so 21.3; the preamble may lie, but not beyond that


@cython.final
@cython.cclass
class _Frames:
    """Compressed data, a place in it, and the most bytes that what was read so far decompresses to."""

    kept: object
    data: cython.p_const_uchar
    size: int64_t
    at: int64_t
    bound: int64_t

    def __cinit__(self, data: object) -> None:
        self.kept = memoryview(data).cast("B")
        self.data = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(self.kept).buf)
        self.size = len(self.kept)

    @cython.cfunc
    @cython.exceptval(0xFFFFFFFFFFFFFFFF, check=True)
    def peek(self, at: int64_t, size: cython.int) -> uint64_t:
        """An unsigned little-endian integer; raises where the data ends before it."""
        number: uint64_t = 0
        if at + size > self.size:
            raise CorruptRecordError(f"the compressed data ends at byte {self.size}, within a field of its format")
        while size > 0:
            size -= 1
            number = number << 8 | self.data[at + size]
        return number

    @cython.cfunc
    @cython.exceptval(0xFFFFFFFFFFFFFFFF, check=True)
    def take(self, size: cython.int) -> uint64_t:
        """The next integer."""
        number: uint64_t = self.peek(self.at, size)
        self.at += size
        return number

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def skip_skippable(self, magic: uint64_t) -> cython.int:
        """Go behind the skippable frame here; 0 if there is none."""
        if magic & 0xFFFFFFF0 != SKIPPABLE:
            return 0
        start: int64_t = self.at
        self.at += 8 + cython.cast(int64_t, self.peek(start + 4, 4))
        if self.at > self.size:
            raise CorruptRecordError(f"a skippable frame at byte {start} of the compressed data runs past its end")
        return 1

    # ---- zstd -------------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_zstd_frame(self) -> cython.int:
        """Read one frame, from its descriptor on."""
        before: int64_t = self.bound
        descriptor: cython.int = cython.cast(cython.int, self.take(1))
        single_segment: cython.int = descriptor >> 5 & 1
        dictionary: cython.int = descriptor & 3
        size_code: cython.int = descriptor >> 6
        size_bytes: cython.int = 1 << size_code if size_code else single_segment
        declared: uint64_t
        self.at += (1 - single_segment) + (4 if dictionary == 3 else dictionary)  # window, dictionary id
        declared = self.take(size_bytes)
        if size_bytes == 2:
            declared += 256
        self.add_zstd_blocks()
        if descriptor & 4:
            self.take(4)  # the checksum must be there; the decompressor compares it
        if size_bytes:
            if declared > cython.cast(uint64_t, self.bound - before):
                raise CorruptRecordError(f"a zstd frame declares {declared} bytes, its blocks hold at most {self.bound - before}")
            self.bound = before + cython.cast(int64_t, declared)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_zstd_blocks(self) -> cython.int:
        header: uint64_t
        kind: cython.int
        size: int64_t
        while True:
            header = self.take(3)
            kind = cython.cast(cython.int, header >> 1 & 3)
            size = cython.cast(int64_t, header >> 3)
            if kind == 3 or size > ZSTD_BLOCK:
                raise CorruptRecordError(f"byte {self.at - 3} of the zstd data begins no block")
            self.at += 1 if kind == 1 else size  # kinds: 0 stored, 1 one byte repeated, 2 compressed
            self.bound += ZSTD_BLOCK if kind == 2 else size
            if header & 1:
                break
        if self.at > self.size:
            raise CorruptRecordError(f"the zstd data ends at byte {self.size}, within a block")
        return 0

    # ---- lz4 --------------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_lz4_frame(self) -> cython.int:
        """Read one frame, from its flags on."""
        flags: cython.int = cython.cast(cython.int, self.take(1))
        block: cython.int = cython.cast(cython.int, self.take(1) >> 4 & 7)
        if flags >> 6 != 1 or block < 4:
            raise CorruptRecordError(f"an LZ4 frame has version {flags >> 6} and block size code {block}; 1 and 4 to 7 are known")
        self.at += 1 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)  # header checksum; size, dictionary
        self.add_lz4_blocks(cython.cast(int64_t, 1) << (8 + 2 * block), 4 if flags & 16 else 0)
        if flags & 4:
            self.take(4)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_lz4_blocks(self, largest: int64_t, checksum: int64_t) -> cython.int:
        """Read the blocks: each makes at most *largest* bytes, and at most 255 from every one."""
        header: uint64_t = self.take(4)
        size: int64_t
        while header:
            size = cython.cast(int64_t, header & 0x7FFFFFFF)
            if size > largest:
                raise CorruptRecordError(f"an LZ4 block at byte {self.at - 4} is {size} bytes, its frame allows {largest}")
            self.bound += size if header >> 31 else min(largest, size * 255)
            self.at += size + checksum
            header = self.take(4)
        return 0

    # ---- snappy -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def snappy(self, at: int64_t, size: int64_t) -> int64_t:
        """Bytes that the raw snappy block of *size* bytes at *at* says it decompresses to, if it can be true."""
        claimed: int64_t = 0
        index: cython.int
        for index in range(cython.cast(cython.int, min(size, 5))):
            claimed |= cython.cast(int64_t, self.data[at + index] & 0x7F) << (7 * index)
            if self.data[at + index] < 0x80:
                break
        else:
            raise CorruptRecordError("a snappy block does not begin with its size")
        if claimed > size * SNAPPY_RATIO:
            raise CorruptRecordError(f"a snappy block of {size} bytes claims to hold {claimed}, which it cannot")
        return claimed

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next_block(self) -> int64_t:
        """Go to the next raw block in xerial's framing, and return its size; 0 behind the last one.

        Streams may follow each other, each with its header.
        """
        size: int64_t = 0
        index: cython.int
        while self.at < self.size:
            if self.size - self.at >= 8 and memcmp(self.data + self.at, _XERIAL_MAGIC, 8) == 0:
                self.peek(self.at + 8, 8)
                self.at += XERIAL_HEADER
                continue
            self.peek(self.at, 4)
            for index in range(4):
                size = size << 8 | self.data[self.at + index]
            self.at += 4
            if size > self.size - self.at:
                raise CorruptRecordError(f"a snappy block at byte {self.at} is {size} bytes, and {self.size - self.at} are left")
            if size == 0:
                raise CorruptRecordError("a snappy block does not begin with its size")
            return size
        return 0


def little(data: object, at: int64_t, size: cython.int) -> object:
    """An unsigned little-endian integer; raises where the data ends before it."""
    frames: _Frames = _Frames(data)
    return frames.peek(at, size)


def zstd_bound(data: object) -> object:
    """The most bytes that these zstd frames can decompress to: exact where they declare their size."""
    frames: _Frames = _Frames(data)
    magic: uint64_t
    while frames.at < frames.size:
        magic = frames.peek(frames.at, 4)
        if not frames.skip_skippable(magic):
            if magic != ZSTD_MAGIC:
                raise CorruptRecordError(f"byte {frames.at} of the zstd data begins no frame")
            frames.at += 4
            frames.add_zstd_frame()
    return frames.bound


def lz4_bound(data: object) -> object:
    """The most bytes that these LZ4 frames can decompress to."""
    frames: _Frames = _Frames(data)
    magic: uint64_t
    while frames.at < frames.size:
        magic = frames.peek(frames.at, 4)
        if not frames.skip_skippable(magic):
            if magic != LZ4_MAGIC:
                raise CorruptRecordError(f"byte {frames.at} of the LZ4 data begins no frame")
            frames.at += 4
            frames.add_lz4_frame()
    return frames.bound


def snappy_size(block: object) -> object:
    """Bytes that a raw snappy block says it decompresses to, if it can be true."""
    frames: _Frames = _Frames(block)
    return frames.snappy(0, frames.size)


def xerial_size(data: object) -> object:
    """The sum of `snappy_size` over the raw blocks within xerial's framing."""
    frames: _Frames = _Frames(data)
    size: int64_t = frames.next_block()
    while size > 0:
        frames.bound += frames.snappy(frames.at, size)
        frames.at += size
        size = frames.next_block()
    return frames.bound


def fill_from_xerial(data: object, out: object, decompress_into: object) -> object:
    """Decompress the raw blocks within xerial's framing into *out*, of `xerial_size`; returns the bytes written.

    ``decompress_into(block, out)`` is not called for an empty block, of which a megabyte holds 200,000.
    """
    frames: _Frames = _Frames(data)
    used: int64_t = 0
    claimed: int64_t
    size: int64_t = frames.next_block()
    while size > 0:
        claimed = frames.snappy(frames.at, size)
        if claimed > 0 or size > 1:
            used += decompress_into(frames.kept[frames.at : frames.at + size], out[used : used + claimed])
        frames.at += size
        size = frames.next_block()
    return used


# --- old LZ4 --------------------------------------------------------------------------------------------------------


def with_right_lz4_checksum(data: memoryview) -> memoryview:
    """An LZ4 frame as its format wants it. In message format 0 Java summed the magic number too (KAFKA-3160)."""
    flags = little(data, 4, 1)
    at = 6 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    little(data, at, 1)
    out = bytearray(data)
    out[at] = _short_xxh32(out[4:at]) >> 8 & 0xFF
    return memoryview(out)


def _short_xxh32(data: bytearray) -> object:
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


def _turned(number: object, bits: object) -> object:
    """The lower 32 bits, rotated to the left."""
    number &= 0xFFFFFFFF
    return (number << bits | number >> 32 - bits) & 0xFFFFFFFF
