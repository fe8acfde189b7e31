"""Batches: positions within them, control types, and one error for everything that can be wrong."""
from __future__ import annotations

import gc
import operator
import pickle
import sys
import threading
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.columns import schema, to_arrow
from pyclient.codec.compression import Compression, compress
from pyclient.codec.encode import batch_header, encode_batch, encode_headers, encode_values
from pyclient.errors import CorruptRecordError
from tests import reference_codec
from tests.unit.codec.damage import changed, healed, record, with_records, zigzag
from tests.unit.codec.strategies import CODECS, CONTENT

THREE = encode_batch([(1000 + i, b"k%d" % i, b"v%d" % i, []) for i in range(3)], base_offset=50)
MIB = 2**20


def one(data: bytes | bytearray | memoryview, **options: Any) -> RecordBatch:
    (batch,) = read_batches(data, **options)
    return batch


def sparse(*deltas: int, last: int | None = None) -> bytes:
    """A compacted batch at offset 50 of which records at these deltas are left."""
    records = [record(b"\0\0" + zigzag(delta) + zigzag(-1) + zigzag(-1) + zigzag(0)) for delta in deltas]
    return changed(with_records(THREE, *records), {"last_offset_delta": max(deltas) if last is None else last})


# --- positions -------------------------------------------------------------------------------------------------------


@given(deltas=st.sets(st.integers(0, 300), min_size=1), offset=st.integers(0, 500))
def test_the_index_of_an_offset_is_that_of_the_first_record_at_or_after_it(deltas: set[int], offset: int) -> None:
    offsets = sorted(50 + delta for delta in deltas)
    batch = one(sparse(*sorted(deltas), last=320))
    index = batch.index_of(offset)
    assert index == sum(other < offset for other in offsets)
    assert [batch.offset_of(i) for i in range(len(offsets))] == offsets
    assert [r.offset for r in batch.records("t", 0, index)] == [other for other in offsets if other >= offset]


def test_positions_at_the_ends_of_the_offset_range() -> None:
    batch = one(encode_values([b"a", b"b"], base_offset=2**63 - 3))
    assert (batch.last_offset, batch.next_offset) == (2**63 - 2, 2**63 - 1)
    assert [batch.index_of(offset) for offset in (-(2**63), 2**63 - 3, 2**63 - 2, 2**63 - 1)] == [0, 0, 1, 2]


def test_C04_a_compacted_batch_covers_all_its_offsets() -> None:
    batch = one(sparse(2, 5, last=9))
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (50, 59, 60, 2)


@pytest.mark.parametrize("bounds", [(0, 4), (-1, 2), (2, 1), (4, 4), (0, -1)])
def test_a_range_outside_the_batch_is_refused(bounds: tuple[int, int]) -> None:
    batch = one(THREE)
    for take in (batch.records, batch.iter_records):
        with pytest.raises(IndexError, match="of a batch that has 3; take 0 <= start <= stop <= count"):
            take("t", 0, *bounds)
    with pytest.raises(IndexError):
        to_arrow([("t", 0, batch, *bounds)])


def test_an_index_outside_the_batch_has_no_offset() -> None:
    for index in (-1, 3):
        with pytest.raises(IndexError, match="record -?[0-9] of a batch that has 3"):
            one(THREE).offset_of(index)


def test_part_of_a_batch_is_read_by_indexes() -> None:
    batch = one(THREE)
    assert [r.value for r in batch.records("t", 0, 1, 2)] == [b"v1"]
    assert [r.value for r in batch.iter_records("t", 0, 1)] == [b"v1", b"v2"]
    assert batch.records("t", 0, 3) == list(batch.iter_records("t", 0, 3)) == []


