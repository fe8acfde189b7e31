"""What is fetched from whom, and where what came belongs (C01, C03, C04, C05, C08, C10, C12, C13, C14, C20)."""
from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.fetchbuffer import Chunk, Failure, FetchBuffer
from pyclient.buffers.fetched import collect
from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.encode import encode_batch, encode_values
from pyclient.core.fetching.fetcher import READ_COMMITTED, Fetcher, FetchLimits
from pyclient.core.fetching.lookups import EARLIEST, LATEST, OffsetLookups
from pyclient.core.fetching.positions import Phase
from pyclient.core.manager import Use
from pyclient.errors import (
    ConnectionLost, CorruptRecordError, KafkaError, NoOffsetForPartition, OffsetOutOfRangeError, RecordTooLargeError,
    UnsupportedVersionError, error_for,
)
from pyclient.records import TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, brokers, make_metadata, read_request, topic, topic_id, view

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
MAX_WAIT, PARTITION_BYTES, MAX_BYTES, MEMORY = 0.5, 1000, 5000, 4000
OUT_OF_RANGE, NOT_LEADER, FENCED_EPOCH, FORBIDDEN, CORRUPT = 1, 6, 74, 29, 2
Tell = Callable[[TopicPartition, int | None, KafkaError | None], None]


class Fetching:
    """A fetcher in its world; topic a has leaders 1, 1, 2 and topic b has 2."""

    def __init__(self, *, reset: int | None = EARLIEST, group: bool = False, isolation: int = 0, **limits: int) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.lookups = OffsetLookups(self.metadata, isolation=isolation, request_timeout=30.0, backoff=DOUBLING)
        self.buffer = FetchBuffer()
        self.asked_for: list[tuple[Sequence[TopicPartition], Tell]] = []
        bounds = {"max_bytes": MAX_BYTES, "max_partition_bytes": PARTITION_BYTES, "buffer_memory": MEMORY, **limits}
        self.fetcher = Fetcher(
            self.buffer, self.metadata, self.lookups,
            FetchLimits(min_bytes=1, max_wait=MAX_WAIT, decompression_limit=100_000, check_crcs=True, isolation=isolation, rack="r1",
                        request_timeout=30.0, **bounds),
            backoff=DOUBLING, reset_time=lambda: reset,
            find_committed=(lambda partitions, tell: self.asked_for.append((partitions, tell))) if group else None)
        self.knows()

    def knows(self, *topics: dict[str, object], nodes: Iterable[int] = (1, 2, 3)) -> None:
        """The cluster tells this now."""
        told = answer(Api.METADATA, 13, **view(*(topics or (topic("a", 1, 1, 2), topic("b", 2))), nodes=nodes))
        self.metadata.hint(self.metadata.cluster.updated(told))

    def reads(self, *partitions: TopicPartition, at: int = 0) -> None:
        """Assign these and begin at an offset."""
        self.fetcher.assign(partitions, self.world.now)
        for where in partitions:
            self.fetcher.seek(where, at)

    def turn(self) -> list[Sent]:
        """What the fetcher and its look-ups send now."""
        return self.world.turn(self.lookups, self.fetcher)

    def fetches(self) -> Sent:
        """The one fetch that comes now."""
        (sent,) = self.turn()
        assert (sent.api, sent.request.use) == (Api.FETCH, Use.FETCH)
        return sent

    def looks_up(self) -> tuple[Sent, dict[TopicPartition, int]]:
        """The one look-up that comes now, and the times it asks for."""
        (sent,) = self.turn()
        assert sent.api is Api.LIST_OFFSETS
        return sent, {TopicPartition(each.name, part.partition_index): part.timestamp for each in sent.body.topics for part in each.partitions}

    def found(self, where: TopicPartition, offset: int, *, error: int = 0) -> None:
        """Answer the look-up that comes now."""
        sent, _ = self.looks_up()
        sent.reply(topics=[{"name": where.topic, "partitions": [
            {"partition_index": where.partition, "offset": offset, "timestamp": -1, "error_code": error}]}])

    def values(self) -> list[tuple[TopicPartition, int, bytes | None]]:
        """What the user gets now; errors are raised."""
        return [(TopicPartition(record.topic, record.partition), record.offset, record.value) for record in collect(self.buffer, 1000, None)]

    def offsets(self) -> list[int]:
        return [offset for _, offset, _ in self.values()]

    def raises(self) -> KafkaError:
        """What the user's poll raises now."""
        with pytest.raises(KafkaError) as caught:
            collect(self.buffer, 1000, None)
        return caught.value


