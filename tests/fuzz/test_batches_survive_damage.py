"""Damaged and hostile batches raise one error, never crash, and take bounded memory."""
from __future__ import annotations

import itertools
import struct
import tracemalloc
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.batches import read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.compression import Compression
from pyclient.codec.encode import encode_batch
from pyclient.errors import CorruptRecordError
from tests import reference_codec
from tests.fuzz import mutate
from tests.fuzz.mutate import LIMIT, read_all
from tests.unit.codec.damage import changed, healed, zigzag
from tests.unit.codec.old_messages import CODECS as OLD
from tests.unit.codec.old_messages import LOG_APPEND_TIME, Fields, wrapped, written
from tests.unit.codec.strategies import CODECS, RECORDS, RecordFields

MIB: Final = 2**20

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 2**31), st.integers(0, 7)),
        st.tuples(st.just("set"), st.integers(0, 2**31), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
        st.tuples(st.just("cut"), st.integers(0, 2**31), st.integers(0, 40)),
        st.tuples(st.just("insert"), st.integers(0, 2**31), st.binary(max_size=12)),
        st.tuples(st.just("number"), st.integers(0, 2**31), st.sampled_from([-1, 0, 2**16, 2**31 - 1, -(2**31)])),
    ),
    min_size=1, max_size=4,
)


def apply(data: bytes, changes: list[tuple[str, int, int | bytes]]) -> bytes:
    """The changes, one after the other, at places taken modulo the length."""
    out = bytearray(data)
    for kind, place, extra in changes:
        at = place % len(out) if out else 0
        if isinstance(extra, bytes):
            out[at:at] = extra
        elif kind == "cut":
            del out[at : at + extra]
        elif kind == "number" and at + 4 <= len(out):
            struct.pack_into(">i", out, at, extra)
        elif kind == "flip" and out:
            out[at] ^= 1 << extra
        elif kind == "set" and out:
            out[at] = extra
    return bytes(out)


def outcome(data: bytes) -> str:
    """Read every way; "read" or "refused"."""
    try:
        read_all(data)
    except CorruptRecordError:
        return "refused"
    return "read"


@given(records=RECORDS, compression=CODECS, changes=CHANGES, heal=st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_damaged_batch_is_read_or_refused_and_nothing_else(
    records: list[RecordFields], compression: str, changes: list[tuple[str, int, int | bytes]], heal: bool
) -> None:
    data = apply(encode_batch(records, compression=compression), changes)
    outcome(healed(data) if heal and len(data) >= 61 else data)


@given(records=RECORDS, changes=CHANGES)
@settings(max_examples=400, deadline=None)
def test_with_a_correct_checksum_we_accept_exactly_what_an_independent_reader_accepts(
    records: list[RecordFields], changes: list[tuple[str, int, int | bytes]]
) -> None:
    whole = encode_batch(records)
    data = healed(whole[:61] + apply(whole[61:], changes))
    try:
        reference = reference_codec.decode_batch(data)
    except reference_codec.DamagedError:
        assert outcome(data) == "refused"
    else:
        (batch,) = read_batches(data)
        read = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch.records("t", 0)]
        assert read == [tuple(record) for record in reference.records]


OLD_ROWS = st.lists(st.tuples(st.integers(0, 2**40), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40)), min_size=1, max_size=4)
OLD_CODECS = st.sampled_from((Compression.NONE, *OLD))


@given(magic=st.integers(0, 1), codec=OLD_CODECS, rows=OLD_ROWS, attributes=st.sampled_from((0, LOG_APPEND_TIME)), changes=CHANGES,
       heals=st.booleans())
@settings(max_examples=400, deadline=None)
def test_damaged_messages_of_old_formats_are_read_or_refused_and_nothing_else(
    magic: int, codec: Compression, rows: list[Fields], attributes: int, changes: list[tuple[str, int, int | bytes]], heals: bool
) -> None:
    data = apply(written(codec, magic, 7, rows, attributes=attributes * magic), changes)
    outcome(mutate.healed(data) if heals else data)


@given(magic=st.integers(0, 1), codec=st.sampled_from(OLD), rows=OLD_ROWS, changes=CHANGES)
@settings(max_examples=400, deadline=None)
def test_damage_inside_a_sound_compressed_message_of_an_old_format_is_read_or_refused(
    magic: int, codec: Compression, rows: list[Fields], changes: list[tuple[str, int, int | bytes]]
) -> None:
    outcome(wrapped(codec, magic, 7 + len(rows), apply(written(Compression.NONE, magic, 0, rows), changes)))


@given(magic=st.integers(0, 1), codec=OLD_CODECS, rows=OLD_ROWS)
def test_messages_of_old_formats_that_are_whole_are_read(magic: int, codec: Compression, rows: list[Fields]) -> None:
    """Otherwise the tests above could reject everything."""
    assert outcome(written(codec, magic, 7, rows)) == "read"