def test_an_iterator_outlives_the_batch_and_the_response() -> None:
    data = bytearray(THREE)
    iterator = one(data).iter_records("t", 0)
    assert operator.length_hint(iterator) == 3
    del data
    gc.collect()
    assert [r.key for r in iterator] == [b"k0", b"k1", b"k2"]
    assert next(iterator, None) is None


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(b"xx" + data))[2:]])
def test_a_response_may_be_any_contiguous_buffer(form: Any) -> None:
    assert [r.value for r in one(form(THREE)).records("t", 0)] == [b"v0", b"v1", b"v2"]


def test_text_or_a_buffer_with_gaps_is_rejected() -> None:
    for wrong in ("text", memoryview(THREE)[::2]):
        with pytest.raises(TypeError):
            read_batches(wrong)  # type: ignore[arg-type]


def test_only_read_batches_creates_a_batch() -> None:
    with pytest.raises(TypeError, match=r"read_batches\(data\)"):
        RecordBatch()
    with pytest.raises(TypeError):
        pickle.dumps(one(THREE))


def test_a_batchs_repr_says_what_it_covers() -> None:
    assert repr(one(encode_batch([(0, None, b"v", [])], base_offset=7, transactional=True, producer_id=1))) == (
        "RecordBatch(offsets 7 to 7, 1 records, transactional, none, 69 bytes)"
    )


def test_many_threads_may_open_one_batch() -> None:
    data = encode_values([bytes(100)] * 5000, compression="zstd")
    for _ in range(20):
        batch = one(data)
        start = threading.Barrier(4)
        seen: list[int] = []

        def read(batch: RecordBatch = batch, start: threading.Barrier = start, seen: list[int] = seen) -> None:
            start.wait(10)
            batch.open()
            seen.append(len(batch.records("t", 0)))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert seen == [5000] * 4


# --- control batches -------------------------------------------------------------------------------------------------


def control(key: bytes | None) -> RecordBatch:
    return one(encode_batch([(0, key, b"\0\0\0\0\0\1", [])], control=True, base_offset=9))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"\0\0\0\0", "ABORT"), (b"\0\0\0\1", "COMMIT"), (b"\0\0\0\2", "LEADER_CHANGE"), (b"\0\0\0\3", "SNAPSHOT_HEADER"),
        (b"\0\0\0\4", "SNAPSHOT_FOOTER"), (b"\0\0\0\5", "KRAFT_VERSION"), (b"\0\0\0\6", "KRAFT_VOTERS"),
        (b"\0\1\0\1 and more in a later version", "COMMIT"), (b"\0\0\0\x63", "UNKNOWN"), (b"\0\0\xff\xff", "UNKNOWN"),
    ],
)
def test_a_control_record_is_named_by_the_type_in_its_key(key: bytes, kind: str) -> None:
    assert control(key).control_type() == kind


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_without_version_and_type_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="at offset 9 .* control batch"):
        control(key).control_type()


def test_B06_a_control_batch_takes_little_memory() -> None:
    bomb = one(encode_batch([(0, bytes(8192), None, [])], control=True, compression="zstd"))
    with pytest.raises(CorruptRecordError, match="more than the 4096 bytes"):
        bomb.control_type()


def test_a_control_batch_whose_record_is_gone_has_no_type() -> None:
    data = encode_batch([], control=True)
    assert one(data).control_type() == "NONE"


def test_control_type_of_a_data_batch_raises_an_error_that_names_is_control() -> None:
    with pytest.raises(ValueError, match="is not a control batch; check is_control first"):
        one(THREE).control_type()


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": -1}, "its length is -1"),
        ({"length": 48}, "its length is 60 bytes, and the header alone takes 61"),
        ({"length": 13}, "its length is 13, and no record takes less than 14 bytes"),
        ({"magic": 3}, "message format is 3, and this client knows 0 to 2"),
        ({"magic": -1}, "this is no record batch"),
        ({"attributes": 5}, "its compression is 5, and this client knows 0 to 4"),
        ({"count": -1}, "it counts -1 records"),
        ({"last_offset_delta": -1}, "the last one -1 after the first"),
        ({"base_offset": -1}, "its first offset is -1"),
        ({"base_offset": 2**63 - 3}, "its last one 2 after that"),
    ],
)
def test_a_damaged_header_is_refused_with_offset_place_and_reason(fields: dict[str, int], message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message) as caught:
        read_batches(changed(THREE, fields))
    assert str(caught.value).startswith(f"the record batch at offset {fields.get('base_offset', 50)} (byte 0 of ")