def asks(sent: Sent) -> dict[TopicPartition, int]:
    """Partition → offset of a fetch."""
    names = {topic_id(name): name for name in ("a", "b")}
    return {TopicPartition(getattr(each, "topic", None) or names[each.topic_id], part.partition): part.fetch_offset
            for each in sent.body.topics for part in each.partitions}


def batch(offset: int, count: int = 1, **options: Any) -> bytes:
    return encode_batch([(0, None, b"%d" % (offset + i), None) for i in range(count)], base_offset=offset, **options)


def marker(offset: int, producer: int, kind: int) -> bytes:
    return encode_batch([(0, b"\0\0" + kind.to_bytes(2, "big"), b"\0" * 6, None)], base_offset=offset, producer_id=producer,
                        producer_epoch=0, transactional=True, control=True)


def gives(sent: Sent, told: Mapping[TopicPartition, bytes | int | dict[str, object]], **more: object) -> None:
    """Answer a fetch: bytes are data, a number is an error, a mapping is the fields."""
    responses = []
    for where, what in told.items():
        fields = {"records": what} if isinstance(what, bytes) else {"error_code": what} if isinstance(what, int) else what
        part = {"partition_index": where.partition, "records": b"", "aborted_transactions": None, **fields}
        responses.append({"topic": where.topic, "topic_id": topic_id(where.topic), "partitions": [part]})
    sent.reply(responses=responses, **more)


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


# --- where reading begins --------------------------------------------------------------------------------------------


def test_C01_a_partition_is_not_fetched_before_its_position_is_known(fetching: Fetching) -> None:
    fetching.fetcher.assign([A0], fetching.world.now)
    sent, times = fetching.looks_up()
    assert times == {A0: EARLIEST}
    assert fetching.turn() == []
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 7, "timestamp": -1}]}])
    assert asks(fetching.fetches()) == {A0: 7}


def test_C20_a_position_begins_at_the_committed_offset() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    assert fetching.turn() == []
    ((partitions, tell),) = fetching.asked_for
    assert list(partitions) == [A0, A1]
    tell(A0, 40, None)
    tell(A1, 50, None)
    assert asks(fetching.fetches()) == {A0: 40, A1: 50}


def test_C20_without_a_committed_offset_it_begins_where_auto_offset_reset_says() -> None:
    fetching = Fetching(group=True, reset=LATEST)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.asked_for[0][1](A0, None, None)
    sent, times = fetching.looks_up()
    assert times == {A0: LATEST}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 99, "timestamp": -1}]}])
    assert asks(fetching.fetches()) == {A0: 99}


@pytest.mark.parametrize("group", [True, False])
def test_C20_without_either_it_is_an_error_until_a_seek(group: bool) -> None:
    fetching = Fetching(group=group, reset=None)
    fetching.fetcher.assign([A0], fetching.world.now)
    for _, tell in fetching.asked_for:
        tell(A0, None, None)
    assert fetching.turn() == []
    for _ in range(3):
        error = fetching.raises()
        assert isinstance(error, NoOffsetForPartition)
        assert all(word in str(error) for word in ("a-0", "auto_offset_reset=none", "seek"))
    fetching.fetcher.seek(A0, 3)
    assert fetching.values() == []
    assert asks(fetching.fetches()) == {A0: 3}


def test_C20_an_error_of_the_look_up_is_raised_until_a_seek() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    (_, tell), = fetching.asked_for
    tell(A0, None, error_for(30, "group 'g'"))
    tell(A1, 5, None)
    assert asks(fetching.fetches()) == {A1: 5}
    assert [type(fetching.raises()) for _ in range(2)] == [type(error_for(30))] * 2


@pytest.mark.parametrize("how", ["seek", "reset", "reassign"])
def test_C03_a_committed_offset_that_comes_late_does_not_undo_what_the_user_did_meanwhile(how: str) -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0], fetching.world.now)
    (_, tell), = fetching.asked_for
    if how == "seek":
        fetching.fetcher.seek(A0, 3)
    elif how == "reset":
        fetching.fetcher.reset(A0, LATEST, fetching.world.now)
    else:
        fetching.fetcher.assign([], fetching.world.now)
        fetching.fetcher.assign([A0], fetching.world.now)
        fetching.asked_for[1][1](A0, 3, None)
    tell(A0, 40, None)
    if how == "reset":
        fetching.found(A0, 3)
    assert asks(fetching.fetches()) == {A0: 3}


@pytest.mark.parametrize("how", ["seek", "reset", "unassign"])
def test_C03_a_look_up_that_was_overtaken_is_over(fetching: Fetching, how: str) -> None:
    fetching.fetcher.assign([A0], fetching.world.now)
    late, _ = fetching.looks_up()
    if how == "seek":
        fetching.fetcher.seek(A0, 3)
    elif how == "reset":
        fetching.fetcher.reset(A0, LATEST, fetching.world.now)
        fetching.found(A0, 3)
    else:
        fetching.fetcher.assign([], fetching.world.now)
    late.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 40, "timestamp": -1}]}])
    assert [asks(sent) for sent in fetching.turn()] == ([] if how == "unassign" else [{A0: 3}])


