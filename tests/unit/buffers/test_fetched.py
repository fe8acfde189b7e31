"""Fetched data between loop and user: nothing old, nothing lost, nothing twice, and errors in their place."""
from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.fetchbuffer import Chunk, Failure, FetchBuffer
from pyclient.buffers.fetched import Records, collect
from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.encode import encode_batch
from pyclient.codec.record import Record
from pyclient.errors import CorruptRecordError, KafkaError
from pyclient.records import OffsetAndMetadata, TopicPartition

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


def chunk(where: TopicPartition, generation: int, base: int, counts: Sequence[int], *, behind: int = 0, position: int | None = None) -> Chunk:
    """What one answer held; *behind* offsets after the last record hold only control records."""
    end = base + span(counts) + behind
    return Chunk(where, generation, base if position is None else position, batches(base, counts), end, 100)


def damaged(base: int, count: int) -> RecordBatch:
    """A batch whose header can be read and whose records cannot be trusted."""
    data = bytearray(encode_batch([(0, None, b"value", ())] * count, base_offset=base))
    data[-1] ^= 1
    (batch,) = read_batches(data)
    return batch


def buffer_of(*entries: Chunk | Failure) -> FetchBuffer:
    """A buffer that holds these; generation 1 of every partition."""
    buffer = FetchBuffer()
    for where in PARTITIONS:
        buffer.renew(where, 1)
    for entry in entries:
        buffer.put(entry)
    return buffer


