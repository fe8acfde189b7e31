"""Fetched data between loop and user: nothing old, nothing lost, nothing twice, and errors in their place."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.fetch_buffer import Chunk, Failure, FetchBuffer
from pyclient.buffers.collect import Taking, collect
from pyclient.buffers.records_view import (
    Records, join, narrow, only, positions_after, positions_before, records_after, split_at, without)
from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.encode import encode_batch
from pyclient.errors import CorruptRecordError, KafkaError
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record, decoded
from tests.twins import needs_twins
from tests.unit.codec.old_messages import message

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = (A, B, C)


def batches(base: int, counts: Sequence[int]) -> list[RecordBatch]:
    """Consecutive batches; each value is its own offset."""
    made = []
    for count in counts:
        records = [(0, None, str(base + number).encode(), ()) for number in range(count)]
        made += read_batches(encode_batch(records, base_offset=base))
        base += span([count])
    return made


def span(counts: Sequence[int]) -> int:
    """Offsets these batches take: one without records, as compaction leaves it, still has one."""
    return sum(max(count, 1) for count in counts)


def within(base: int, counts: Sequence[int]) -> list[int]:
    """The offsets of the records of these batches."""
    found: list[int] = []
    for count in counts:
        found += range(base, base + count)
        base += span([count])
    return found


def chunk(tp: TopicPartition, generation: int, base: int, counts: Sequence[int], *, behind: int = 0, position: int | None = None) -> Chunk:
    """What one answer held; *behind* offsets after the last record hold only control records."""
    end = base + span(counts) + behind
    return Chunk(tp, generation, base if position is None else position, batches(base, counts), end, 100)


def damaged(base: int, count: int) -> RecordBatch:
    """A batch whose header can be read and whose records cannot be trusted."""
    data = bytearray(encode_batch([(0, None, b"value", ())] * count, base_offset=base))
    data[-1] ^= 1
    (batch,) = read_batches(data)
    return batch


def buffer_of(*entries: Chunk | Failure) -> FetchBuffer:
    """A buffer that holds these; generation 1 of every partition."""
    buffer = FetchBuffer()
    for tp in PARTITIONS:
        buffer.renew(tp, 1)
    for entry in entries:
        buffer.put(entry)
    return buffer


def offsets(records: Sequence[Record]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


def at(tp: TopicPartition, *numbers: int) -> list[tuple[str, int, int]]:
    return [(*tp, number) for number in numbers]


# --- the buffer ------------------------------------------------------------------------------------------------------


class BufferRules(RuleBasedStateMachine):
    """The loop puts, seeks and pauses; the user takes and gives back; the model is a list of entries."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = FetchBuffer()
        self.generations: dict[TopicPartition, int] = {}
        self.model: list[Chunk] = []
        self.paused: set[TopicPartition] = set()
        self.out: Chunk | None = None
        self.drained: set[TopicPartition] = set()
        self.awaited: set[TopicPartition] = set()
        self.bytes_awaited = False
        self.number = 0
        self.calls: list[str] = []
        self.buffer.on_room = lambda: self.calls.append("room")
        self.buffer.on_data = lambda: self.calls.append("data")

    @rule(tp=st.sampled_from(PARTITIONS), stale=st.booleans(), size=st.integers(0, 100))
    def put(self, tp: TopicPartition, stale: bool, size: int) -> None:
        current = self.generations.get(tp)
        entry = Chunk(tp, (current or 0) - 1 if stale else current or 0, 0, (), 1, size)
        self.buffer.put(entry)
        if current is not None and not stale:
            self.model.append(entry)
            assert self.calls[-1] == "data"

    @rule(tp=st.sampled_from(PARTITIONS), gone=st.booleans())
    def renew(self, tp: TopicPartition, gone: bool) -> None:
        self.number += 1
        self.buffer.renew(tp, None if gone else self.number)
        self.generations.pop(tp, None)
        if not gone:
            self.generations[tp] = self.number
        self.model = [entry for entry in self.model if entry.tp != tp]
        self.drained.discard(tp)

    @rule(paused=st.sets(st.sampled_from(PARTITIONS)))
    def pause(self, paused: set[TopicPartition]) -> None:
        self.buffer.pause(paused)
        self.paused = paused

    @precondition(lambda self: self.out is None)
    @rule()
    def take(self) -> None:
        expected = next((entry for entry in self.model if entry.tp not in self.paused), None)
        assert self.buffer.ready() == (expected is not None)
        taken = self.buffer.take()
        assert taken is expected
        if expected is not None:
            self.model.remove(expected)
            self.out = expected

    @precondition(lambda self: self.out is not None)
    @rule(last=st.booleans())
    def give_back(self, last: bool) -> None:
        entry, self.out = self.out, None
        assert entry is not None
        calls = list(self.calls)
        self.buffer.give_back(entry, last=last)
        if self.generations.get(entry.tp) != entry.generation:
            self.made_room(entry, calls)
            return
        assert self.calls == calls  # a partly taken entry makes no room, so no callback runs
        behind = [each for each in self.model if each.tp == entry.tp] if last else []
        others = [each for each in self.model if each not in behind]
        self.model = [*others, entry, *behind] if last else [entry, *self.model]

    @precondition(lambda self: self.out is not None)
    @rule()
    def use_up(self) -> None:
        entry, self.out = self.out, None
        assert entry is not None
        calls = list(self.calls)
        self.buffer.use_up(entry)
        self.made_room(entry, calls)

    def made_room(self, entry: Chunk, calls: list[str]) -> None:
        """The callback for room runs once."""
        self.drained.add(entry.tp)
        reported = ["room"] if self.bytes_awaited or entry.tp in self.awaited else []
        assert self.calls == calls + reported
        self.awaited.discard(entry.tp)
        self.bytes_awaited = False

    @rule(tp=st.sampled_from(PARTITIONS), most=st.integers(1, 3))
    def wait_for_a_partition(self, tp: TopicPartition, most: int) -> None:
        full = self.buffer.count(tp) >= most
        assert self.buffer.is_full(tp, most) == full
        if full:
            self.awaited.add(tp)

    @rule()
    def wait_for_bytes(self) -> None:
        self.buffer.await_room()
        self.bytes_awaited = True

    @rule()
    def look_for_drained(self) -> None:
        assert sorted(self.buffer.take_drained()) == sorted(self.drained)
        self.drained.clear()

    @invariant()
    def counts_are_exact(self) -> None:
        """What is being returned is still held."""
        held = [*self.model, *([self.out] if self.out is not None else [])]
        assert len(self.buffer) == len(self.model)
        assert self.buffer.bytes == sum(entry.size for entry in held)
        for tp in PARTITIONS:
            assert self.buffer.count(tp) == sum(entry.tp == tp for entry in held)