def test_complete_batches_before_a_damaged_header_are_returned_and_the_next_read_raises() -> None:
    bad = changed(THREE, {"magic": 3})
    (good,) = read_batches(THREE + bad)
    assert good.next_offset == 53
    with pytest.raises(CorruptRecordError):
        read_batches((THREE + bad)[good.size :])


@pytest.mark.parametrize("size", range(12, 17))
@pytest.mark.parametrize("length", [-1, 0, 13, -(2**31)])
def test_B04_an_impossible_length_is_damage_even_where_the_rest_is_cut_off(size: int, length: int) -> None:
    tail = changed(THREE, {"length": length})[:size]
    (good,) = read_batches(THREE + tail)
    with pytest.raises(CorruptRecordError, match=f"its length is {length}, and no record takes less"):
        read_batches((THREE + tail)[good.size :])


@pytest.mark.parametrize("size", range(17))
def test_B04_a_possible_length_is_cut_off(size: int) -> None:
    for length in (14, 49, 2**31 - 1):
        assert read_batches(changed(THREE, {"length": length})[:size]) == []


def test_a_wrong_checksum_raises_with_both_sums_and_the_way_out() -> None:
    data = bytearray(THREE)
    data[-2] ^= 1
    batch = one(data)
    for _ in range(2):  # it stays closed
        with pytest.raises(CorruptRecordError, match=r"at offset 50 .* CRC-32C is 0x\w{8}, the header says 0x\w{8}.*seek past it"):
            batch.records("t", 0)
    assert [r.value for r in one(data, check_crcs=False).records("t", 0)] != []


def test_C06_the_checksum_is_compared_before_anything_is_decompressed() -> None:
    data = changed(encode_values([bytes(1000)], compression="zstd"), {"crc": 0}, heal=False)
    with pytest.raises(CorruptRecordError, match="CRC-32C"):
        one(data, decompression_limit=10).open()


GOOD = record(b"\0\0\0\1\1\0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_records(THREE, GOOD, record(b"\0\0\2\1\1\0"), count=1), "7 bytes follow the last of its 1 records"),
        (with_records(THREE, GOOD, count=2), "counts 2 records, for which 7 bytes cannot do"),
        (with_records(THREE, count=2**31 - 1), "counts 2147483647 records, for which 0 bytes"),
        (with_records(THREE, GOOD, GOOD), "record 1 of 2 is damaged: its offset is not between"),
        (with_records(THREE, record(b"\0\0\x06\1\1\0")), "its offset is not between"),
        (with_records(THREE, record(b"\0\0\1\1\1\0")), "its offset is not between"),
        (with_records(THREE, zigzag(-1) + bytes(9)), "its length field is damaged"),
        (with_records(THREE, zigzag(5) + bytes(9)), "its length field is damaged"),
        (with_records(THREE, zigzag(9) + bytes(8)), "its length field is damaged"),
        (with_records(THREE, b"\xff" * 9), "its length field is damaged"),
        (with_records(THREE, record(b"\0" + b"\xff" * 10 + b"\0\1\1\0")), "a varint that is too long"),
        (with_records(THREE, record(b"\0" + b"\xff" * 9 + b"\2" + b"\0\1\1\0")), "a varint that is too long"),
        (with_records(THREE, record(b"\0\0" + b"\x80" * 4 + b"\x10\1\1\0")), "a varint that is too long"),
        (with_records(THREE, record(b"\0\0\0\x03\1\0")), "its key is longer"),
        (with_records(THREE, record(b"\0\0\0" + zigzag(2**31 - 1) + b"\1\0")), "its key is longer"),
        (with_records(THREE, record(b"\0\0\0\1\x03\0")), "its value is longer"),
        (with_records(THREE, record(b"\0\0\0\1" + zigzag(3) + b"\0\0")), "its value is longer"),
        (with_records(THREE, record(b"\0\0\0\1\1\1")), "its number of headers"),
        (with_records(THREE, record(b"\0\0\0\1\1" + zigzag(2**31 - 1))), "its number of headers"),
        (with_records(THREE, record(b"\0\0\0\1\1" + zigzag(1_000_001) + b"\0\1" * 1_000_001)), "it has more than 1,000,000 headers"),
        (with_records(THREE, record(b"\0\0\0\1\1\2" + b"\1\1")), "a header's name is null"),
        (with_records(THREE, record(b"\0\0\0\1\1\2" + b"\x06a\1")), "a header's name is null or longer"),
        (with_records(THREE, record(b"\0\0\0\1\1\2" + b"\2a\x08x")), "a header's value is longer"),
        (with_records(THREE, record(b"\0\0\0\1\1\0\0")), "its length is not that of its fields"),
    ],
)
def test_a_damaged_record_behind_a_right_checksum_is_found_and_named(data: bytes, message: str) -> None:
    batch = one(data)
    with pytest.raises(CorruptRecordError, match="the record batch at offset 50 .*" + message):
        batch.open()
    with pytest.raises(CorruptRecordError):
        to_arrow([("t", 0, batch, 0, None)])


