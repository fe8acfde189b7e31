"""What is fetched from whom, and where what came belongs (C01, C03, C04, C05, C08, C14, C20)."""
from __future__ import annotations

import datetime
import itertools

import attrs
import pytest

from pyclient.buffers.fetch_buffer import Chunk
from pyclient.buffers.collect import collect
from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.encode import encode_batch, encode_values
from pyclient.core.fetching.limits import READ_COMMITTED
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.core.manager import Use
from pyclient.errors import (
    NoOffsetForPartitionError, error_for,
)
from pyclient.records import TopicPartition
from tests.unit.core.fetching import (
    A0, A1, A2, B0, FORBIDDEN, MAX_WAIT, MEMORY, OUT_OF_RANGE, PARTITION_BYTES, Fetching, offsets_of, batch, gives, marker, settle_metadata,
)
from tests.unit.core.world import answer, read_request, topic, topic_id, view


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
    assert offsets_of(fetching.fetches()) == {A0: 7}


def test_C20_a_position_begins_at_the_committed_offset() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    assert fetching.turn() == []
    ((partitions, report),) = fetching.committed_lookups
    assert list(partitions) == [A0, A1]
    report(A0, 40, None)
    report(A1, 50, None)
    assert offsets_of(fetching.fetches()) == {A0: 40, A1: 50}


def test_C20_without_a_committed_offset_it_begins_where_auto_offset_reset_says() -> None:
    fetching = Fetching(group=True, reset=LATEST)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.committed_lookups[0][1](A0, None, None)
    sent, times = fetching.looks_up()
    assert times == {A0: LATEST}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 99, "timestamp": -1}]}])
    assert offsets_of(fetching.fetches()) == {A0: 99}


@pytest.mark.parametrize("group", [True, False])
def test_C20_without_either_it_is_an_error_until_a_seek(group: bool) -> None:
    fetching = Fetching(group=group, reset=None)
    fetching.fetcher.assign([A0], fetching.world.now)
    for _, report in fetching.committed_lookups:
        report(A0, None, None)
    assert fetching.turn() == []
    for _ in range(3):
        error = fetching.raises()
        assert isinstance(error, NoOffsetForPartitionError)
        assert all(word in str(error) for word in ("a-0", "auto_offset_reset=none", "seek"))
    fetching.fetcher.seek(A0, 3)
    assert fetching.values() == []
    assert offsets_of(fetching.fetches()) == {A0: 3}


def test_C20_a_refused_look_up_of_committed_offsets_is_raised_and_repeated_ever_later() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    fetching.committed_lookups[0][1](A1, 5, None)
    for times, pause in enumerate((1, 2, 4), start=1):
        fetching.committed_lookups[-1][1](A0, None, error_for(30, "group 'g'"))
        fetching.turn()
        assert fetching.fetcher.next_deadline() == fetching.world.now + pause
        assert type(fetching.raises()) is type(fetching.fetcher.why_unknown(A0)) is type(error_for(30))
        assert fetching.values() == []
        assert len(fetching.committed_lookups) == times
        fetching.world.after(pause)
        fetching.turn()
        assert fetching.committed_lookups[-1][0] == [A0]
    fetching.committed_lookups[-1][1](A0, 7, None)
    assert fetching.fetcher.why_unknown(A0) is None
    (sent,) = fetching.world.in_flight
    gives(sent, {A1: b""})
    assert offsets_of(fetching.fetches()) == {A0: 7, A1: 5}


def test_C20_a_refused_look_up_of_the_logs_start_is_raised_and_repeated_ever_later(fetching: Fetching) -> None:
    fetching.fetcher.assign([A0], fetching.world.now)
    for pause in (1, 2, 4):
        fetching.found(A0, -1, error=FORBIDDEN)
        assert fetching.turn() == []
        assert fetching.fetcher.next_deadline() == fetching.world.now + pause
        assert type(fetching.raises()) is type(fetching.fetcher.why_unknown(A0)) is type(error_for(FORBIDDEN))
        assert fetching.values() == []
        fetching.world.after(pause)
    fetching.found(A0, 7)
    assert offsets_of(fetching.fetches()) == {A0: 7}


@pytest.mark.parametrize("group", [True, False])
def test_C20_a_seek_ends_the_repetition_of_a_refused_look_up(group: bool) -> None:
    fetching = Fetching(group=group)
    fetching.fetcher.assign([A0], fetching.world.now)
    if group:
        fetching.committed_lookups[0][1](A0, None, error_for(30, "group 'g'"))
    else:
        fetching.found(A0, -1, error=FORBIDDEN)
    fetching.fetcher.seek(A0, 3)
    assert offsets_of(fetching.fetches()) == {A0: 3}
    fetching.world.after(64.0)
    assert fetching.turn() == []
    assert len(fetching.committed_lookups) == group
    assert fetching.fetcher.why_unknown(A0) is None