def offsets(records: Sequence[Record]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


def at(where: TopicPartition, *numbers: int) -> list[tuple[str, int, int]]:
    return [(*where, number) for number in numbers]


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
        self.number = 0
        self.calls: list[str] = []
        self.buffer.on_room = lambda: self.calls.append("room")
        self.buffer.on_data = lambda: self.calls.append("data")

    @rule(where=st.sampled_from(PARTITIONS), stale=st.booleans(), size=st.integers(0, 100))
    def put(self, where: TopicPartition, stale: bool, size: int) -> None:
        current = self.generations.get(where)
        entry = Chunk(where, (current or 0) - 1 if stale else current or 0, 0, (), 1, size)
        self.buffer.put(entry)
        if current is not None and not stale:
            self.model.append(entry)
            assert self.calls[-1] == "data"

    @rule(where=st.sampled_from(PARTITIONS), gone=st.booleans())
    def renew(self, where: TopicPartition, gone: bool) -> None:
        self.number += 1
        self.buffer.renew(where, None if gone else self.number)
        self.generations.pop(where, None)
        if not gone:
            self.generations[where] = self.number
        self.model = [entry for entry in self.model if entry.where != where]
        self.drained.discard(where)

    @rule(paused=st.sets(st.sampled_from(PARTITIONS)))
    def pause(self, paused: set[TopicPartition]) -> None:
        self.buffer.pause(paused)
        self.paused = paused

    @precondition(lambda self: self.out is None)
    @rule()
    def take(self) -> None:
        expected = next((entry for entry in self.model if entry.where not in self.paused), None)
        assert self.buffer.ready() == self.buffer.wait(0) == (expected is not None)
        taken = self.buffer.take()
        assert taken is expected
        if expected is not None:
            self.model.remove(expected)
            self.out = expected
            self.drained.add(expected.where)
            assert self.calls[-1] == "room"

    @precondition(lambda self: self.out is not None)
    @rule(last=st.booleans())
    def give_back(self, last: bool) -> None:
        entry, self.out = self.out, None
        assert entry is not None
        self.buffer.give_back(entry, last=last)
        if self.generations.get(entry.where) != entry.generation:
            return
        behind = [each for each in self.model if each.where == entry.where] if last else []
        others = [each for each in self.model if each not in behind]
        self.model = [*others, entry, *behind] if last else [entry, *self.model]

    @precondition(lambda self: self.out is not None)
    @rule()
    def use_up(self) -> None:
        self.out = None

    @rule()
    def look_for_drained(self) -> None:
        assert sorted(self.buffer.take_drained()) == sorted(self.drained)
        self.drained.clear()

    @invariant()
    def counts_are_exact(self) -> None:
        assert len(self.buffer) == len(self.model)
        assert self.buffer.bytes == sum(entry.size for entry in self.model)
        for where in PARTITIONS:
            assert self.buffer.count(where) == sum(entry.where == where for entry in self.model)


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


def test_a_wake_ends_one_wait() -> None:
    buffer = buffer_of()
    buffer.wake()
    assert not buffer.wait(None)
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
    for where, counts, behind in chunks:
        buffer.put(chunk(where, 1, ends[where], counts, behind=behind))
        expected += at(where, *within(ends[where], counts))
        ends[where] += span(counts) + behind
    got: list[tuple[str, int, int]] = []
    reached: dict[TopicPartition, int] = {}
    for limit in limits:
        records = collect(buffer, limit, None)
        assert len(records) <= limit
        got += offsets(records)
        reached.update(records.positions())
        for where, position in records.positions().items():
            mine = [each[2] for each in got if each[:2] == where]
            left = [each[2] for each in expected[len(got):] if each[:2] == where]
            assert all(offset < position for offset in mine)
            assert all(offset >= position for offset in left)
    assert got == expected
    assert reached == {where: ends[where] for where, _, _ in chunks}


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


def test_C06_nothing_behind_damaged_data_is_handed_out_before_a_seek() -> None:
    bad = Chunk(A, 1, 0, [damaged(0, 3)], 3, 100)
    buffer = buffer_of(bad, chunk(A, 1, 3, [2]), chunk(B, 1, 0, [1]))
    with pytest.raises(CorruptRecordError):
        collect(buffer, 100, None)
    assert offsets(collect(buffer, 100, None)) == at(B, 0)
    with pytest.raises(CorruptRecordError):
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
    for where in draw(st.lists(st.sampled_from(PARTITIONS), max_size=6)):
        counts, behind = draw(st.lists(st.integers(0, 4), max_size=3)), draw(st.integers(0, 1))
        buffer.put(chunk(where, 1, ends[where], counts, behind=behind))
        ends[where] += span(counts) + behind
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
    head, tail = records.split(count)
    assert [*head, *tail] == list(records)
    assert len(head) == min(count, len(records))
    assert {**head.positions(), **tail.positions()} == records.positions()
    for where, position in head.positions().items():
        assert all(record.offset < position for record in head if here(record) == where)
        assert all(record.offset >= position for record in tail if here(record) == where)
    assert {here(record) for record in head} <= set(head.positions())
    assert {here(record) for record in tail} <= set(tail.positions())
    assert list(head.joined(tail)) == list(records)
    assert head.joined(tail).positions() == records.positions()


@given(results())
def test_the_parts_by_partition_are_the_whole(records: Records) -> None:
    parts = dict(records.by_partition())
    assert list(parts) == list(dict.fromkeys(here(record) for record in records)) == list(records.partitions())
    for where, part in parts.items():
        assert list(part) == [record for record in records if here(record) == where]
        assert part.positions() == {where: records.positions()[where]}


@given(results(), st.data())
def test_what_comes_after_a_record_and_the_positions_through_it(records: Records, data: st.DataObject) -> None:
    model = list(records)
    if not model:
        return
    index = data.draw(st.integers(0, len(model) - 1))
    record = model[index]
    assert list(records.after(record)) == model[index + 1 :]
    for inclusive in (False, True):
        positions = records.through(record, inclusive=inclusive)
        seen = model[: index + inclusive]
        for where, position in positions.items():
            assert all(each.offset < position.offset for each in seen if here(each) == where)
            assert all(each.offset >= position.offset for each in model[index + inclusive :] if here(each) == where)
        assert {here(each) for each in seen} <= set(positions)


@given(results(), st.sets(st.sampled_from(PARTITIONS)))
def test_without_and_only_part_the_records_by_partition(records: Records, chosen: set[TopicPartition]) -> None:
    assert list(records.without(chosen)) == [record for record in records if here(record) not in chosen]
    assert list(records.only(chosen)) == [record for record in records if here(record) in chosen]
    assert records.without(chosen).positions() == {w: p for w, p in records.positions().items() if w not in chosen}


@given(results())
def test_positions_that_moved_over_no_records_are_joined_too(records: Records) -> None:
    elsewhere = TopicPartition("elsewhere", 0)
    moved = Records((), {elsewhere: OffsetAndMetadata(7)})
    for joined in (records.joined(moved), moved.joined(records)):
        assert list(joined) == list(records)
        assert joined.positions() == {**records.positions(), elsewhere: 7}


@given(results())
def test_next_offsets_is_what_a_commit_stores(records: Records) -> None:
    assert {where: each.offset for where, each in records.next_offsets().items()} == records.positions()


def test_nothing_comes_after_a_record_that_is_not_here() -> None:
    records = collect(buffer_of(chunk(A, 1, 0, [2])), 10, None)
    assert len(records.after(Record("z", 0, 0, 0))) == 0


def here(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
