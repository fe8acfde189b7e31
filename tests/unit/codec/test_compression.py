"""Compression: every Kafka client's framing is read, Java reads ours, and nothing exceeds its limit."""
from __future__ import annotations

import gzip
import os
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression, compress, decompress
from pyclient.codec.encode import encode_batch
from pyclient.codec.frames import XERIAL_MAGIC, fill_from_xerial, lz4_bound, xerial_size, zstd_bound
from pyclient.errors import CorruptRecordError

CODECS = [codec for codec in Compression if codec]
TEXT = b'{"id": 17, "name": "kafka"}, ' * 20_000
NOISE = random.Random(1).randbytes(300_000)
MIB = 2**20


def xerial(*blocks: bytes) -> bytes:
    framed = [struct.pack(">I", len(block)) + block for block in map(bytes, map(cramjam.snappy.compress_raw, blocks))]
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(framed)


def lz4_frame(data: bytes, *, linked: bool, checksum: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, block_linked=linked, content_checksum=checksum)
    compressor.compress(data)
    return bytes(compressor.finish())


@given(data=st.binary(max_size=300) | st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.integers(0, 9000)))
@pytest.mark.parametrize("codec", Compression)
def test_what_was_compressed_is_decompressed(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 300_000])
@pytest.mark.parametrize("source", [TEXT, NOISE], ids=["text", "noise"])
@pytest.mark.parametrize("codec", CODECS)
def test_data_around_the_block_sizes_survives(codec: Compression, source: bytes, size: int) -> None:
    assert decompress(codec, compress(codec, source[:size]), size) == source[:size]


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, [-1, 1, 6, 9]), (Compression.LZ4, [1, 3, 9, 12, 17]), (Compression.ZSTD, [-131072, -5, 1, 3, 19, 22])],
)
def test_every_level_of_a_codec_is_readable(codec: Compression, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT[:70_000], level)) == TEXT[:70_000]


def test_a_higher_level_is_denser() -> None:
    rows = b"".join(b'{"id": %d, "score": %d}' % (number, number * 7919 % 1009) for number in range(3000))
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.LZ4, 9, 12), (Compression.ZSTD, -50, 19)):
        assert len(compress(codec, rows, high)) < len(compress(codec, rows, low))


@pytest.mark.parametrize(
    ("codec", "level", "message"),
    [
        (Compression.GZIP, 10, "level 10 is not one of gzip: 1 to 9, default 6"),
        (Compression.GZIP, 0, "level 0 is not one of gzip"),
        (Compression.LZ4, 18, "level 18 is not one of lz4: 1 to 17, default 9"),
        (Compression.ZSTD, 23, "level 23 is not one of zstd: -131072 to 22, default 3"),
        (Compression.SNAPPY, 1, "snappy has no levels"),
        (Compression.NONE, 1, "none has no levels"),
    ],
)
def test_a_level_that_a_codec_does_not_have_is_refused_with_its_range(codec: Compression, level: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compress(codec, b"x", level)


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'brotli' is unknown; Kafka has none, gzip, snappy, lz4, zstd"):
        encode_batch([], compression="brotli")


def test_lz4_is_written_in_independent_blocks_because_java_reads_no_others() -> None:
    assert bytes(compress(Compression.LZ4, TEXT))[4] & 0x20


def test_snappy_is_written_in_xerials_framing_because_old_java_clients_read_no_other() -> None:
    assert bytes(compress(Compression.SNAPPY, TEXT)).startswith(XERIAL_MAGIC)


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), TEXT),
        (Compression.SNAPPY, xerial(TEXT), TEXT),
        (Compression.SNAPPY, xerial(TEXT, b"", NOISE) + xerial(b"second stream"), TEXT + NOISE + b"second stream"),
        (Compression.SNAPPY, xerial(), b""),
        (Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)), TEXT),
        (Compression.LZ4, lz4_frame(TEXT, linked=True, checksum=True), TEXT),
        (Compression.LZ4, lz4_frame(TEXT, linked=False, checksum=True), TEXT),
        (Compression.LZ4, lz4_frame(TEXT, linked=True, checksum=False) + lz4_frame(b"x", linked=False, checksum=True), TEXT + b"x"),
        (Compression.LZ4, b"\x5f\x2a\x4d\x18\x03\0\0\0abc" + bytes(cramjam.lz4.compress(TEXT)), TEXT),
        (Compression.GZIP, gzip.compress(TEXT) + gzip.compress(NOISE), TEXT + NOISE),
        (Compression.GZIP, gzip.compress(b"") + gzip.compress(b"x"), b"x"),
        (Compression.GZIP, gzip.compress(TEXT) + bytes(100_000), TEXT),
        (Compression.GZIP, gzip.compress(b"x") + b"\0" + gzip.compress(b"y") + b"\0", b"xy"),
        (Compression.ZSTD, bytes(cramjam.zstd.compress(TEXT)) + bytes(cramjam.zstd.compress(NOISE)), TEXT + NOISE),
        (Compression.ZSTD, b"\x50\x2a\x4d\x18\x02\0\0\0ab" + bytes(cramjam.zstd.compress(TEXT)), TEXT),
    ],
    ids=[
        "raw snappy", "one xerial block", "xerial streams in a row", "empty xerial", "linked lz4", "lz4 with checksum, linked",
        "lz4 with checksum", "lz4 frames in a row", "skippable lz4 frame", "gzip members", "empty gzip member", "zeros behind gzip", "zeros between gzip members", "zstd frames",
        "skippable zstd frame",
    ],
)
def test_the_framings_of_other_clients_are_read(codec: Compression, data: bytes, expected: bytes) -> None:
    assert decompress(codec, data) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_exactly_the_limit_is_allowed_and_a_byte_more_is_not(codec: Compression) -> None:
    for data in (TEXT, NOISE, b"ab"):
        packed = compress(codec, data)
        assert decompress(codec, packed, len(data)) == data
        with pytest.raises(CorruptRecordError, match=f"more than the {len(data) - 1} bytes"):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("harm", [lambda data: data[:-1], lambda data: data + b"junk", lambda data: data[:20], lambda data: b""])