def test_B10_a_record_may_have_a_million_headers() -> None:
    section = zigzag(1_000_000) + b"\0\1" * 1_000_000
    batch = one(with_records(THREE, record(b"\0\0\0\1\1" + section)))
    (found,) = batch.records("t", 0)
    assert found.headers == [("", None)] * 1_000_000


def test_B10_a_small_record_of_30_million_headers_is_refused_in_the_memory_of_its_decompression() -> None:
    body = b"\0\0\0\1\1" + zigzag(30_000_000) + bytes(60_000_000)
    batch = one(with_records(changed(THREE, {"attributes": Compression.ZSTD}), bytes(compress(Compression.ZSTD, record(body)))))
    with pytest.raises(CorruptRecordError, match="offset 50 .*more than 1,000,000 headers"):
        batch.open()


def test_numbers_written_longer_than_needed_are_read_as_other_clients_write_them() -> None:
    body = b"\0" + b"\x80\x80\x00" + b"\x80\x00" + b"\x81\x80\x80\x80\x00" + b"\x82\x00x" + b"\x80\x80\x80\x80\x00"
    (read,) = one(with_records(THREE, b"\xa6\x80\x80\x00" + body)).records("t", 0)
    assert (read.timestamp, read.offset, read.key, read.value, read.headers) == (1000, 50, None, b"x", [])


# --- headers' names --------------------------------------------------------------------------------------------------


def named(*names: bytes) -> RecordBatch:
    """A batch of a record without headers, and one with headers of these names."""
    headers = b"".join(zigzag(len(name)) + name + zigzag(-1) for name in names)
    return one(with_records(THREE, record(b"\0\0\0\1\1\0"), record(b"\0\2\2\2k\2v" + zigzag(len(names)) + headers)))


def shown(batch: RecordBatch) -> list[tuple[str, bytes | None]]:
    """The headers of the second record; the columns must have the same."""
    table = to_arrow([("t", 0, batch, 0, None)])
    table.validate(full=True)
    first, second = batch.records("t", 0)
    headers: list[Any] = table.column("headers").to_pylist()
    assert first.headers == headers[0] == []
    assert (second.timestamp, second.key, second.value, second.offset) == (1001, b"k", b"v", 51)
    assert table.column("value").to_pylist() == [None, b"v"]
    assert [(pair["key"], pair["value"]) for pair in headers[1]] == second.headers
    return second.headers