def test_nothing_is_looked_up_for_a_partition_that_was_given_up(fetching: Fetching) -> None:
    missing = TopicPartition("missing", 0)
    fetching.fetcher.assign([missing], fetching.world.now)
    assert fetching.turn() == []
    fetching.fetcher.assign([], fetching.world.now)
    settle_metadata(fetching)
    assert fetching.turn() == []
    fetching.world.after(64.0)
    assert fetching.world.turn(fetching.metadata) == []


def settle_metadata(fetching: Fetching) -> None:
    """Answer what is asked now, so that only new wishes make another request before its age."""
    for sent in fetching.world.turn(fetching.metadata):
        sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2)))
    fetching.world.after(64.0)
    for sent in fetching.world.turn(fetching.metadata):
        sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2)))


def test_a_time_after_the_last_record_begins_at_the_end() -> None:
    fetching = Fetching(reset=10**15)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.found(A0, -1)
    sent, times = fetching.looks_up()
    assert times == {A0: LATEST}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 9, "timestamp": -1}]}])
    assert asks(fetching.fetches()) == {A0: 9}


def test_partitions_kept_by_a_new_assignment_go_on_where_they_are(fetching: Fetching) -> None:
    fetching.reads(A0, A1, at=5)
    gives(fetching.fetches(), {A0: batch(5, 2)})
    fetching.fetcher.assign([A0], fetching.world.now)
    assert asks(fetching.fetches()) == {A0: 7}
    assert fetching.offsets() == [5, 6]
    assert set(fetching.fetcher.positions) == {A0}


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_fetch_for_all_its_partitions(fetching: Fetching) -> None:
    fetching.reads(A0, A1, A2, B0)
    sent = {each.node: asks(each) for each in fetching.turn()}
    assert sent == {1: {A0: 0, A1: 0}, 2: {A2: 0, B0: 0}}


def test_one_fetch_per_node_is_under_way(fetching: Fetching) -> None:
    fetching.reads(A0)
    first = fetching.fetches()
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    fetching.fetcher.seek(A1, 0)
    fetching.world.capacity[Use.FETCH] = 5
    assert fetching.turn() == []
    gives(first, {A0: batch(0)})
    assert asks(fetching.fetches()) == {A0: 1, A1: 0}


@pytest.mark.parametrize("version", range(SPOKEN[Api.FETCH].low, SPOKEN[Api.FETCH].high + 1))
def test_C08_the_request_says_the_same_in_every_version_and_names_topics_by_id_since_13(version: int) -> None:
    fetching = Fetching(isolation=READ_COMMITTED)
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.world.versions[Api.FETCH] = version
    fetching.reads(A0, at=17)
    sent = fetching.fetches()
    body = read_request(sent.request, version)
    (told,) = body.topics
    (part,) = told.partitions
    assert (told.topic_id if version >= 13 else told.topic) == (topic_id("a") if version >= 13 else "a")
    assert (body.max_wait, body.min_bytes, body.isolation_level) == (datetime.timedelta(seconds=MAX_WAIT), 1, READ_COMMITTED)
    assert (part.partition, part.fetch_offset, part.partition_max_bytes) == (0, 17, PARTITION_BYTES)
    assert (getattr(part, "current_leader_epoch", 4), getattr(body, "rack_id", "r1")) == (4, "r1")
    assert getattr(body, "session_id", 0) == 0
    assert getattr(body, "session_epoch", -1) == -1
    gives(sent, {A0: batch(17)})
    assert fetching.offsets() == [17]


def test_C08_one_topic_without_an_id_and_the_request_goes_by_name(fetching: Fetching) -> None:
    nameless = Fetching()
    nameless.metadata.hint(nameless.metadata.cluster.without(["b"]))
    told = answer(Api.METADATA, 9, **view(topic("b", 1)))
    nameless.metadata.hint(nameless.metadata.cluster.updated(told))
    nameless.reads(A0, B0)
    sent = nameless.fetches()
    assert (sent.version, asks(sent)) == (12, {A0: 0, B0: 0})
    gives(sent, {A0: batch(0), B0: batch(0)})
    assert [where for where, _, _ in nameless.values()] == [A0, B0]
    fetching.reads(A0, B0)
    assert {each.version for each in fetching.turn()} == {SPOKEN[Api.FETCH].high}