def test_compressed_data_that_is_cut_off_or_followed_by_anything_is_refused(
    codec: Compression, harm: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, harm(bytes(compress(codec, TEXT))))


def test_a_wrong_checksum_of_a_frame_is_found() -> None:
    damaged = bytearray(lz4_frame(TEXT, linked=True, checksum=True))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="lz4"):
        decompress(Compression.LZ4, damaged)
    damaged = bytearray(gzip.compress(TEXT))
    damaged[-5] ^= 1
    with pytest.raises(CorruptRecordError, match="gzip"):
        decompress(Compression.GZIP, damaged)


@given(data=st.binary(max_size=4000), times=st.integers(1, 200), level=st.integers(-3, 9))
def test_the_bound_read_from_a_frame_is_never_below_its_content(data: bytes, times: int, level: int) -> None:
    content = data * times
    assert zstd_bound(memoryview(compress(Compression.ZSTD, content, level))) >= len(content)
    assert lz4_bound(memoryview(compress(Compression.LZ4, content, max(level, 1)))) >= len(content)
    assert lz4_bound(memoryview(bytes(cramjam.lz4.compress(content)))) >= len(content)


# --- bombs -----------------------------------------------------------------------------------------------------------


def gzip_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def zstd_bomb(size: int) -> bytes:
    """Blocks that repeat one byte: 4 bytes for 128 KiB."""
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (131072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x88" + block * (size // 131072 - 1) + last


def lz4_bomb(size: int) -> bytes:
    """Blocks of 4 MiB zeros."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    framed = len(block).to_bytes(4, "little") + block
    return LZ4_4_MIB_HEADER + framed * (size // (4 * MIB)) + bytes(4)


LZ4_4_MIB_HEADER = b"\x04\x22\x4d\x18\x60\x70\x73"  # independent blocks of up to 4 MiB


def snappy_bomb(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1" + (len(block).to_bytes(4, "big") + block) * (size // MIB)


BOMBS = {
    Compression.GZIP: gzip_bomb, Compression.ZSTD: zstd_bomb, Compression.LZ4: lz4_bomb, Compression.SNAPPY: snappy_bomb,
}


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_real(codec: Compression) -> None:
    assert decompress(codec, BOMBS[codec](8 * MIB), 8 * MIB) == bytes(8 * MIB)


@pytest.mark.parametrize("codec", CODECS)
def test_M12_a_decompression_bomb_is_stopped_at_the_limit(codec: Compression) -> None:
    bomb = BOMBS[codec](128 * MIB)
    limit = 3 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="more than the 3145728 bytes that one batch may hold"):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit + MIB


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10)),
        (Compression.SNAPPY, b"\x80\x80\x80\x10" + bytes(10)),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + b"\x01\0\0"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xa0" + b"\xff\xff\xff\x03" + b"\x01\0\0"),
    ],
    ids=["snappy preamble", "snappy preamble within the limit", "zstd content size", "zstd content size within the limit"],
)
def test_M12_a_size_that_the_data_cannot_hold_is_rejected_before_memory_is_allocated(codec: Compression, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_the_limit_of_a_reader_reaches_the_decompressor() -> None:
    data = encode_batch([(0, None, bytes(10_000), [])], compression="zstd")
    (batch,) = read_batches(data, decompression_limit=5_000)
    with pytest.raises(CorruptRecordError, match="at offset 0 .* more than the 5000 bytes .* raise decompression_limit"):
        batch.open()
    read_batches(data, decompression_limit=20_000)[0].open()


def test_a_small_batch_does_not_keep_memory_for_its_bound() -> None:
    compressor = cramjam.zstd.Compressor(level=1)  # streaming: the frame does not declare its size
    compressor.compress(b"small " * 100)
    frame = bytes(compressor.finish())
    assert zstd_bound(memoryview(frame)) == 128 * 1024
    tracemalloc.start()
    try:
        kept = decompress(Compression.ZSTD, frame)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept == b"small " * 100
    assert size < 8_000


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_compressed_data_takes_no_more_memory_than_its_length(codec: Compression) -> None:
    for data in (b"", os.urandom(5_000), bytes(200_000), os.urandom(3_000_000)):
        packed = compress(codec, data)
        assert isinstance(packed, bytes)
        assert sys.getsizeof(packed) - len(packed) < 100


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD], ids=str)
def test_threads_that_compress_at_once_share_no_buffer(codec: Compression) -> None:
    sizes = [size * 1_000 + thread for size in (200, 3, 1_500, 40) for thread in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for size, packed in zip(sizes, threads.map(lambda size: compress(codec, bytes([size % 251]) * size), sizes), strict=True):
            assert bytes(decompress(codec, packed)) == bytes([size % 251]) * size


def test_a_signals_handler_may_compress_in_the_middle_of_a_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    real, inner = cramjam.zstd.compress_into, b"another topic's records" * 50
    begun: list[bytes] = []

    class Interrupted:
        decompress = cramjam.zstd.decompress

        @staticmethod
        def compress_into(data: bytes, out: bytearray, level: int) -> int:
            size = int(real(data, out, level=level))
            if not begun:
                begun.append(b"")
                begun.append(bytes(compress(Compression.ZSTD, inner)))
            return size

    monkeypatch.setattr(cramjam, "zstd", Interrupted)
    outer = compress(Compression.ZSTD, b"this topic's records" * 60)
    monkeypatch.undo()
    assert bytes(decompress(Compression.ZSTD, outer)) == b"this topic's records" * 60
    assert bytes(decompress(Compression.ZSTD, begun[1])) == inner


MEGABYTE: Final = 1_000_000
XERIAL: Final = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
EMPTY_BLOCKS: Final = {
    Compression.SNAPPY: XERIAL + b"\0\0\0\1\0" * (MEGABYTE // 5),
    Compression.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82" + b"\0\0\0\x80" * (MEGABYTE // 4) + bytes(4),
    Compression.ZSTD: b"\x28\xb5\x2f\xfd\x00\x58" + bytes(MEGABYTE // 3 * 3) + b"\1\0\0",
}


@pytest.mark.parametrize("codec", EMPTY_BLOCKS)
def test_a_megabyte_of_empty_blocks_is_not_walked_by_interpreted_code(codec: Compression) -> None:
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        read = decompress(codec, EMPTY_BLOCKS[codec])
    finally:
        sys.setprofile(None)
    assert len(read) == 0
    assert calls < 100


def test_snappy_is_read_where_cramjam_writes_into_no_memoryview_as_without_a_GIL(monkeypatch: pytest.MonkeyPatch) -> None:
    write = cramjam.snappy.decompress_raw_into

    def refusing(data: Any, out: Any) -> int:
        if isinstance(out, memoryview):
            raise TypeError("no mutable reference to a memoryview")
        return int(write(data, out))

    monkeypatch.setattr("pyclient.codec.compression.cramjam.snappy", SimpleNamespace(decompress_raw_into=refusing, compress_raw=cramjam.snappy.compress_raw))
    for data in (xerial(TEXT, b"", NOISE), bytes(cramjam.snappy.compress_raw(TEXT))):
        assert decompress(Compression.SNAPPY, data).tobytes() in (TEXT, TEXT + NOISE)


def test_empty_snappy_blocks_are_no_calls_of_the_decompressor() -> None:
    blocks: list[bytes] = []

    def into(block: memoryview, out: memoryview) -> int:
        blocks.append(bytes(block))
        out[:] = b"a"
        return 1

    data = memoryview(XERIAL + b"\0\0\0\1\0" * 100 + b"\0\0\0\3\1\0a" + b"\0\0\0\2\0\0")
    out = memoryview(bytearray(xerial_size(data)))
    with pytest.raises(ValueError, match="memoryview assignment"):  # the last block is damaged, and no empty one
        fill_from_xerial(data, out, into)
    assert blocks == [b"\1\0a", b"\0\0"]
    assert bytes(out) == b"a"