@pytest.mark.parametrize("how", ["seek", "reset", "unassign"])
def test_C20_the_committed_offset_is_not_wanted_any_more_of_a_partition_given_up_or_sought(how: str) -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0, A1, A2], fetching.world.now)
    fetching.committed_lookups[0][1](A2, 1, None)
    if how == "seek":
        fetching.fetcher.seek(A0, 3)
    elif how == "reset":
        fetching.fetcher.reset(A0, LATEST, fetching.world.now)
    else:
        fetching.fetcher.assign([A1, A2], fetching.world.now)
    fetching.fetcher.seek(A2, 3)
    assert fetching.unwanted == [A0]  # the others': still wanted, and answered


def test_C04_a_reset_moves_the_position_of_the_user_too(fetching: Fetching) -> None:
    fetching.reads(A0, at=7)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    fetching.found(A0, 100)
    records = collect(fetching.buffer, 1000, None)
    assert (list(records), records.positions()) == ([], {A0: 100})


@pytest.mark.parametrize("how", ["seek", "reset", "reassign"])
def test_C03_a_committed_offset_that_comes_late_does_not_undo_what_the_user_did_meanwhile(how: str) -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0], fetching.world.now)
    (_, report), = fetching.committed_lookups
    if how == "seek":
        fetching.fetcher.seek(A0, 3)
    elif how == "reset":
        fetching.fetcher.reset(A0, LATEST, fetching.world.now)
    else:
        fetching.fetcher.assign([], fetching.world.now)
        fetching.fetcher.assign([A0], fetching.world.now)
        fetching.committed_lookups[1][1](A0, 3, None)
    report(A0, 40, None)
    if how == "reset":
        fetching.found(A0, 3)
    assert offsets_of(fetching.fetches()) == {A0: 3}


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
    assert [offsets_of(sent) for sent in fetching.turn()] == ([] if how == "unassign" else [{A0: 3}])


def test_nothing_is_looked_up_for_a_partition_that_was_given_up(fetching: Fetching) -> None:
    missing = TopicPartition("missing", 0)
    fetching.fetcher.assign([missing], fetching.world.now)
    assert fetching.turn() == []
    fetching.fetcher.assign([], fetching.world.now)
    settle_metadata(fetching)
    assert fetching.turn() == []
    fetching.world.after(64.0)
    assert fetching.world.turn(fetching.metadata) == []


def test_a_time_after_the_last_record_begins_at_the_end() -> None:
    fetching = Fetching(reset=10**15)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.found(A0, -1)
    sent, times = fetching.looks_up()
    assert times == {A0: LATEST}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 9, "timestamp": -1}]}])
    assert offsets_of(fetching.fetches()) == {A0: 9}


def test_partitions_kept_by_a_new_assignment_go_on_where_they_are(fetching: Fetching) -> None:
    fetching.reads(A0, A1, at=5)
    gives(fetching.fetches(), {A0: batch(5, 2)})
    fetching.fetcher.assign([A0], fetching.world.now)
    assert offsets_of(fetching.fetches()) == {A0: 7}
    assert fetching.offsets() == [5, 6]
    assert set(fetching.fetcher.positions) == {A0}


# --- requests --------------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_fetch_for_all_its_partitions(fetching: Fetching) -> None:
    fetching.reads(A0, A1, A2, B0)
    sent = {each.node: offsets_of(each) for each in fetching.turn()}
    assert sent == {1: {A0: 0, A1: 0}, 2: {A2: 0, B0: 0}}


def test_one_fetch_per_node_is_under_way(fetching: Fetching) -> None:
    fetching.reads(A0)
    first = fetching.fetches()
    fetching.fetcher.assign([A0, A1], fetching.world.now)
    fetching.fetcher.seek(A1, 0)
    fetching.world.capacity[Use.FETCH] = 5
    assert fetching.turn() == []
    gives(first, {A0: batch(0)})
    assert offsets_of(fetching.fetches()) == {A0: 1, A1: 0}


@pytest.mark.parametrize("version", range(SPOKEN[Api.FETCH].low, SPOKEN[Api.FETCH].high + 1))
def test_C08_the_request_says_the_same_in_every_version_and_names_topics_by_id_since_13(version: int) -> None:
    fetching = Fetching(isolation=READ_COMMITTED)
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.world.versions[Api.FETCH] = version
    fetching.reads(A0, at=17)
    sent = fetching.fetches()
    body = read_request(sent.request, version)
    (reported,) = body.topics
    (part,) = reported.partitions
    assert (reported.topic_id if version >= 13 else reported.topic) == (topic_id("a") if version >= 13 else "a")
    assert (body.max_wait, body.min_bytes, body.isolation_level) == (datetime.timedelta(seconds=MAX_WAIT), 1, READ_COMMITTED)
    assert (part.partition, part.fetch_offset, part.partition_max_bytes) == (0, 17, PARTITION_BYTES)
    assert (getattr(part, "current_leader_epoch", 4), getattr(body, "rack_id", "r1")) == (4, "r1")
    assert getattr(body, "session_id", 0) == 0
    assert getattr(body, "session_epoch", 0) == 0
    gives(sent, {A0: batch(17)})
    assert fetching.offsets() == [17]