def test_a_fetch_may_take_its_wait_and_the_request_timeout(fetching: Fetching) -> None:
    fetching.reads(A0)
    assert fetching.fetches().request.timeout == 30.0 + MAX_WAIT


# --- where data belongs ----------------------------------------------------------------------------------------------


def test_C14_the_next_records_are_fetched_while_the_user_works_at_most_two_answers_ahead(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 3)})
    gives(fetching.fetches(), {A0: batch(3, 3)})
    assert fetching.turn() == []
    assert collect(fetching.buffer, 3, None)
    assert asks(fetching.fetches()) == {A0: 6}
    assert fetching.offsets() == [3, 4, 5]


def test_C03_an_answer_for_a_position_that_was_left_by_a_seek_is_dropped(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 100)
    gives(late, {A0: batch(0), A1: batch(0)})
    assert fetching.values() == [(A1, 0, b"0")]
    assert asks(fetching.fetches()) == {A0: 100, A1: 1}


def test_C03_a_seek_to_where_it_stands_drops_the_answer_too(fetching: Fetching) -> None:
    fetching.reads(A0)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 0)
    gives(late, {A0: batch(0)})
    assert fetching.values() == []
    assert asks(fetching.fetches()) == {A0: 0}


def test_C03_a_seek_drops_what_is_buffered(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 3)})
    fetching.fetcher.seek(A0, 1)
    assert fetching.values() == []
    assert fetching.buffer.bytes == 0


@pytest.mark.parametrize("again", [True, False])
def test_C03_an_answer_for_a_partition_that_was_given_up_is_dropped(fetching: Fetching, again: bool) -> None:
    fetching.reads(A0, A1)
    late = fetching.fetches()
    fetching.fetcher.assign([A1], fetching.world.now)
    if again:
        fetching.reads(A1, A0)
    gives(late, {A0: batch(0), A1: batch(0)})
    assert all(where == A1 for where, _, _ in fetching.values())
    assert fetching.buffer.bytes == 0


def test_C03_an_error_for_a_position_that_was_left_is_dropped(fetching: Fetching) -> None:
    fetching.reads(A0)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 100)
    gives(late, {A0: OUT_OF_RANGE})
    assert asks(fetching.fetches()) == {A0: 100}


def test_C01_what_is_paused_is_not_fetched_and_C03_keeps_what_is_buffered(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0), A1: batch(0)})
    fetching.fetcher.pause([A0])
    assert fetching.fetcher.paused == {A0}
    assert asks(fetching.fetches()) == {A1: 1}
    assert [where for where, _, _ in fetching.values()] == [A1]
    fetching.fetcher.resume([A0])
    assert fetching.values() == [(A0, 0, b"0")]


def test_C01_what_was_paused_is_fetched_again_when_it_is_resumed(fetching: Fetching) -> None:
    fetching.reads(A0)
    fetching.fetcher.pause([A0])
    assert fetching.turn() == []
    assert fetching.fetcher.next_deadline() is None
    fetching.fetcher.resume(iter([A0]))
    assert asks(fetching.fetches()) == {A0: 0}


def test_C03_an_answer_that_comes_during_a_pause_is_kept_for_later(fetching: Fetching) -> None:
    fetching.reads(A0)
    sent = fetching.fetches()
    fetching.fetcher.pause([A0])
    gives(sent, {A0: batch(0)})
    assert fetching.values() == []
    fetching.fetcher.resume([A0])
    assert fetching.values() == [(A0, 0, b"0")]


def test_a_pause_ends_with_the_assignment(fetching: Fetching) -> None:
    fetching.reads(A0)
    fetching.fetcher.pause([A0])
    fetching.fetcher.assign([], fetching.world.now)
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    assert fetching.values() == [(A0, 0, b"0")]


def test_C04_records_before_the_position_are_skipped(fetching: Fetching) -> None:
    fetching.reads(A0, at=3)
    gives(fetching.fetches(), {A0: batch(0, 2) + batch(2, 4)})
    assert asks(fetching.fetches()) == {A0: 6}
    assert fetching.offsets() == [3, 4, 5]


def test_C04_control_batches_are_never_handed_out_but_move_the_position(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: marker(0, 7, 1)})
    assert asks(fetching.fetches()) == {A0: 1}
    records = collect(fetching.buffer, 10, None)
    assert (len(records), records.positions()) == (0, {A0: 1})


def test_C04_after_the_last_batch_the_position_is_behind_it_even_if_it_held_no_records(fetching: Fetching) -> None:
    fetching.reads(A0)
    empty = encode_batch([], base_offset=1)
    gives(fetching.fetches(), {A0: batch(0) + empty if empty else batch(0)})
    sent = fetching.fetches()
    records = collect(fetching.buffer, 10, None)
    assert asks(sent) == records.positions()


