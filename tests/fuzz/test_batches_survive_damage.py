"""Damaged and hostile batches raise one error, crash nothing, and take no more memory than they may."""
from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.batches import read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.encode import encode_batch
from pyclient.errors import CorruptRecordError
from tests import reference_codec
from tests.fuzz.mutate import LIMIT, read_all
from tests.unit.codec.damage import changed, healed, zigzag
from tests.unit.codec.strategies import CODECS, RECORDS, RecordFields

SECONDS: Final = float(os.environ.get("PYCLIENT_FUZZ_SECONDS", "30"))
SEED: Final = int(os.environ.get("PYCLIENT_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
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
def test_behind_a_right_checksum_we_accept_exactly_what_an_independent_reader_accepts(
    records: list[RecordFields], changes: list[tuple[str, int, int | bytes]]
) -> None:
    whole = encode_batch(records)
    data = healed(whole[:61] + apply(whole[61:], changes))
    try:
        reference = reference_codec.decode_batch(data)
    except reference_codec.Damaged:
        assert outcome(data) == "refused"
    else:
        (batch,) = read_batches(data)
        read = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch.records("t", 0)]
        assert read == [tuple(record) for record in reference.records]


@given(data=st.binary(max_size=400))
def test_bytes_that_never_were_a_batch_are_refused_or_empty(data: bytes) -> None:
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


def test_random_mutations_of_every_fixture_are_read_or_refused_within_bounded_memory() -> None:
    print(f"seed {SEED}, {SECONDS} s (PYCLIENT_FUZZ_SEED, PYCLIENT_FUZZ_SECONDS)")
    program = Path(__file__).with_name("mutate.py")
    run = subprocess.run(
        [sys.executable, str(program), str(SECONDS), str(SEED)], capture_output=True, text=True, timeout=SECONDS + 120, check=False,
    )
    assert run.returncode == 0, f"seed {SEED}\n{run.stderr}"
    report = json.loads(run.stdout)
    print(report)
    assert report["rounds"] > 100
    assert report["read"] > 0 < report["refused"]  # both paths were walked
    # A batch may decompress to 4 MiB here; records, columns and the allocator's slack come on top.
    assert report["grown_mib"] <= 64


# --- the usual record's short way ------------------------------------------------------------------------------------

EDGES: Final = st.sampled_from((-1, 0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 2**20 - 1, 2**20))
SIZES: Final = st.sampled_from((-1, 0, 1, 2, 56, 57, 58, 62, 63, 64, 65, 8180, 8183, 8184, 8191, 8192))


@st.composite
def numbers(draw: st.DrawFn, number: int) -> bytes:
    """A varint, now and then longer than needed."""
    out = zigzag(number)
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 0, 1, 2, 4)))):
        out = bytes([*out[:-1], out[-1] | 0x80, 0])
    return out


@st.composite
def nearly_usual(draw: st.DrawFn, delta: int) -> bytes:
    """A record without headers at the edges of what is short, sometimes with a length that is off by one."""
    body = bytes([draw(st.sampled_from((0, 255)))]) + draw(numbers(draw(EDGES))) + draw(numbers(delta))
    off = st.sampled_from((0,) * 12 + (-1, 1))
    for _ in range(2):
        size = draw(SIZES)
        body += draw(numbers(size + draw(off))) + bytes(max(0, size))
    body += draw(numbers(draw(st.sampled_from((0,) * 12 + (-1, 1)))))
    return draw(numbers(len(body) + draw(off))) + body


@settings(max_examples=150, deadline=None)
@given(data=st.data(), deltas=st.sets(EDGES, min_size=1, max_size=4), cut=st.integers(0, 14),
       behind=st.sampled_from((b"", b"\x00" * 16, b"\x80" * 16, b"\x01" * 16)))
def test_short_records_are_judged_as_a_plain_reader_judges_them_whatever_stands_behind(
    data: st.DataObject, deltas: set[int], cut: int, behind: bytes
) -> None:
    records = [data.draw(nearly_usual(delta)) for delta in sorted(deltas)]
    cut = cut if data.draw(st.booleans()) else 0
    whole = changed(encode_batch([(0, None, b"", ())]), {"count": len(records), "last_offset_delta": 2**20}, heal=False)[:61] + b"".join(records)
    made = healed(whole[: max(61, len(whole) - cut)])
    (batch,) = read_batches(memoryview(made + behind)[: len(made)])
    try:
        expected = reference_codec.decode_batch(made).records
    except reference_codec.Damaged:
        with pytest.raises(CorruptRecordError):
            batch.open()
        return
    found = [reference_codec.ReferenceRecord(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch.records("t", 0)]
    assert found == expected
    table = to_arrow([("t", 0, batch, 0, None)])
    table.validate(full=True)
    assert table.column("value").to_pylist() == [each.value for each in expected]