TestFetchBuffer = BufferRules.TestCase
TestFetchBuffer.settings = settings(max_examples=80, stateful_step_count=40)


def test_C03_what_was_fetched_before_a_seek_is_never_handed_out() -> None:
    buffer = buffer_of(chunk(A, 1, 0, [3]), chunk(B, 1, 0, [2]))
    buffer.renew(A, 2)
    buffer.put(chunk(A, 1, 3, [3]))
    buffer.put(chunk(A, 2, 70, [1]))
    assert offsets(collect(buffer, 100, None)) == [*at(B, 0, 1), *at(A, 70)]


def test_C03_paused_data_is_kept_and_handed_out_when_reading_goes_on() -> None:
    buffer = buffer_of(chunk(A, 1, 0, [2]), chunk(B, 1, 0, [1]))
    buffer.pause([A])
    assert offsets(collect(buffer, 100, None)) == at(B, 0)
    assert not buffer.ready()
    buffer.pause([])
    assert offsets(collect(buffer, 100, None)) == at(A, 0, 1)


def test_a_wake_is_taken_once() -> None:
    buffer = buffer_of()
    buffer.wake()
    assert buffer.take_wake()
    assert not buffer.take_wake()


# --- collecting ------------------------------------------------------------------------------------------------------


@given(chunks=st.lists(st.tuples(st.sampled_from(PARTITIONS), st.lists(st.integers(0, 5), max_size=3), st.integers(0, 2)), max_size=6),
       limits=st.lists(st.integers(1, 6), min_size=40, max_size=40))