def test_C05_read_committed_leaves_out_aborted_transactions_told_in_any_order() -> None:
    log = batch(0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) + batch(1) + marker(2, 7, 0) + batch(
        3, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True) + marker(4, 8, 0) + batch(
        5, producer_id=7, producer_epoch=0, base_sequence=1, transactional=True) + marker(6, 7, 1)
    aborted = [{"producer_id": 8, "first_offset": 3}, {"producer_id": 7, "first_offset": 0}]
    for isolation, seen in ((READ_COMMITTED, [1, 5]), (0, [0, 1, 3, 5])):
        for told in itertools.permutations(aborted):
            fetching = Fetching(isolation=isolation)
            fetching.reads(A0)
            gives(fetching.fetches(), {A0: {"records": log, "aborted_transactions": list(told)}})
            assert fetching.offsets() == seen
            assert asks(fetching.fetches()) == {A0: 7}


def test_the_high_watermark_is_the_last_one_told(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"records": b"", "high_watermark": 17}})
    assert fetching.fetcher.positions[A0].high_watermark == 17


def test_an_answer_about_partitions_nobody_asked_for_is_ignored(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A1: batch(0), B0: batch(0), A0: batch(0)})
    assert fetching.values() == [(A0, 0, b"0")]


# --- memory and pace -------------------------------------------------------------------------------------------------


def test_C14_nothing_is_fetched_while_the_buffer_is_full(fetching: Fetching) -> None:
    fetching.reads(A0, A2)
    first, second = fetching.turn()
    gives(first, {A0: encode_values([b"x" * 3500])})
    gives(second, {A2: b""})
    assert fetching.turn() == []
    assert fetching.fetcher.next_deadline() is None
    assert len(fetching.values()) == 1
    assert {each.node for each in fetching.turn()} == {1, 2}


def test_C14_all_answers_under_way_together_fit_the_buffer() -> None:
    fetching = Fetching(max_bytes=50_000, buffer_memory=4000)
    fetching.reads(A0, A1, A2, B0)
    sent = fetching.turn()
    assert sum(min(each.body.max_bytes, PARTITION_BYTES * len(asks(each))) for each in sent) <= 4000
    for each in sent:
        gives(each, {where: encode_values([b"x" * 900], base_offset=0) for where in asks(each)})
    assert fetching.buffer.bytes <= 4000


def test_C14_even_the_only_fetch_asks_for_no_more_than_the_buffer_holds() -> None:
    fetching = Fetching(max_bytes=50_000, buffer_memory=4000, max_partition_bytes=40_000)
    fetching.reads(A0)
    assert fetching.fetches().body.max_bytes == 4000


def test_C14_a_batch_larger_than_the_buffer_is_read_when_the_buffer_is_empty(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: encode_values([b"x" * 9000])})
    assert fetching.turn() == []
    assert len(fetching.values()) == 1
    assert asks(fetching.fetches()) == {A0: 1}


