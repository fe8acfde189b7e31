"""Messages of the formats 0 and 1, which brokers of 4.x still return from old segments (KIP-724), are read."""
from __future__ import annotations

import struct
import tracemalloc
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.compression import Compression
from pyclient.codec.encode import encode_values
from pyclient.codec.frames import with_right_lz4_checksum
from pyclient.errors import CorruptRecordError
from pyclient.records import TimestampType
from tests import reference_codec
from tests.unit.codec.old_messages import (
    CODECS, LOG_APPEND_TIME, Fields, linked_lz4, message, packed, with_crc, wrapped, written)

MIB: Final = 2**20
MAGICS: Final = pytest.mark.parametrize("magic", [0, 1])
ALL_CODECS: Final = pytest.mark.parametrize("codec", [Compression.NONE, *CODECS])
CONTENT: Final = st.none() | st.binary(max_size=200)
ROWS: Final = st.lists(st.tuples(st.integers(-1, 2**62), CONTENT, CONTENT), min_size=1, max_size=20)
THREE: Final[list[Fields]] = [(1000, b"a", b"1"), (900, None, None), (2**40, b"", b"x" * 300)]


def one(data: bytes, limit: int = MIB) -> RecordBatch:
    (batch,) = read_batches(data, decompression_limit=limit)
    return batch


def found(data: bytes) -> list[reference_codec.ReferenceMessage]:
    """Read as records and as columns, which must agree."""
    batches = read_batches(data)
    records = [record for batch in batches for record in batch.records("t", 0)]
    table = to_arrow([("t", 0, batch, 0, None) for batch in batches])
    table.validate(full=True)
    rows = [reference_codec.ReferenceMessage(r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value) for r in records]
    assert table.column("offset").to_pylist() == [row.offset for row in rows]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [row.timestamp for row in rows]
    assert table.column("timestamp_type").to_pylist() == [row.timestamp_type for row in rows]
    assert table.column("key").to_pylist() == [row.key for row in rows]
    assert table.column("value").to_pylist() == [row.value for row in rows]
    assert all(record.headers == [] and record.leader_epoch is None for record in records)
    return rows


def values(data: bytes) -> list[bytes | None]:
    return [row.value for row in found(data)]


# --- what is read ----------------------------------------------------------------------------------------------------


@given(rows=ROWS, base=st.integers(0, 2**40), broker_time=st.booleans())
@settings(max_examples=60, deadline=None)
@MAGICS
@ALL_CODECS
def test_B05_old_messages_are_read_as_an_independent_reader_reads_them(
    codec: Compression, magic: int, rows: list[Fields], base: int, broker_time: bool
) -> None:
    data = written(codec, magic, base, rows, attributes=LOG_APPEND_TIME * broker_time)
    assert found(data) == reference_codec.decode_messages(data)


@ALL_CODECS
def test_format_0_has_no_timestamps(codec: Compression) -> None:
    rows = found(written(codec, 0, 40, THREE, attributes=LOG_APPEND_TIME))
    assert [(row.offset, row.timestamp, row.timestamp_type) for row in rows] == [(40, -1, -1), (41, -1, -1), (42, -1, -1)]
    assert one(written(codec, 0, 40, THREE)).timestamp_type is TimestampType.NO_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_in_a_compressed_message_of_format_1_count_from_its_first(codec: Compression) -> None:
    inner = b"".join(message(1, offset, 10 + offset) for offset in (0, 3, 7))
    assert [(row.offset, row.timestamp) for row in found(wrapped(codec, 1, 107, inner))] == [(100, 10), (103, 13), (107, 17)]


def test_offsets_in_a_compressed_message_of_format_0_are_those_of_the_partition() -> None:
    inner = b"".join(message(0, offset) for offset in (100, 103, 107))
    assert [row.offset for row in found(wrapped(Compression.GZIP, 0, 107, inner))] == [100, 103, 107]


def test_B07_the_brokers_time_of_a_compressed_message_is_that_of_all_in_it() -> None:
    data = written(Compression.GZIP, 1, 0, THREE, attributes=LOG_APPEND_TIME)
    assert {(row.timestamp, row.timestamp_type) for row in found(data)} == {(2**40, 1)}


def test_uncompressed_messages_keep_the_brokers_time_of_each() -> None:
    data = written(Compression.NONE, 1, 0, THREE, attributes=LOG_APPEND_TIME)
    assert [(row.timestamp, row.timestamp_type) for row in found(data)] == [(1000, 1), (900, 1), (2**40, 1)]