def test_C04_every_record_is_handed_out_once_in_order_and_positions_end_behind_everything(
    chunks: list[tuple[TopicPartition, list[int], int]], limits: list[int]
) -> None:
    ends = dict.fromkeys(PARTITIONS, 0)
    expected: list[tuple[str, int, int]] = []
    buffer = buffer_of()
    for tp, counts, behind in chunks:
        buffer.put(chunk(tp, 1, ends[tp], counts, behind=behind))
        expected += at(tp, *within(ends[tp], counts))
        ends[tp] += span(counts) + behind
    got: list[tuple[str, int, int]] = []
    reached: dict[TopicPartition, int] = {}
    for limit in limits:
        records = collect(buffer, limit, None)
        assert len(records) <= limit
        got += offsets(records)
        reached.update(records.positions())
        for tp, position in records.positions().items():
            mine = [each[2] for each in got if each[:2] == tp]
            left = [each[2] for each in expected[len(got):] if each[:2] == tp]
            assert all(offset < position for offset in mine)
            assert all(offset >= position for offset in left)
    assert got == expected
    assert reached == {tp: ends[tp] for tp, _, _ in chunks}


def test_C04_records_before_the_position_are_skipped() -> None:
    records = collect(buffer_of(chunk(A, 1, 0, [3, 3], position=4)), 100, None)
    assert offsets(records) == at(A, 4, 5)


def test_C04_control_records_alone_move_the_position() -> None:
    records = collect(buffer_of(chunk(A, 1, 5, [], behind=2)), 100, None)
    assert len(records) == 0
    assert records.positions() == {A: 7}


def test_C06_an_error_in_line_is_raised_after_the_records_before_it_and_once() -> None:
    error = KafkaError("no", topic_partition=A)
    buffer = buffer_of(chunk(A, 1, 0, [2]), Failure(A, 1, error, lasting=False), chunk(A, 1, 2, [1]))
    assert offsets(collect(buffer, 100, None)) == at(A, 0, 1)
    with pytest.raises(KafkaError, match="no"):
        collect(buffer, 100, None)
    assert offsets(collect(buffer, 100, None)) == at(A, 2)


def test_C06_a_lasting_error_is_raised_until_a_seek_and_holds_up_no_other_partition() -> None:
    buffer = buffer_of(Failure(A, 1, KafkaError("no"), lasting=True))
    for number in range(3):
        buffer.put(chunk(B, 1, number, [1]))
        with pytest.raises(KafkaError, match="no"):
            collect(buffer, 100, None)
        assert offsets(collect(buffer, 100, None)) == at(B, number)
    buffer.renew(A, 2)
    assert len(collect(buffer, 100, None)) == 0


def test_C06_damaged_data_is_raised_with_its_partition_and_offset_after_the_records_before_it() -> None:
    bad = Chunk(A, 1, 0, [*batches(0, [2]), damaged(2, 3)], 5, 100)
    buffer = buffer_of(bad)
    first = collect(buffer, 100, None)
    assert offsets(first) == at(A, 0, 1)
    assert first.positions() == {A: 2}
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="a-0 from offset 2 on") as caught:
            collect(buffer, 100, None)
        assert caught.value.topic_partition == A
        assert caught.value.next_offset == 5
        assert "the next offset is 5" in str(caught.value)


@pytest.mark.parametrize(("span", "behind"), [(2**31 - 1, 2), (0, 1), (9, 2)])
def test_the_offset_to_seek_to_is_after_the_position_and_not_behind_the_next_batch(span: int, behind: int) -> None:
    """The last offset in a damaged header may be anything."""
    data = bytearray(encode_batch([(0, None, b"value", ())] * 2, base_offset=0))
    data[23:27] = span.to_bytes(4, "big")
    buffer = buffer_of(Chunk(A, 1, 0, [*read_batches(data), *batches(2, [3])], 5, 100))
    with pytest.raises(CorruptRecordError) as caught:
        collect(buffer, 100, None)
    assert caught.value.next_offset == behind