def test_C08_one_topic_without_an_id_and_the_request_goes_by_name(fetching: Fetching) -> None:
    nameless = Fetching()
    known = nameless.metadata.cluster
    reported = answer(Api.METADATA, 9, **view(topic("b", 1)))
    nameless.metadata.hint(attrs.evolve(known, topics={"a": known.topics["a"]}).updated(reported))
    nameless.reads(A0, B0)
    sent = nameless.fetches()
    assert (sent.version, offsets_of(sent)) == (12, {A0: 0, B0: 0})
    gives(sent, {A0: batch(0), B0: batch(0)})
    assert [tp for tp, _, _ in nameless.values()] == [A0, B0]
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
    assert offsets_of(fetching.fetches()) == {A0: 6}
    assert fetching.offsets() == [3, 4, 5]


def test_C03_an_answer_for_a_position_that_was_left_by_a_seek_is_dropped(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 100)
    gives(late, {A0: batch(0), A1: batch(0)})
    assert fetching.values() == [(A1, 0, b"0")]
    assert offsets_of(fetching.fetches()) == {A0: 100, A1: 1}


def test_C03_a_seek_to_where_it_stands_drops_the_answer_too(fetching: Fetching) -> None:
    fetching.reads(A0)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 0)
    gives(late, {A0: batch(0)})
    assert fetching.values() == []
    assert offsets_of(fetching.fetches()) == {A0: 0}


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
    assert all(tp == A1 for tp, _, _ in fetching.values())
    assert fetching.buffer.bytes == 0


def test_C03_an_error_for_a_position_that_was_left_is_dropped(fetching: Fetching) -> None:
    fetching.reads(A0)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 100)
    gives(late, {A0: OUT_OF_RANGE})
    assert offsets_of(fetching.fetches()) == {A0: 100}


def test_C01_what_is_paused_is_not_fetched_and_C03_keeps_what_is_buffered(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0), A1: batch(0)})
    fetching.fetcher.pause([A0])
    assert fetching.fetcher.paused == {A0}
    assert offsets_of(fetching.fetches()) == {A1: 1}
    assert [tp for tp, _, _ in fetching.values()] == [A1]
    fetching.fetcher.resume([A0])
    assert fetching.values() == [(A0, 0, b"0")]


def test_C01_what_was_paused_is_fetched_again_when_it_is_resumed(fetching: Fetching) -> None:
    fetching.reads(A0)
    fetching.fetcher.pause([A0])
    assert fetching.turn() == []
    assert fetching.fetcher.next_deadline() is None
    fetching.fetcher.resume(iter([A0]))
    assert offsets_of(fetching.fetches()) == {A0: 0}


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
    assert offsets_of(fetching.fetches()) == {A0: 6}
    assert fetching.offsets() == [3, 4, 5]


def test_C04_control_batches_are_never_handed_out_but_move_the_position(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: marker(0, 7, 1)})
    assert offsets_of(fetching.fetches()) == {A0: 1}
    records = collect(fetching.buffer, 10, None)
    assert (len(records), records.positions()) == (0, {A0: 1})


def test_C04_after_the_last_batch_the_position_is_behind_it_even_if_it_held_no_records(fetching: Fetching) -> None:
    fetching.reads(A0)
    empty = encode_batch([], base_offset=1)
    gives(fetching.fetches(), {A0: batch(0) + empty if empty else batch(0)})
    sent = fetching.fetches()
    records = collect(fetching.buffer, 10, None)
    assert offsets_of(sent) == records.positions()


def test_C05_read_committed_leaves_out_aborted_transactions_listed_in_any_order() -> None:
    log = batch(0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) + batch(1) + marker(2, 7, 0) + batch(
        3, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True) + marker(4, 8, 0) + batch(
        5, producer_id=7, producer_epoch=0, base_sequence=1, transactional=True) + marker(6, 7, 1)
    aborted = [{"producer_id": 8, "first_offset": 3}, {"producer_id": 7, "first_offset": 0}]
    for isolation, seen in ((READ_COMMITTED, [1, 5]), (0, [0, 1, 3, 5])):
        for reported in itertools.permutations(aborted):
            fetching = Fetching(isolation=isolation)
            fetching.reads(A0)
            gives(fetching.fetches(), {A0: {"records": log, "aborted_transactions": list(reported)}})
            assert fetching.offsets() == seen
            assert offsets_of(fetching.fetches()) == {A0: 7}