@given(names=st.lists(st.binary(max_size=6) | st.text(max_size=3).map(lambda text: text.encode(errors="surrogatepass"))))
def test_names_of_headers_that_are_not_utf8_are_shown_as_an_independent_reader_shows_them(names: list[bytes]) -> None:
    assert shown(named(*names)) == [(reference_codec.as_java_shows(name), None) for name in names]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"\xff", "\ufffd"), (b"a\xffb", "a\ufffdb"), (b"\xc3", "\ufffd"), (b"\xc0\x80", "\ufffd\ufffd"), (b"\xe4\xb8", "\ufffd"),
        (b"\xf0\x9f\x9a", "\ufffd"), (b"\xf5\x80", "\ufffd\ufffd"), (b"\xed\xa0\x80", "\ufffd"), (b"\xed\xa0", "\ufffd"),
        (b"\xed\xbf\x0a", "\ufffd\n"), (b"gr\xfc\xdfe", "gr\ufffd\ufffde"),
    ],
)
def test_java_shows_the_same_for_a_name_that_is_not_utf8(name: bytes, text: str) -> None:
    assert shown(named(name, b"good")) == [(text, None), ("good", None)]


def test_a_compressed_batch_with_such_a_name_is_read_too() -> None:
    plain = named(b"\xff" * 1000)
    body = bytes(with_records(THREE, record(b"\0\0\0\1\1\2" + zigzag(1000) + b"\xff" * 1000 + b"\1")))[61:]
    packed = healed(changed(THREE[:61], {"count": 1, "attributes": 4}, heal=False) + bytes(compress(Compression.ZSTD, body)))
    assert one(packed).records("t", 0)[0].headers == [("\ufffd" * 1000, None)]
    assert shown(plain) == [("\ufffd" * 1000, None)]


def test_M12_names_that_are_not_utf8_take_at_most_four_times_the_batch() -> None:
    data = with_records(THREE, record(b"\0\0\0\1\1\2" + zigzag(MIB) + b"\xff" * MIB + b"\1"))
    batch = one(data)
    tracemalloc.start()
    try:
        batch.open()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(data) + MIB


def test_every_two_bytes_of_a_header_name_are_shown_as_an_independent_reader_shows_them() -> None:
    for lead in range(256):
        names = [bytes([lead, second, *more]) for second in range(256) for more in (b"", b"\x80", b"\x80\xbf")]
        assert shown(named(*names)) == [(reference_codec.as_java_shows(name), None) for name in names]


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"\0" * 7, GOOD], ids=["empty batches", "batches of one empty record"])
def test_M12_reading_takes_at_most_four_times_the_response_and_a_mebibyte(data: bytes) -> None:
    response = encode_batch([]) * 40_000 if data[0] == 0 else with_records(THREE, data) * 40_000
    tracemalloc.start()
    try:
        batches = read_batches(response)
        for batch in batches:
            batch.open()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(batches) == 40_000
    assert peak <= 4 * len(response) + MIB


def test_opening_a_batch_of_the_smallest_records_takes_less_than_the_batch() -> None:
    body = b"".join(record(b"\0\0" + zigzag(delta) + b"\1\1\0") for delta in range(100_000))
    header = changed(THREE[:61], {"count": 100_000, "last_offset_delta": 99_999}, heal=False)
    data = healed(header + body)
    batch = one(data)
    tracemalloc.start()
    try:
        batch.open()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data)