def test_C14_a_fetch_that_leaves_out_what_waits_for_the_user_does_not_wait_long(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    sent = fetching.fetches()
    gives(sent, {A0: batch(1)})
    sent = fetching.fetches()
    assert asks(sent) == {A1: 0}
    assert sent.body.max_wait == datetime.timedelta(milliseconds=20)


def test_C14_what_is_kept_for_a_paused_partition_does_not_hurry_the_others(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    fetching.fetcher.pause([A0])
    sent = fetching.fetches()
    assert (asks(sent), sent.body.max_wait) == ({A1: 0}, datetime.timedelta(seconds=MAX_WAIT))


def test_C14_what_is_kept_for_paused_partitions_does_not_starve_the_others(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: encode_values([b"x" * 3900])})
    fetching.fetcher.pause([A0])
    assert asks(fetching.fetches()) == {A1: 0}


def test_C14_a_lost_fetch_gives_its_room_back(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    for _ in range(10):
        fetching.fetches().is_lost()
        fetching.world.after(64.0)
    assert fetching.fetches().body.max_bytes == MEMORY


def test_partitions_that_got_nothing_stand_first_in_the_next_request(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    assert list(asks(fetching.fetches())) == [A1, A0]


# --- errors ----------------------------------------------------------------------------------------------------------

RETRIED = [NOT_LEADER, 9, 56, FENCED_EPOCH, 78, 3, 100, 103, 75, -1]
"""Leader moved, replica or storage gone, epoch fenced, offset not there yet, topic (id) unknown, epoch unknown, unknown error."""


@pytest.mark.parametrize("code", RETRIED)
def test_C13_an_error_that_may_pass_is_tried_again_ever_later_and_not_raised(fetching: Fetching, code: int) -> None:
    fetching.reads(A0)
    for pause in (1, 2, 4):
        gives(fetching.fetches(), {A0: code})
        assert fetching.turn() == []
        assert fetching.fetcher.next_deadline() == fetching.world.now + pause
        fetching.world.after(pause)
    gives(fetching.fetches(), {A0: batch(0)})
    assert fetching.values() == [(A0, 0, b"0")]
    gives(fetching.fetches(), {A0: code})
    assert fetching.fetcher.next_deadline() == fetching.world.now + 1


@pytest.mark.parametrize("code", [NOT_LEADER, 9, 56, FENCED_EPOCH, 78, 3, 100, 103])
def test_C13_an_error_that_says_the_leader_moved_refreshes_metadata_and_the_new_leader_is_asked(fetching: Fetching, code: int) -> None:
    fetching.reads(A0)
    settle_metadata(fetching)
    gives(fetching.fetches(), {A0: code})
    fetching.world.after(64.0)
    (metadata,) = fetching.world.turn(fetching.metadata)
    metadata.reply(**view(topic("a", 3, 1, 2, epoch=1), topic("b", 2)))
    assert fetching.fetches().node == 3


@pytest.mark.parametrize("code", [FORBIDDEN, CORRUPT])
def test_C13_authorization_and_corruption_are_raised_and_stop_no_other_partition(fetching: Fetching, code: int) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: code, A1: batch(0)})
    sent = fetching.fetches()
    assert asks(sent) == {A1: 1}
    error = fetching.raises()
    assert isinstance(error, type(error_for(code)))
    assert "a-0" in str(error)
    assert fetching.values() == [(A1, 0, b"0")]
    fetching.world.after(1.0)
    assert fetching.turn() == []
    gives(sent, {A1: b""})
    assert asks(fetching.fetches()) == {A0: 0, A1: 1}  # who is granted it meanwhile reads on


@pytest.mark.parametrize("how", ["lost", "not sent", "of the whole request"])
def test_C13_a_fetch_that_failed_is_repeated_after_a_pause(fetching: Fetching, how: str) -> None:
    fetching.reads(A0)
    sent = fetching.fetches()
    if how == "lost":
        sent.is_lost()
    elif how == "not sent":
        sent.is_not_sent(ConnectionLost("gone"))
    else:
        gives(sent, {}, error_code=-1)
    assert fetching.turn() == []
    assert fetching.values() == []
    fetching.world.after(1.0)
    assert asks(fetching.fetches()) == {A0: 0}


def test_M15_a_broker_without_a_common_version_is_an_error_of_its_partitions(fetching: Fetching) -> None:
    fetching.reads(A0)
    fetching.fetches().is_not_sent(UnsupportedVersionError("too old"))
    assert isinstance(fetching.raises(), UnsupportedVersionError)


def test_C12_an_answer_that_names_a_newer_leader_is_believed_and_that_one_asked_at_once(fetching: Fetching) -> None:
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.reads(A0)
    hint = {"error_code": NOT_LEADER, "current_leader": {"leader_id": 9, "leader_epoch": 5}}
    gives(fetching.fetches(), {A0: hint}, node_endpoints=brokers(9))
    fetching.world.nodes.add(9)
    sent = fetching.fetches()
    assert (sent.node, asks(sent), sent.body.topics[0].partitions[0].current_leader_epoch) == (9, {A0: 0}, 5)


@pytest.mark.parametrize(("leader", "epoch"), [(2, 4), (2, 3), (8, 5), (-1, -1)])
def test_C12_a_hint_that_is_not_newer_or_without_an_address_is_ignored(fetching: Fetching, leader: int, epoch: int) -> None:
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.reads(A0)
    hint = {"error_code": NOT_LEADER, "current_leader": {"leader_id": leader, "leader_epoch": epoch}}
    gives(fetching.fetches(), {A0: hint})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    assert fetching.fetches().node == 1


def test_a_partition_follows_its_leader_as_metadata_tells_it(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    fetching.knows(topic("a", 3, 1, 2, epoch=1), topic("b", 2))
    sent = fetching.fetches()
    assert (sent.node, asks(sent)) == (3, {A0: 1})


def test_a_partition_without_a_leader_waits_for_one_and_holds_up_no_other(fetching: Fetching) -> None:
    fetching.knows(topic("a", -1, 1, 2, epoch=1), topic("b", 2))
    fetching.reads(A0, A1)
    assert asks(fetching.fetches()) == {A1: 0}
    assert fetching.turn() == []
    fetching.knows(topic("a", 2, 1, 2, epoch=2), topic("b", 2))
    sent = fetching.fetches()
    assert (sent.node, asks(sent)) == (2, {A0: 0})


def test_a_leader_that_is_not_ready_holds_up_no_other(fetching: Fetching) -> None:
    fetching.world.nodes = {2}
    fetching.reads(A0, A2)
    assert asks(fetching.fetches()) == {A2: 0}
    fetching.world.nodes = {1}
    assert asks(fetching.fetches()) == {A0: 0}


def test_M03_a_topic_error_that_waiting_cannot_cure_is_raised_once_for_each_time_it_is_told() -> None:
    fetching = Fetching()
    fetching.reads(TopicPartition("c", 0))
    assert fetching.turn() == []
    for _ in range(2):
        fetching.knows(topic("a", 1), topic("c", error=FORBIDDEN))
        fetching.turn()
        assert type(fetching.raises()) is type(error_for(FORBIDDEN))
        assert fetching.values() == []
    fetching.knows(topic("a", 1), topic("c", 1))
    (sent,) = fetching.turn()
    assert sent.node == 1


# --- out of range, damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [EARLIEST, LATEST, 1234])
def test_C10_a_position_the_log_does_not_hold_is_reset_by_the_policy(policy: int) -> None:
    fetching = Fetching(reset=policy)
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    sent, times = fetching.looks_up()
    assert times == {A0: policy}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 80, "timestamp": -1}]}])
    fetching.turn()
    fetching.world.after(1.0)
    assert [asks(each) for each in fetching.world.in_flight or fetching.turn()] == [{A0: 80}]