@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_rejected_or_empty(data: bytes) -> None:
    outcome(data)


@given(records=RECORDS, compression=CODECS, changes=CHANGES)
@settings(max_examples=200, deadline=None)
def test_reading_damage_takes_no_more_memory_than_four_times_the_input_or_the_limit(
    records: list[RecordFields], compression: str, changes: list[tuple[str, int, int | bytes]]
) -> None:
    data = apply(encode_batch(records, compression=compression), changes)
    data = healed(data) if len(data) >= 61 else data
    tracemalloc.start()
    try:
        for batch in read_batches(data, decompression_limit=LIMIT):
            batch.open()
    except CorruptRecordError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= max(4 * len(data) + MIB, LIMIT + MIB)


# --- the fast path of short records ---

EDGES: Final = st.sampled_from((0, 1, 2, 63, 64, 127, 128, 8191, 8192, 2**20 - 1, 2**20))
SIZES: Final = st.sampled_from((-1, 0, 1, 2, 3, 57, 58, 59, 63, 64) * 8 + (8182, 8183, 8191, 8192))
FAULTS: Final = ("none",) * 4 + ("length", "timestamp", "delta", "key", "value", "headers")


def varint(number: int, *, longer: int = 0) -> bytes:
    """A varint, *longer* bytes longer than needed."""
    out = zigzag(number)
    for _ in range(longer):
        out = bytes([*out[:-1], out[-1] | 0x80, 0])
    return out


def one_wrong(key: int, value: int, fault: str, off: int, longer: int) -> bytes:
    """A usual record with one number that is *off*, and *longer* than needed."""
    fields = {"timestamp": 5, "delta": 1, "key": key, "value": value, "headers": 0}
    written = {name: varint(right + off * (name == fault), longer=longer * (name == fault)) for name, right in fields.items()}
    body = b"\xff" + written["timestamp"] + written["delta"] + written["key"] + bytes(max(0, key))
    body += written["value"] + bytes(max(0, value)) + written["headers"]
    return varint(len(body) + off * (fault == "length"), longer=longer * (fault == "length")) + body


def test_one_wrong_number_in_a_short_record_is_found_or_harmless_as_for_a_plain_reader() -> None:
    head = changed(encode_batch([(0, None, b"", ())]), {"count": 1, "last_offset_delta": 1}, heal=False)[:61]
    for key, value, fault, off, longer in itertools.product((-1, 0, 1, 63), (-1, 0, 1, 63), sorted(set(FAULTS)), range(-3, 4), (0, 1, 2, 4)):
        made = healed(head + one_wrong(key, value, fault, off, longer))
        try:
            reference_codec.decode_batch(made)
        except reference_codec.DamagedError:
            assert outcome(made) == "refused", (key, value, fault, off, longer)
        else:
            assert outcome(made) == "read", (key, value, fault, off, longer)


@st.composite
def nearly_usual(draw: st.DrawFn) -> bytes:
    """A record without headers, near the longest short form; one of its numbers may be wrong or too long."""
    fault, off, longer = draw(st.sampled_from(FAULTS)), draw(st.sampled_from((-1, 0, 1))), draw(st.sampled_from((0, 0, 1, 2, 4)))

    def number(name: str, right: int) -> bytes:
        return varint(right + off, longer=longer) if name == fault else varint(right)

    body = b"\xff" + number("timestamp", draw(EDGES)) + number("delta", draw(EDGES))
    for name in ("key", "value"):
        size = draw(SIZES)
        body += number(name, size) + bytes(max(0, size))
    body += number("headers", 0)
    return number("length", len(body)) + body


@settings(max_examples=1000, deadline=None)
@given(records=st.lists(nearly_usual(), min_size=1, max_size=2), last=EDGES, cut=st.sampled_from((0, 0, 0, 1, 2, 3, 6)),
       behind=st.sampled_from((b"", b"\x00" * 16, b"\x80" * 16, b"\x01" * 16)))
def test_short_records_are_accepted_or_rejected_as_by_a_plain_reader(
    records: list[bytes], last: int, cut: int, behind: bytes
) -> None:
    head = changed(encode_batch([(0, None, b"", ())]), {"count": len(records), "last_offset_delta": last}, heal=False)[:61]
    made = healed(head + b"".join(records)[: -cut or None])
    (batch,) = read_batches(memoryview(made + behind)[: len(made)])
    try:
        expected = reference_codec.decode_batch(made).records
    except reference_codec.DamagedError:
        with pytest.raises(CorruptRecordError):
            batch.open()
        return
    found = [reference_codec.ReferenceRecord(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch.records("t", 0)]
    assert found == expected
    table = to_arrow([("t", 0, batch, 0, None)])
    table.validate(full=True)
    assert table.column("value").to_pylist() == [each.value for each in expected]