def test_records_and_batches_are_freed() -> None:
    data = encode_batch([(1, b"k", b"v", [("h", b"x"), ("i", None)])] * 100, compression="lz4")

    def work() -> None:
        batch = one(data)
        batch.records("t", 0)
        list(batch.iter_records("t", 0))
        to_arrow([("t", 0, batch, 0, None)])
        with pytest.raises(CorruptRecordError):
            one(with_records(THREE, GOOD, GOOD)).open()

    for _ in range(20):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000  # a leak of one object per round would be more


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "error", "message"),
    [
        ([("a", b""), "b"], TypeError, "header 1 is 'b'; a header is a pair"),
        ([("a", b"", 1)], TypeError, "header 0 is"),
        ([("a", b""), (b"b", b"")], TypeError, "the name of header 1 is bytes b'b', not str"),
        ([("a", "text")], TypeError, r"the value of header 0 \('a'\) is str, not bytes or None"),
        ({"a": b""}, TypeError, r"list\(headers.items\(\)\)"),
        ("text", TypeError, "headers are a str"),
        (7, TypeError, "int"),
        ([("a", b""), ("\ud800", b"")], ValueError, "the name of header 1, .* cannot be written as UTF-8"),
    ],
)
def test_headers_that_are_no_pairs_of_text_and_bytes_are_refused_by_index(
    headers: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        encode_headers(headers)


@pytest.mark.parametrize("headers", [None, [], ()])
def test_no_headers_are_a_count_of_zero(headers: Any) -> None:
    assert encode_headers(headers) == b"\0"


@given(headers=st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), CONTENT)))
def test_headers_may_come_from_any_iterable_of_pairs(headers: list[Any]) -> None:
    assert encode_headers(iter([list(pair) for pair in headers])) == encode_headers(headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), [("text", b""), (b"", "text"), (1, None), (bytearray(), None)])
def test_a_key_or_value_that_is_not_bytes_is_refused_by_index(key: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="record 1 has a"):
        encode_batch([(0, b"", b"", []), (0, key, value, [])])
    if not isinstance(value, bytes | None):
        with pytest.raises(TypeError, match="value 1 is a"):
            encode_values([b"", value])


@pytest.mark.parametrize(
    "field", ["records_crc", "records_size", "count", "attributes", "producer_epoch", "base_sequence", "leader_epoch"]
)
def test_a_header_field_that_does_not_fit_its_place_is_refused_by_name(field: str) -> None:
    fields = {"records_crc": 0, "records_size": 0, "count": 0, "base_timestamp": 0, "max_timestamp": 0}
    for value in (-(2**40), 2**40):
        with pytest.raises(ValueError, match=f"{field} is {value}; a record batch holds"):
            batch_header(**(fields | {field: value}))


@given(compression=CODECS)
def test_a_batch_without_records_is_read_as_one(compression: str) -> None:
    batch = one(encode_batch([], compression=compression, base_offset=4))
    assert (batch.count, batch.next_offset, batch.records("t", 0)) == (0, 5, [])


# --- columns ---------------------------------------------------------------------------------------------------------


def test_no_records_make_an_empty_table_of_the_same_schema() -> None:
    for headers in (True, False):
        for parts in ([], [("t", 0, one(THREE), 1, 1)]):
            table = to_arrow(parts, headers=headers)
            assert (table.num_rows, table.schema) == (0, schema(headers=headers))
    assert "headers" not in schema(headers=False).names


def test_only_key_value_and_a_headers_value_are_nullable() -> None:
    assert {field.name for field in schema() if field.nullable} == {"key", "value"}
    pair = schema().field("headers").type.value_type
    assert (pair.field("key").nullable, pair.field("value").nullable) == (False, True)


def test_a_table_outlives_batches_and_response() -> None:
    data = bytearray(THREE)
    table = to_arrow([("t", 0, one(data), 0, None)])
    data.append(0)  # no export is left
    data[:] = bytes(len(data))
    assert table.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("chunk_bytes", [0, -1, 2**31])
def test_a_chunk_size_that_arrow_cannot_count_is_refused(chunk_bytes: int) -> None:
    with pytest.raises(ValueError, match="chunk_bytes is .*count 1 to 2147483647 bytes"):
        to_arrow([], chunk_bytes=chunk_bytes)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pyclient-kafka\[arrow\]'"):
        to_arrow([])