def test_C06_nothing_behind_damaged_data_is_handed_out_before_a_seek() -> None:
    bad = Chunk(A, 1, 0, [damaged(0, 3)], 3, 100)
    buffer = buffer_of(bad, chunk(A, 1, 3, [2]), chunk(B, 1, 0, [1]))
    with pytest.raises(CorruptRecordError):
        collect(buffer, 100, None)
    assert offsets(collect(buffer, 100, None)) == at(B, 0)
    with pytest.raises(CorruptRecordError):
        collect(buffer, 100, None)


def test_messages_before_a_damaged_old_one_are_returned_first() -> None:
    data = bytearray(b"".join(message(1, at) for at in range(5)))
    data[2 * len(data) // 5 + 12] ^= 1
    buffer = buffer_of(Chunk(A, 1, 0, read_batches(bytes(data)), 5, len(data)))
    first = collect(buffer, 100, None)
    assert offsets(first) == at(A, 0, 1)
    assert first.positions() == {A: 2}
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="a-0 from offset 2 on"):
            collect(buffer, 100, None)


def test_an_error_is_raised_as_a_copy_so_that_tracebacks_do_not_pile_up() -> None:
    error = KafkaError("no")
    buffer = buffer_of(Failure(A, 1, error, lasting=True))
    raised = []
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            collect(buffer, 1, None)
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert error.__traceback__ is None


# --- Records against a list ------------------------------------------------------------------------------------------


@st.composite
def results(draw: st.DrawFn) -> Records:
    """What a poll may have returned."""
    buffer = buffer_of()
    ends = dict.fromkeys(PARTITIONS, 0)
    for tp in draw(st.lists(st.sampled_from(PARTITIONS), max_size=6)):
        counts, behind = draw(st.lists(st.integers(0, 4), max_size=3)), draw(st.integers(0, 1))
        buffer.put(chunk(tp, 1, ends[tp], counts, behind=behind))
        ends[tp] += span(counts) + behind
    return collect(buffer, draw(st.integers(1, 30)), None)


@given(results(), st.data())
def test_records_are_a_sequence(records: Records, data: st.DataObject) -> None:
    model = list(records)
    assert len(records) == len(model)
    assert bool(records) == bool(model)
    start, stop = data.draw(st.none() | st.integers(-40, 40)), data.draw(st.none() | st.integers(-40, 40))
    step = data.draw(st.none() | st.sampled_from([1, 2, -1, -3]))
    assert list(records[start:stop:step]) == model[start:stop:step]
    for index in (*range(-len(model), len(model)),):
        assert records[index] == model[index]
    for index in (len(model), -len(model) - 1):
        with pytest.raises(IndexError):
            records[index]


@given(results(), st.integers(0, 40))
def test_a_split_loses_nothing_and_each_half_has_its_positions(records: Records, count: int) -> None:
    head, tail = split_at(records, count)
    assert [*head, *tail] == list(records)
    assert len(head) == min(count, len(records))
    assert {**head.positions(), **tail.positions()} == records.positions()
    for tp, position in head.positions().items():
        assert all(record.offset < position for record in head if here(record) == tp)
        assert all(record.offset >= position for record in tail if here(record) == tp)
    assert {here(record) for record in head} <= set(head.positions())
    assert {here(record) for record in tail} <= set(tail.positions())
    assert list(join(head, tail)) == list(records)
    assert join(head, tail).positions() == records.positions()


def test_the_rest_of_a_split_has_its_positions_in_the_order_of_its_records() -> None:
    """Commits list partitions in this order: a simulated run must not depend on the hashes of names."""
    partitions = [TopicPartition(f"topic-{number * 7 % 20}", 0) for number in range(20)]
    buffer = FetchBuffer()
    for tp in partitions:
        buffer.renew(tp, 1)
        buffer.put(chunk(tp, 1, 0, [2]))
    _, rest = split_at(collect(buffer, 40, None), 5)
    assert list(rest.next_offsets()) == partitions[2:]


@given(results())
def test_the_parts_by_partition_are_the_whole(records: Records) -> None:
    parts = dict(records.by_partition())
    assert list(parts) == list(dict.fromkeys(here(record) for record in records)) == list(records.partitions())
    for tp, part in parts.items():
        assert list(part) == [record for record in records if here(record) == tp]
        assert part.positions() == {tp: records.positions()[tp]}