def test_C10_records_fetched_before_are_handed_out_first(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 2)})
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    fetching.found(A0, 80)
    assert fetching.offsets() == [0, 1]


def test_C10_without_a_policy_it_is_raised_with_the_offset_until_a_seek() -> None:
    fetching = Fetching(reset=None)
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    assert fetching.turn() == []
    for _ in range(2):
        error = fetching.raises()
        assert isinstance(error, OffsetOutOfRangeError)
        assert all(word in str(error) for word in ("50", "a-0", "seek"))
    assert fetching.fetcher.positions[A0].phase is Phase.STUCK
    fetching.fetcher.seek(A0, 60)
    assert fetching.values() == []
    assert asks(fetching.fetches()) == {A0: 60}


def test_C10_an_offset_that_is_refused_again_and_again_is_not_asked_for_at_the_networks_speed(fetching: Fetching) -> None:
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    for pause in (1, 2, 4):
        fetching.found(A0, 50)
        assert fetching.turn() == []
        fetching.world.after(pause)
        gives(fetching.fetches(), {A0: OUT_OF_RANGE})


def test_C06_damaged_data_is_raised_with_its_offset_until_a_seek_after_what_came_before_it(fetching: Fetching) -> None:
    fetching.reads(A0)
    damaged = bytearray(batch(2))
    damaged[16] = 1  # an old format
    gives(fetching.fetches(), {A0: batch(0, 2) + bytes(damaged)})
    gives(fetching.fetches(), {A0: bytes(damaged)})
    assert fetching.turn() == []
    assert fetching.offsets() == [0, 1]
    for _ in range(2):
        error = fetching.raises()
        assert isinstance(error, CorruptRecordError)
        assert all(word in str(error) for word in ("a-0", "offset 2", "seek"))
    assert fetching.turn() == []
    fetching.fetcher.seek(A0, 3)
    assert asks(fetching.fetches()) == {A0: 3}


def test_a_batch_that_does_not_come_whole_is_an_error_and_asked_for_ever_more_slowly(fetching: Fetching) -> None:
    fetching.reads(A0)
    for pause in (1, 2, 4):
        gives(fetching.fetches(), {A0: batch(0)[:-1]})
        assert fetching.turn() == []
        error = fetching.raises()
        assert isinstance(error, RecordTooLargeError)
        assert "max_partition_fetch_bytes=1000" in str(error)
        fetching.world.after(pause)


def test_a_batch_cut_off_after_whole_ones_is_asked_for_next(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0) + batch(1, 5)[:-1]})
    assert asks(fetching.fetches()) == {A0: 1}
    assert fetching.offsets() == [0]


def test_data_that_lies_before_the_position_is_not_asked_for_at_the_networks_speed(fetching: Fetching) -> None:
    fetching.reads(A0, at=5)
    gives(fetching.fetches(), {A0: batch(0, 5)})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    assert asks(fetching.fetches()) == {A0: 5}


# --- under any events ------------------------------------------------------------------------------------------------

PLACES = st.sampled_from([A0, A1, A2, B0])
ALL = (A0, A1, A2, B0)