def test_uncompressed_messages_in_a_row_are_one_batch_and_a_compressed_one_is_another() -> None:
    plain, whole = written(Compression.NONE, 1, 10, THREE), written(Compression.GZIP, 1, 13, THREE)
    batches = read_batches(plain + whole + written(Compression.NONE, 0, 20, THREE) + encode_values([b"new"], base_offset=30))
    for batch in batches:
        batch.open()
    assert [(b.magic, b.base_offset, b.last_offset, b.next_offset, b.count, b.compression) for b in batches] == [
        (1, 10, 12, 13, 3, 0), (1, 13, 15, 16, 3, 1), (0, 20, 22, 23, 3, 0), (2, 30, 30, 31, 1, 0)]
    assert [batch.size for batch in batches[:2]] == [len(plain), len(whole)]


def test_the_position_after_a_compressed_message_is_known_before_it_is_opened() -> None:
    batch = one(written(Compression.GZIP, 1, 50, THREE))
    assert (batch.last_offset, batch.next_offset) == (52, 53)
    assert (batch.index_of(51), batch.offset_of(1), batch.base_offset, len(batch)) == (1, 51, 50, 3)


@MAGICS
def test_old_messages_belong_to_no_transaction_and_no_producer(magic: int) -> None:
    batch = one(message(magic, 5, attributes=0x70))
    assert not batch.is_transactional
    assert not batch.is_control
    assert batch.delete_horizon is None
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch) == (-1, -1, -1, -1)


@pytest.mark.parametrize("frame", [linked_lz4(b"x" * 90_000), packed(Compression.LZ4, 1, b"x" * 90_000)])
def test_the_wrong_checksum_of_lz4_frames_in_format_0_is_no_damage(frame: bytes) -> None:
    harmed = bytearray(frame)
    place = 14 if frame[4] & 8 else 6
    harmed[place] ^= 0xFF
    assert bytes(with_right_lz4_checksum(memoryview(bytes(harmed)))) == frame


@MAGICS
def test_a_message_cut_off_at_the_end_is_left_out(magic: int) -> None:
    data = written(Compression.NONE, magic, 0, THREE)
    for cut in range(1, 300):
        assert values(data[:-cut]) == [b"1", None]
    whole = written(Compression.GZIP, magic, 3, THREE)
    assert all(values(data + whole[:cut]) == [b"1", None, b"x" * 300] for cut in range(len(whole)))


@MAGICS
def test_what_is_cut_off_within_a_compressed_message_is_left_out_as_java_does(magic: int) -> None:
    inner = b"".join(message(magic, at, value=b"%d" % at) for at in range(3))
    assert values(wrapped(Compression.GZIP, magic, 2, inner[:-1])) == [b"0", b"1"]


@MAGICS
def test_a_negative_length_is_a_null_and_bytes_behind_the_value_are_ignored_as_java_does(magic: int) -> None:
    body = struct.pack(">bB", magic, 0) + bytes(8 * magic) + struct.pack(">ii", -5, 1) + b"v" + b"behind"
    assert [(row.key, row.value) for row in found(with_crc(4, body))] == [(None, b"v")]


def test_part_of_a_compressed_message_is_read() -> None:
    batch = one(written(Compression.SNAPPY, 1, 50, THREE))
    assert [record.offset for record in batch.records("t", 0, 1)] == [51, 52]
    assert to_arrow([("t", 0, batch, 2, 3)]).column("offset").to_pylist() == [52]


# --- damage ----------------------------------------------------------------------------------------------------------


def recrced(data: bytes, at: int, new: bytes) -> bytes:
    """One message with bytes replaced and its checksum right."""
    out = data[:at] + new + data[at + len(new) :]
    return with_crc(int.from_bytes(data[:8], "big"), out[16:])


@MAGICS
@ALL_CODECS
def test_a_wrong_checksum_is_found_unless_it_is_not_asked_for(codec: Compression, magic: int) -> None:
    data = bytearray(written(codec, magic, 50, THREE[:1]))
    data[12] ^= 1
    with pytest.raises(CorruptRecordError, match="at offset 50 .*CRC-32 of its message at offset 50 is 0x.*seek past it"):
        one(bytes(data)).open()
    (batch,) = read_batches(bytes(data), check_crcs=False)
    assert len(batch.records("t", 0)) == 1