@given(results(), st.data())
def test_what_comes_after_a_record_and_the_positions_through_it(records: Records, data: st.DataObject) -> None:
    model = list(records)
    if not model:
        return
    index = data.draw(st.integers(0, len(model) - 1))
    record = model[index]
    assert list(records_after(records, record)) == model[index + 1 :]
    for inclusive in (False, True):
        positions = (positions_after if inclusive else positions_before)(records, record)
        seen = model[: index + inclusive]
        for tp, position in positions.items():
            assert all(each.offset < position.offset for each in seen if here(each) == tp)
            assert all(each.offset >= position.offset for each in model[index + inclusive :] if here(each) == tp)
        assert {here(each) for each in seen} <= set(positions)


@given(results(), st.sets(st.sampled_from(PARTITIONS)))
def test_without_and_only_part_the_records_by_partition(records: Records, chosen: set[TopicPartition]) -> None:
    assert list(without(records, chosen)) == [record for record in records if here(record) not in chosen]
    assert list(only(records, chosen)) == [record for record in records if here(record) in chosen]
    assert without(records, chosen).positions() == {w: p for w, p in records.positions().items() if w not in chosen}


# --- leaving records out ---------------------------------------------------------------------------------------------


@st.composite
def thinned(draw: st.DrawFn) -> tuple[Records, list[Record]]:
    """What an interceptor may have left of a poll, and which records that is."""
    records = draw(results())
    flags = draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    return records.select(flags), [record for record, flag in zip(records, flags, strict=True) if flag]


@given(thinned())
def test_what_is_selected_is_a_sequence_and_columns(thin: tuple[Records, list[Record]]) -> None:
    records, model = thin
    assert list(records) == model == [records[index] for index in range(len(records))]
    assert len(records) == len(model)
    assert records.to_arrow().column("value").to_pylist() == [record.value for record in model]
    assert list(records.partitions()) == list(dict.fromkeys(map(here, model)))


@given(results(), st.integers(1, 4))
def test_selecting_leaves_the_positions_as_they_are(records: Records, every: int) -> None:
    flags = [number % every == 0 for number in range(len(records))]
    assert records.select(flags).next_offsets() == records.next_offsets()
    assert records.filter(lambda record: False).next_offsets() == records.next_offsets()
    assert not records.filter(lambda record: False)