class AnyEvents(RuleBasedStateMachine):
    """A log of one record an offset, whatever happens: the user reads on from where he stands, in order, none twice or missed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetching = Fetching(max_bytes=1500, buffer_memory=1500, max_partition_bytes=400)
        self.next: dict[TopicPartition, int] = {}
        self.epoch = 0

    # the user

    @rule(partitions=st.sets(PLACES))
    def assign(self, partitions: set[TopicPartition]) -> None:
        fresh = [where for where in partitions if where not in self.next]
        self.fetching.fetcher.assign(partitions, self.fetching.world.now)
        for where in fresh:
            self.fetching.fetcher.seek(where, 0)
        self.next = {where: self.next.get(where, 0) for where in partitions}

    @precondition(lambda self: self.next)
    @rule(data=st.data(), offset=st.integers(0, 50))
    def seek(self, data: st.DataObject, offset: int) -> None:
        where = data.draw(st.sampled_from(sorted(self.next)))
        self.fetching.fetcher.seek(where, offset)
        self.next[where] = offset

    @precondition(lambda self: self.next)
    @rule(data=st.data(), paused=st.booleans())
    def pause_or_resume(self, data: st.DataObject, paused: bool) -> None:
        where = data.draw(st.sampled_from(sorted(self.next)))
        (self.fetching.fetcher.pause if paused else self.fetching.fetcher.resume)([where])

    @rule(limit=st.integers(1, 10))
    def poll(self, limit: int) -> None:
        paused = self.fetching.fetcher.paused
        try:
            records = collect(self.fetching.buffer, limit, None)
        except RecordTooLargeError:
            return
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            assert where not in paused
            assert record.offset == self.next[where], f"{where} is at {self.next[where]}"
            self.next[where] += 1

    # the cluster

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(data=st.data(), counts=st.lists(st.sampled_from([0, 1, 3, None, "error", "cut"]), min_size=4, max_size=4))
    def answer(self, data: st.DataObject, counts: list[Any]) -> None:
        sent = data.draw(st.sampled_from(self.fetching.world.in_flight))
        told: dict[TopicPartition, bytes | int | dict[str, object]] = {}
        for (where, offset), count in zip(asks(sent).items(), counts, strict=False):
            if count == "error":
                told[where] = NOT_LEADER
            elif count == "cut":
                told[where] = batch(offset)[:-1]
            elif count is not None:
                told[where] = batch(offset, count) if count else b""
        gives(sent, told)

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(lost=st.booleans())
    def fail(self, lost: bool) -> None:
        sent = self.fetching.world.in_flight[0]
        sent.is_lost() if lost else sent.is_not_sent()

    @rule(leaders=st.tuples(*[st.sampled_from([-1, 1, 2, 3])] * 4))
    def leaders_move(self, leaders: tuple[int, int, int, int]) -> None:
        self.epoch += 1
        self.fetching.knows(topic("a", *leaders[:3], epoch=self.epoch), topic("b", leaders[3], epoch=self.epoch))

    @rule(nodes=st.sets(st.sampled_from([1, 2, 3])))
    def nodes_become_ready_or_not(self, nodes: set[int]) -> None:
        self.fetching.world.nodes = nodes

    @rule(seconds=st.sampled_from([0.5, 2.0, 64.0]))
    def time_passes(self, seconds: float) -> None:
        self.fetching.world.after(seconds)

    @invariant()
    def it_rests_within_its_bounds(self) -> None:
        fetching = self.fetching
        fetching.turn()
        under_way = [sent.node for sent in fetching.world.in_flight]
        assert len(under_way) == len(set(under_way))
        asked = [where for sent in fetching.world.in_flight for where in asks(sent)]
        assert len(asked) == len(set(asked))
        assert all(fetching.buffer.count(where) <= 3 for where in ALL)

    def teardown(self) -> None:
        """Once nothing fails any more, every partition is read on."""
        fetching = self.fetching
        fetching.world.nodes = {1, 2, 3}
        fetching.knows(topic("a", 1, 2, 3, epoch=1000), topic("b", 1, epoch=1000))
        fetching.fetcher.resume(self.next)
        goal = {where: offset + 3 for where, offset in self.next.items()}
        for _ in range(30):
            fetching.world.after(64.0)
            fetching.turn()
            for sent in list(fetching.world.in_flight):
                gives(sent, {where: batch(offset) for where, offset in asks(sent).items()})
            for _ in range(5):
                self.poll(1000)
        assert all(self.next[where] >= offset for where, offset in goal.items())


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_an_entry_says_what_it_is(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    entry = fetching.buffer.take()
    assert isinstance(entry, Chunk)
    assert not isinstance(entry, Failure)
    assert "a-0 0..1" in repr(entry)