def test_a_wrong_checksum_within_a_compressed_message_is_found() -> None:
    inner = bytearray(message(1, 0))
    inner[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC-32"):
        one(wrapped(Compression.GZIP, 1, 3, bytes(inner))).open()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wrapped(Compression.GZIP, 1, 3, b""), "holds no message"),
        (wrapped(Compression.GZIP, 1, 3, message(1, 0)[:-1]), "holds no message"),
        (message(1, 3, value=None, attributes=1), "without a value"),
        (message(1, 3, value=b"junk", attributes=1), "gzip data is damaged"),
        (wrapped(Compression.GZIP, 1, 3, message(0, 3)), "a message of format 0 in one of format 1"),
        (wrapped(Compression.GZIP, 1, 3, wrapped(Compression.GZIP, 1, 3, message(1, 0))), "compressed again"),
        (wrapped(Compression.GZIP, 1, 3, struct.pack(">qi", 0, 13) + bytes(20)), "a message of 25 bytes"),
        (wrapped(Compression.GZIP, 1, 3, message(1, 0) + message(1, 0)), "does not follow that before it"),
        (wrapped(Compression.GZIP, 1, 3, message(1, -1)), "does not follow"),
        (wrapped(Compression.GZIP, 1, 3, message(1, 0) + message(1, 2**31)), "does not follow"),
        (wrapped(Compression.GZIP, 1, 3, message(1, 0) + message(1, 4)), "its offset 3 is less than 4"),
        (wrapped(Compression.GZIP, 0, 3, message(0, 4)), "offset is not between"),
        (wrapped(Compression.GZIP, 0, 2**33, message(0, 4)), "too far from its own"),
        (recrced(message(1, 3), 26, struct.pack(">i", 6)), "longer than the message"),
        (recrced(message(1, 3), 31, struct.pack(">i", 2)), "longer than the message"),
        (recrced(message(0, 3), 18, struct.pack(">i", 2**31 - 1)), "longer than the message"),
    ],
)
def test_a_damaged_old_message_behind_a_right_checksum_is_found_and_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"the record batch at offset .*{reason}"):
        one(data).open()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (recrced(message(1, 3, attributes=4), 0, b""), "its compression is 4, and message format 1 has 0 to 3"),
        (message(0, -1), "its offset is -1"),
        (message(0, 2**63 - 1), "its offset is 9223372036854775807"),
        (struct.pack(">qiIbB", 3, 21, 0, 1, 0) + bytes(30), "33 bytes, and a message of format 1 takes at least 34"),
    ],
)
def test_an_old_message_with_an_impossible_header_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        read_batches(data)
    (good,) = read_batches(written(Compression.NONE, 1, 0, THREE) + data)
    assert good.count == 3


def test_messages_around_a_damaged_one_are_read() -> None:
    data = bytearray(b"".join(message(1, at, value=b"%d" % at) for at in range(5)))
    data[2 * len(data) // 5 + 12] ^= 1
    batch = one(bytes(data))
    with pytest.raises(CorruptRecordError):
        batch.open()
    before, damaged, after = batch.parts()
    assert [r.value for r in before.records("t", 0)] == [b"0", b"1"]
    assert [r.value for r in after.records("t", 0)] == [b"3", b"4"]
    with pytest.raises(CorruptRecordError, match="at offset 2 "):
        damaged.open()
    assert damaged.parts() == []


# --- bounds ----------------------------------------------------------------------------------------------------------


def peak_of(data: bytes, limit: int) -> int:
    tracemalloc.start()
    try:
        for batch in read_batches(data, decompression_limit=limit):
            batch.open()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magics", [(0, 0), (1, 1), (0, 1)], ids=["format 0", "format 1", "in turns"])
def test_M12_tiny_old_messages_take_at_most_four_times_their_size(magics: tuple[int, int]) -> None:
    data = b"".join(message(magics[at % 2], at, key=None, value=None) for at in range(40_000))
    assert peak_of(data, MIB) <= 4 * len(data) + MIB
    read, at = 0, 0
    while at < len(data):
        batches = read_batches(data[at:])
        read += sum(batch.count for batch in batches)
        at += sum(batch.size for batch in batches)
    assert read == 40_000


@pytest.mark.parametrize("codec", CODECS)
def test_M12_a_compressed_old_message_takes_no_more_than_the_limit(codec: Compression) -> None:
    inner = b"".join(message(1, at, value=bytes(1000)) for at in range(4000))
    data = wrapped(codec, 1, 3999, inner)
    assert peak_of(data, len(inner)) <= len(inner) + MIB
    with pytest.raises(CorruptRecordError, match="decompresses to more than the"):
        one(data, len(inner) - 1).open()