@given(results(), st.data())
def test_a_mask_may_be_a_list_an_array_or_what_arrow_computes(records: Records, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    expected = list(records.select(flags))
    assert list(records.select(numpy.array(flags, dtype=bool))) == expected
    assert list(records.select(iter(flags))) == expected
    assert list(records.select(pyarrow.array([flag or None for flag in flags], pyarrow.bool_()))) == expected
    odd = pc.equal(pc.bit_wise_and(records.to_arrow()["offset"], 1), pyarrow.scalar(1, pyarrow.int64()))
    assert list(records.select(odd)) == [record for record in records if record.offset % 2]
    assert list(records.filter(lambda record: record.offset % 2)) == list(records.select(odd))


def test_a_mask_that_fits_not_is_refused() -> None:
    records = collect(buffer_of(chunk(A, 1, 0, [3])), 10, None)
    for wrong in ([0, 2], [1, 1, 0], numpy.array([0, 1, 2]), ["yes", "no", "no"]):
        with pytest.raises(TypeError, match="boolean for each record, and this one has (int|str)"):
            records.select(wrong)
    for mask in ([True, False], [True] * 4):
        with pytest.raises(ValueError, match=f"has {len(mask)} values, and there are 3 records"):
            records.select(mask)


@given(thinned(), st.integers(0, 40))
def test_what_was_selected_splits_without_losing_positions(thin: tuple[Records, list[Record]], count: int) -> None:
    records, model = thin
    head, tail = split_at(records, count)
    assert [*head, *tail] == model
    assert {**head.positions(), **tail.positions()} == records.positions()
    for tp, position in head.positions().items():
        assert all(record.offset >= position for record in tail if here(record) == tp)


@given(thinned(), st.data())
def test_positions_through_a_selected_record_move_over_what_lies_between(thin: tuple[Records, list[Record]], data: st.DataObject) -> None:
    records, model = thin
    if not model:
        return
    index = data.draw(st.integers(0, len(model) - 1))
    record = model[index]
    assert list(records_after(records, record)) == model[index + 1 :]
    before, behind = positions_before(records, record), positions_after(records, record)
    assert before[here(record)].offset == record.offset
    done = set(records.positions()) - {here(each) for each in model[index + 1 :]}
    assert {tp: behind[tp].offset for tp in done} == {tp: records.positions()[tp] for tp in done}
    for tp, position in behind.items():
        assert all(each.offset >= position.offset for each in model[index + 1 :] if here(each) == tp)


@given(results(), st.data())
def test_narrowing_takes_only_what_is_here_and_in_its_order(records: Records, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    start = data.draw(st.integers(0, 10))
    for some in (records.select(flags), records[start:], without(records.select(flags), [A]), join(records[:start], records[start:])):
        chosen = narrow(records, some)
        assert list(chosen) == list(some)
        assert chosen.next_offsets() == records.next_offsets()
    if len(records) > 1:
        for wrong in (join(records, records), join(records[1:], records[:1])):
            with pytest.raises(ValueError, match="or not in this order"):
                narrow(records, wrong)
        with pytest.raises(ValueError, match="has not"):
            narrow(records[1:], records)


def test_narrowing_refuses_what_another_poll_returned() -> None:
    records, others = (collect(buffer_of(chunk(A, 1, base, [3])), 10, None) for base in (0, 3))
    with pytest.raises(ValueError, match="has not"):
        narrow(records, others)
    assert not narrow(records, Records())


# --- decoding while taking -------------------------------------------------------------------------------------------


class Decoding:
    """Leaves out offsets, and fails at others until they are taken from the list."""

    def __init__(self, skipped: Iterable[int] = (), failing: Iterable[int] = (), error: BaseException | None = None) -> None:
        self.skipped = set(skipped)
        self.failing = set(failing)
        self.error = error or LookupError("cannot")
        self.inputs: list[int] = []

    def __call__(self, record: Record) -> Record | None:
        self.inputs.append(record.offset)
        if record.offset in self.failing:
            raise self.error
        return None if record.offset in self.skipped else decoded(record, None, record.offset)


@given(counts=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=4), skipped=st.sets(st.integers(0, 30)), failing=st.sets(st.integers(0, 30), max_size=4),
       limits=st.lists(st.integers(1, 6), min_size=60, max_size=60))
def test_C06_what_decodes_comes_once_and_in_order_and_what_fails_is_raised_until_it_does_not(
    counts: list[list[int]], skipped: set[int], failing: set[int], limits: list[int]
) -> None:
    buffer, end, expected = buffer_of(), 0, []
    for each in counts:
        buffer.put(chunk(A, 1, end, each, behind=1))
        expected += within(end, each)
        end += span(each) + 1
    decoding = Decoding(skipped, failing)
    got: list[int] = []
    position = 0
    for limit in limits:
        try:
            records = collect(buffer, limit, decoding)
        except LookupError:
            at_fault = min(offset for offset in decoding.failing if offset in expected)
            assert decoding.inputs[-1] == at_fault
            assert position <= at_fault
            assert got == [offset for offset in expected if offset < at_fault and offset not in skipped]
            decoding.failing.discard(at_fault)
        else:
            got += [record.value for record in records]
            position = records.positions().get(A, position)
    assert got == [offset for offset in expected if offset not in skipped]
    assert position == end


def test_C06_a_record_that_fails_holds_up_its_partition_and_no_other() -> None:
    buffer = buffer_of(chunk(A, 1, 0, [3]), chunk(A, 1, 3, [1]), chunk(B, 1, 10, [1]))
    decoding = Decoding(failing=[1])
    assert offsets(collect(buffer, 100, decoding)) == at(A, 0)
    for number in range(11, 14):
        with pytest.raises(LookupError):
            collect(buffer, 100, decoding)
        assert offsets(collect(buffer, 100, decoding)) == at(B, number - 1)
        buffer.put(chunk(B, 1, number, [1]))
    buffer.renew(A, 2)
    buffer.put(chunk(A, 2, 2, [1, 1]))
    assert offsets(collect(buffer, 100, decoding)) == [*at(B, 13), *at(A, 2, 3)]


def test_C06_what_breaks_off_in_the_middle_loses_nothing() -> None:
    buffer = buffer_of(chunk(A, 1, 0, [2]), chunk(B, 1, 0, [4]))
    decoding = Decoding(failing=[3], error=KeyboardInterrupt())
    begun: list[Taking] = []
    with pytest.raises(KeyboardInterrupt):
        collect(buffer, 100, decoding, begun.append)
    decoding.failing.clear()
    taken = begun[0].taken()
    assert offsets(taken) == [*at(A, 0, 1), *at(B, 0, 1, 2)]
    assert taken.positions() == {A: 2, B: 3}
    assert offsets(collect(buffer, 100, decoding)) == at(B, 3)


def broken_off(buffer: FetchBuffer, point: int) -> tuple[bool, Records]:
    """Run `collect` with Ctrl-C at the *point*-th call or return: whether it came, and what was returned or taken."""
    begun: list[Taking] = []
    points = itertools.count(1)

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event in {"call", "c_return"} and Path(frame.f_code.co_filename).name in {"collect.py", "record_run.py"} and next(points) == point:
            raise KeyboardInterrupt

    before = sys.getprofile()
    try:
        sys.setprofile(interrupt)
        records = collect(buffer, 5, None, begun.append)
    except KeyboardInterrupt:
        return True, begun[0].taken() if begun else Records()
    finally:
        sys.setprofile(before)
    return False, records


@needs_twins
def test_C06_ctrl_c_anywhere_loses_no_record_and_no_memory() -> None:
    """Wherever the interpreter may raise it: at the begin of a function, and behind a call."""
    came, point = True, 0
    while came:
        point += 1
        buffer = buffer_of(chunk(A, 1, 0, [2, 2]), chunk(B, 1, 0, [3]), chunk(A, 1, 4, [2]))
        came, records = broken_off(buffer, point)
        found = set(offsets(records))
        while buffer.ready() or buffer.bytes:
            more = collect(buffer, 5, None)
            assert more.next_offsets(), "held, and not in line"
            found.update(offsets(more))
        assert found == {*at(A, 0, 1, 2, 3, 4, 5), *at(B, 0, 1, 2)}, point
        assert [buffer.count(tp) for tp in (A, B)] == [0, 0]
    assert point > 20  # it was broken off often


def test_what_was_decoded_is_not_decoded_again_and_columns_show_the_bytes() -> None:
    decoding = Decoding(skipped=[2])
    records = collect(buffer_of(chunk(A, 1, 0, [6])), 5, decoding)
    expected: list[Any] = [0, 1, 3, 4]
    assert [record.value for record in records] == [record.value for record in join(split_at(records, 2)[1], records)][2:] == expected
    assert [record.value for record in (records[0], records[-1])] == expected[::3]
    assert decoding.inputs == [0, 1, 2, 3, 4]
    assert records.to_arrow()["value"].to_pylist() == [b"0", b"1", b"3", b"4"]
    assert records.positions() == {A: 5}


@given(results())
def test_positions_that_moved_over_no_records_are_joined_too(records: Records) -> None:
    elsewhere = TopicPartition("elsewhere", 0)
    moved = Records((), {elsewhere: OffsetAndMetadata(7)})
    for joined in (join(records, moved), join(moved, records)):
        assert list(joined) == list(records)
        assert joined.positions() == {**records.positions(), elsewhere: 7}


@given(results())
def test_next_offsets_is_what_a_commit_stores(records: Records) -> None:
    assert {tp: each.offset for tp, each in records.next_offsets().items()} == records.positions()


def test_nothing_comes_after_a_record_that_is_not_here() -> None:
    records = collect(buffer_of(chunk(A, 1, 0, [2])), 10, None)
    assert len(records_after(records, Record("z", 0, 0, 0))) == 0


def here(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
