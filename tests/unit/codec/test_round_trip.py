"""What is written is read back: by our reader, and by an independent one that shares no code with it."""
from __future__ import annotations

from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.batches import read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.compression import Compression
from pyclient.codec.crc import combine, crc32c
from pyclient.codec.encode import HEADER_SIZE, batch_header, encode_batch, encode_headers, encode_values
from pyclient.records import TimestampType
from tests import reference_codec
from tests.unit.codec.strategies import CODECS, HEADERS, INT16, INT32, INT64, RECORDS, RecordFields

OFFSETS = st.integers(0, 2**63 - 100)
PRODUCER = st.fixed_dictionaries({"producer_id": INT64, "producer_epoch": INT16, "base_sequence": INT32, "leader_epoch": INT32})


@given(records=RECORDS, base_offset=OFFSETS, compression=CODECS, base=st.none() | INT64)
def test_every_record_survives_the_round_trip(
    records: list[RecordFields], base_offset: int, compression: str, base: int | None
) -> None:
    data = encode_batch(records, base_offset=base_offset, compression=compression, base_timestamp=base)
    (batch,) = read_batches(data)
    read = [(r.timestamp, r.key, r.value, r.headers) for r in batch.records("t", 3)]
    assert read == records
    assert [r.offset for r in batch.iter_records("t", 3)] == list(range(base_offset, base_offset + len(records)))


@given(records=RECORDS, base_offset=OFFSETS, compression=CODECS, producer=PRODUCER, flags=st.tuples(*[st.booleans()] * 3))
def test_an_independent_reader_reads_the_same_fields_and_records(
    records: list[RecordFields], base_offset: int, compression: str, producer: dict[str, int], flags: tuple[bool, ...]
) -> None:
    transactional, control, appended = flags
    kind = TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME
    data = encode_batch(
        records, base_offset=base_offset, compression=compression, timestamp_type=kind, transactional=transactional,
        control=control, **producer,
    )
    reference = reference_codec.decode_batch(data)
    (batch,) = read_batches(data)
    for name, value in producer.items():
        assert getattr(batch, name) == value == getattr(reference, name)
    assert (batch.is_transactional, batch.is_control, batch.timestamp_type) == (transactional, control, kind)
    assert (batch.base_offset, batch.attributes, batch.base_timestamp, batch.max_timestamp) == (
        reference.base_offset, reference.attributes, reference.base_timestamp, reference.max_timestamp,
    )
    assert batch.last_offset == base_offset + reference.last_offset_delta
    read = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch.records("t", 0)]
    assert read == [tuple(record) for record in reference.records]


@given(records=RECORDS)
def test_log_append_time_is_the_same_for_every_record_and_is_the_batchs_largest(records: list[RecordFields]) -> None:
    (batch,) = read_batches(encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME))
    for record in batch.records("t", 0):
        assert (record.timestamp, record.timestamp_type) == (batch.max_timestamp, TimestampType.LOG_APPEND_TIME)


@given(records=RECORDS.filter(bool), base=INT64)
def test_the_largest_timestamp_is_that_of_the_records_for_any_base_timestamp(
    records: list[RecordFields], base: int
) -> None:
    (batch,) = read_batches(encode_batch(records, base_timestamp=base))
    assert batch.max_timestamp == max(timestamp for timestamp, *_ in records)


@given(records=RECORDS, compression=CODECS, cut=st.data())
def test_a_batch_cut_off_at_the_end_is_left_out(records: list[RecordFields], compression: str, cut: st.DataObject) -> None:
    whole = encode_batch(records, compression=compression)
    part = cut.draw(st.integers(0, len(whole) - 1))
    assert read_batches(whole[:part]) == []
    (kept,) = read_batches(whole + whole[:part])
    assert kept.count == len(records)


@given(values=st.lists(st.none() | st.binary(max_size=200)), compression=CODECS)
def test_values_alone_survive_the_round_trip(values: list[bytes | None], compression: str) -> None:
    (batch,) = read_batches(encode_values(values, timestamp=7, base_offset=9, compression=compression))
    assert [r.value for r in batch.records("t", 0)] == values
    assert all(r.timestamp == 7 and r.key is None and r.headers == [] for r in batch.records("t", 0))


@given(first=st.binary(), second=st.binary())
def test_combined_checksums_equal_that_of_the_joined_bytes(first: bytes, second: bytes) -> None:
    assert combine(crc32c(first), crc32c(second), len(second)) == reference_codec.crc32c(first + second)


@pytest.mark.parametrize("length", [0, 1, 2**20 - 1, 2**20, 3 * 2**20 + 17])
def test_checksums_of_long_parts_combine(length: int) -> None:
    head, tail = b"header", bytes(range(256)) * (length // 256) + bytes(length % 256)
    assert combine(crc32c(head), crc32c(tail), len(tail)) == crc32c(head + tail)


@given(records=RECORDS, first=INT32, second=INT32)
def test_a_new_header_with_another_sequence_fits_the_same_records(
    records: list[RecordFields], first: int, second: int
) -> None:
    data = encode_batch(records, base_sequence=first)
    (before,) = read_batches(data)
    body = data[HEADER_SIZE:]
    header = batch_header(
        records_crc=crc32c(body), records_size=len(body), count=len(records), base_timestamp=before.base_timestamp,
        max_timestamp=before.max_timestamp, base_sequence=second, producer_id=8, producer_epoch=1,
    )
    (after,) = read_batches(header + body)
    assert (after.base_sequence, after.producer_id) == (second, 8)
    assert after.records("t", 0) == before.records("t", 0)


@given(headers=HEADERS)
def test_a_header_section_is_the_number_of_headers_then_each(headers: list[tuple[str, bytes | None]]) -> None:
    reader = reference_codec.Reader(encode_headers(headers))
    read = []
    for _ in range(reader.varint(32)):
        name = reader.nullable()
        assert name is not None
        read.append((name.decode(), reader.nullable()))
    assert (read, reader.left) == (headers, 0)


@given(records=RECORDS, where=st.data(), chunk_bytes=st.integers(1, 400) | st.just(2**31 - 1))
def test_arrow_columns_hold_what_the_records_hold_in_chunks_of_any_size(
    records: list[RecordFields], where: st.DataObject, chunk_bytes: int
) -> None:
    (batch,) = read_batches(encode_batch(records, base_offset=5, compression="lz4"))
    start = where.draw(st.integers(0, len(records)))
    stop = where.draw(st.integers(start, len(records)))
    parts = [("töpic", 1, batch, 0, None), ("b", 2, batch, start, stop)]
    table = to_arrow(parts, chunk_bytes=chunk_bytes)
    table.validate(full=True)
    expected = batch.records("töpic", 1) + batch.records("b", 2, start, stop)
    columns: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in table.column_names if name != "timestamp"}
    for name in ("topic", "partition", "offset", "timestamp_type", "key", "value"):
        assert columns[name] == [getattr(record, name) for record in expected], name
    assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [record.timestamp for record in expected]
    assert [[(pair["key"], pair["value"]) for pair in pairs] for pairs in columns["headers"]] == [r.headers for r in expected]
    for chunk in table.column("value").chunks:
        assert len(chunk) == 1 or sum(len(value or b"") for value in chunk.to_pylist()) <= chunk_bytes


@given(records=RECORDS.filter(bool), compression=st.sampled_from(Compression))
def test_a_batch_says_how_it_is_compressed(records: list[RecordFields], compression: Compression) -> None:
    data = encode_batch(records, compression=compression)
    (batch,) = read_batches(data)
    assert (batch.compression, batch.size, len(batch)) == (compression, len(data), len(records))