def test_the_high_watermark_is_the_last_one_received(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"records": b"", "high_watermark": 17}})
    assert fetching.fetcher.positions[A0].high_watermark == 17


def test_an_answer_about_partitions_that_were_not_requested_is_ignored(fetching: Fetching) -> None:
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
    assert sum(min(each.body.max_bytes, PARTITION_BYTES * len(offsets_of(each))) for each in sent) <= 4000
    for each in sent:
        gives(each, {tp: encode_values([b"x" * 900], base_offset=0) for tp in offsets_of(each)})
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
    assert offsets_of(fetching.fetches()) == {A0: 1}


def test_C14_a_fetch_that_leaves_out_what_waits_for_the_user_does_not_wait_long(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    sent = fetching.fetches()
    gives(sent, {A0: batch(1)})
    sent = fetching.fetches()
    assert offsets_of(sent) == {A1: 0}
    assert sent.body.max_wait == datetime.timedelta(milliseconds=20)


def test_C14_the_longer_the_user_holds_what_is_buffered_the_longer_the_other_fetches_wait(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    for value in range(2):
        gives(fetching.fetches(), {A0: batch(value)})
    fetching.world.after(3.0)
    gives(fetching.fetches(), {})
    sent = fetching.fetches()
    assert (offsets_of(sent), sent.body.max_wait) == ({A1: 0}, datetime.timedelta(milliseconds=300))
    fetching.values()
    gives(sent, {})
    sent = fetching.fetches()
    assert (offsets_of(sent), sent.body.max_wait) == ({A0: 2, A1: 0}, datetime.timedelta(seconds=MAX_WAIT))


def test_C14_fetches_beside_what_is_buffered_wait_a_quarter_of_the_users_pace(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    for _ in range(9):  # the pace is believed step by step
        for _ in range(2):
            gives(fetching.fetches(), {A0: batch(fetching.fetcher.positions[A0].offset)})
        fetching.world.after(1.0)
        fetching.values()
    for _ in range(2):
        gives(fetching.fetches(), {A0: batch(fetching.fetcher.positions[A0].offset)})
    assert fetching.fetches().body.max_wait == datetime.timedelta(milliseconds=250)


def test_C14_what_is_kept_for_a_paused_partition_does_not_hurry_the_others(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    fetching.fetcher.pause([A0])
    sent = fetching.fetches()
    assert (offsets_of(sent), sent.body.max_wait) == ({A1: 0}, datetime.timedelta(seconds=MAX_WAIT))


def test_C14_what_is_kept_for_paused_partitions_does_not_starve_the_others(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: encode_values([b"x" * 3900])})
    fetching.fetcher.pause([A0])
    assert offsets_of(fetching.fetches()) == {A1: 0}


def test_C14_a_lost_fetch_gives_its_room_back(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    for _ in range(10):
        fetching.fetches().is_lost()
        fetching.world.after(64.0)
    assert fetching.fetches().body.max_bytes == MEMORY


def test_partitions_that_got_nothing_stand_first_in_the_next_request(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0)})
    assert list(offsets_of(fetching.fetches())) == [A1, A0]


def test_an_entry_says_what_it_is(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    entry = fetching.buffer.take()
    assert isinstance(entry, Chunk)
    assert "a-0 0..1" in repr(entry)


def test_C14_a_user_who_takes_data_wakes_the_loop_only_for_what_it_waits_for(fetching: Fetching) -> None:
    """A partition that is in a request already, or may be, wakes no one."""
    rooms: list[str] = []
    fetching.buffer.on_room = lambda: rooms.append("room")
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    sent = fetching.fetches()
    assert fetching.offsets() == [0]
    assert rooms == []
    gives(sent, {A0: batch(1)})
    gives(fetching.fetches(), {A0: batch(2)})
    assert fetching.turn() == []  # two answers deep
    assert fetching.offsets() == [1, 2]
    assert rooms == ["room"]
    assert offsets_of(fetching.fetches()) == {A0: 3}


def test_C14_a_loop_that_lacks_memory_is_woken_by_whatever_makes_room() -> None:
    fetching = Fetching(buffer_memory=2000, max_partition_bytes=1500)
    rooms: list[str] = []
    fetching.buffer.on_room = lambda: rooms.append("room")
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 100)})
    assert fetching.buffer.bytes > 500
    assert fetching.turn() == []
    assert len(fetching.offsets()) == 100
    assert rooms == ["room"]
    assert offsets_of(fetching.fetches()) == {A0: 100}
