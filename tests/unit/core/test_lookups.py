"""Offsets by time: one question per partition and request, retried within its time, each ended once (C13)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.fetching.lookups import EARLIEST, LATEST, Lookup, OffsetLookups
from pyclient.core.manager import Use
from pyclient.errors import (
    KafkaError, KafkaTimeoutError, TopicAuthorizationError, UnsupportedVersionError, error_for,
)
from pyclient.records import OffsetAndTimestamp, TopicPartition
from tests.unit.core.world import Sent, World, answer, make_metadata, DOUBLING, read_request, topic, view

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REFRESHED = [6, 9, 56, 74, 3, 78]  # leader moved, replica, storage, fenced epoch, unknown topic, offset not available
RETRIED = [75, -1, 2]  # unknown leader epoch, unknown server error, corrupt message
RAISED = [29, 43]  # topic forbidden, message format


class Harness:
    """Look-ups in their world; topic a has leaders 1 and 2, topic b has 1."""

    def __init__(self, isolation: int = 0) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.lookups = OffsetLookups(self.metadata, isolation=isolation, request_timeout=30.0, backoff=DOUBLING)
        self.ended: list[tuple[TopicPartition, OffsetAndTimestamp | None, KafkaError | None]] = []

    def knows(self, *topics: dict[str, object]) -> None:
        """Metadata is this now."""
        reported = answer(Api.METADATA, 13, **view(*(topics or (topic("a", 1, 2), topic("b", 1)))))
        self.metadata.hint(self.metadata.cluster.updated(reported))

    def look_up(self, targets: Mapping[TopicPartition, int], timeout: float | None = None) -> list[Lookup]:
        deadline = None if timeout is None else self.world.now + timeout
        return self.lookups.submit(targets, lambda tp, found, error, _now: self.ended.append((tp, found, error)), deadline=deadline, now=self.world.now)

    def turn(self) -> list[Sent]:
        return self.world.turn(self.lookups)

    def wants_metadata(self) -> bool:
        """Whether a request for metadata comes once its back-off is over."""
        self.world.after(64.0)
        return bool(self.world.turn(self.metadata))


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.knows()
    return harness


def offsets(sent: Sent, reported: Mapping[TopicPartition, tuple[int, int]], code: int = 0) -> None:
    """Answer (offset, timestamp) for these partitions, in the error *code*."""
    parts = [{"name": tp.topic, "partitions": [
        {"partition_index": tp.partition, "offset": offset, "timestamp": timestamp, "leader_epoch": 4, "error_code": code}]}
        for tp, (offset, timestamp) in reported.items()]
    sent.reply(topics=parts)


def timestamps(sent: Sent) -> dict[TopicPartition, int]:
    return {TopicPartition(topic.name, part.partition_index): part.timestamp for topic in sent.body.topics for part in topic.partitions}


# --- requests -------------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_request_for_all_its_partitions(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST, A1: LATEST, B0: 1234})
    first, second = harness.turn()
    assert {first.node: timestamps(first), second.node: timestamps(second)} == {1: {A0: EARLIEST, B0: 1234}, 2: {A1: LATEST}}
    assert {first.request.use, second.request.use} == {Use.CONTROL}
    assert harness.turn() == []


@pytest.mark.parametrize("version", range(SPOKEN[Api.LIST_OFFSETS].low, SPOKEN[Api.LIST_OFFSETS].high + 1))
@pytest.mark.parametrize("isolation", [0, 1])
def test_the_request_says_the_same_in_every_version_and_its_answer_is_understood(version: int, isolation: int) -> None:
    harness = Harness(isolation)
    harness.knows(topic("a", 1, epoch=7))
    harness.world.versions[Api.LIST_OFFSETS] = version
    harness.look_up({A0: 1234})
    (sent,) = harness.turn()
    body = read_request(sent.request, version)
    (part,) = body.topics[0].partitions
    assert (body.replica_id, getattr(body, "isolation_level", isolation)) == (-1, isolation)
    assert (part.timestamp, getattr(part, "current_leader_epoch", 7)) == (1234, 7)
    offsets(sent, {A0: (55, 1240)})
    assert harness.ended == [(A0, OffsetAndTimestamp(55, 1240, 4 if version >= 4 else None), None)]


def test_a_partition_is_named_once_in_a_request_and_its_second_lookup_in_the_next(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST})
    harness.look_up({A0: LATEST})
    harness.look_up({A0: EARLIEST})
    first, second = harness.turn()
    assert (timestamps(first), timestamps(second)) == ({A0: EARLIEST}, {A0: LATEST})
    offsets(first, {A0: (0, -1)})
    offsets(second, {A0: (9, -1)})
    assert sorted(found.offset for _, found, _ in harness.ended if found) == [0, 0, 9]


def test_without_a_record_that_late_the_answer_is_None(harness: Harness) -> None:
    harness.look_up({A0: 2**60})
    (sent,) = harness.turn()
    offsets(sent, {A0: (-1, -1)})
    assert harness.ended == [(A0, None, None)]


def test_a_topic_that_is_not_known_is_looked_up_first() -> None:
    harness = Harness()
    harness.look_up({A0: EARLIEST})
    assert harness.turn() == []
    (metadata,) = harness.world.turn(harness.metadata)
    assert [each.name for each in metadata.body.topics] == ["a"]
    metadata.reply(**view(topic("a", 3)))
    (sent,) = harness.turn()
    assert sent.node == 3


def test_while_the_leader_is_not_ready_nothing_is_sent_and_nothing_spins(harness: Harness) -> None:
    harness.world.nodes.discard(1)
    harness.look_up({A0: EARLIEST, A1: EARLIEST})
    (sent,) = harness.turn()
    assert sent.node == 2
    assert harness.lookups.next_deadline() is None
    assert 1 in harness.world.wished  # the links connect to what is wished for
    harness.world.nodes.add(1)
    assert [each.node for each in harness.turn()] == [1]


# --- what becomes of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [*REFRESHED, *RETRIED])
def test_C13_an_error_that_may_pass_is_tried_again_ever_later_at_the_leader_of_then(harness: Harness, code: int) -> None:
    harness.look_up({A0: EARLIEST})
    for pause in (1, 2, 4):
        (sent,) = harness.turn()
        offsets(sent, {A0: (-1, -1)}, code)
        assert harness.turn() == []
        assert harness.lookups.next_deadline() == harness.world.now + pause
        harness.world.after(pause)
    harness.knows(topic("a", 3, 2, epoch=1))
    (sent,) = harness.turn()
    assert sent.node == 3
    offsets(sent, {A0: (5, -1)})
    assert [end[1] for end in harness.ended] == [OffsetAndTimestamp(5, -1, 4)]


@pytest.mark.parametrize("code", REFRESHED)
def test_C13_an_error_that_says_the_leader_moved_refreshes_metadata(harness: Harness, code: int) -> None:
    harness.world.turn(harness.metadata)[0].reply(**view(topic("a", 1, 2), topic("b", 1)))
    harness.look_up({A0: EARLIEST})
    harness.world.turn(harness.metadata)[0].reply(**view(topic("a", 1, 2)))
    (sent,) = harness.turn()
    offsets(sent, {A0: (-1, -1)}, code)
    assert harness.wants_metadata()


@pytest.mark.parametrize("code", RAISED)
def test_C13_an_error_that_waiting_cannot_cure_ends_the_lookup_and_no_other(harness: Harness, code: int) -> None:
    harness.look_up({A0: EARLIEST, B0: EARLIEST})
    (sent,) = harness.turn()
    sent.reply(topics=[
        {"name": "a", "partitions": [{"partition_index": 0, "error_code": code}]},
        {"name": "b", "partitions": [{"partition_index": 0, "offset": 3, "timestamp": -1, "error_code": 0}]}])
    ends = {tp: (found, error) for tp, found, error in harness.ended}
    assert isinstance(ends[A0][1], type(error_for(code)))
    assert str(A0) in str(ends[A0][1])
    assert ends[B0] == (OffsetAndTimestamp(3, -1, None), None)
    assert harness.turn() == []


def test_M03_an_error_of_the_topic_that_waiting_cannot_cure_ends_the_lookup() -> None:
    harness = Harness()
    harness.knows(topic("a", error=29))
    harness.look_up({A0: EARLIEST})
    assert harness.turn() == []
    ((_, _, error),) = harness.ended
    assert isinstance(error, TopicAuthorizationError)


def test_a_partition_missing_in_the_response_is_requested_again(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST, B0: EARLIEST})
    (sent,) = harness.turn()
    offsets(sent, {A0: (1, -1)})
    harness.world.after(1.0)
    (again,) = harness.turn()
    assert timestamps(again) == {B0: EARLIEST}


@pytest.mark.parametrize("how", ["lost", "not sent"])
def test_a_request_without_an_answer_is_repeated_after_a_pause(harness: Harness, how: str) -> None:
    harness.look_up({A0: EARLIEST})
    (sent,) = harness.turn()
    sent.is_lost() if how == "lost" else sent.is_not_sent()
    assert harness.turn() == []
    harness.world.after(1.0)
    assert [timestamps(each) for each in harness.turn()] == [{A0: EARLIEST}]


def test_M15_a_broker_without_a_common_version_ends_the_lookup(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST})
    (sent,) = harness.turn()
    cause = UnsupportedVersionError("too old")
    sent.is_not_sent(cause)
    assert harness.ended == [(A0, None, cause)]


@pytest.mark.parametrize("known", [True, False])
def test_a_question_ends_at_its_deadline_wherever_it_stands_and_names_the_cause(known: bool) -> None:
    harness = Harness()
    if known:
        harness.knows()
    harness.look_up({A0: EARLIEST}, timeout=10.0)
    sent = harness.turn()
    assert len(sent) == known
    assert harness.lookups.next_deadline() == harness.world.now + 10
    harness.world.after(10.0)
    harness.turn()
    ((tp, _, error),) = harness.ended
    assert tp == A0
    assert isinstance(error, KafkaTimeoutError)
    assert "a-0" in str(error)
    for each in sent:
        offsets(each, {A0: (5, -1)})
    assert len(harness.ended) == 1


def test_the_last_error_is_part_of_the_time_out(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST}, timeout=1.0)
    (sent,) = harness.turn()
    offsets(sent, {A0: (-1, -1)}, 6)
    harness.world.after(1.0)
    harness.turn()
    assert "NOT_LEADER_OR_FOLLOWER" in str(harness.ended[0][2])


def test_a_cancelled_lookup_gets_no_answer(harness: Harness) -> None:
    (lookup,) = harness.look_up({A0: EARLIEST}, timeout=5.0)
    (sent,) = harness.turn()
    harness.lookups.cancel(lookup)
    offsets(sent, {A0: (5, -1)})
    harness.world.after(10.0)
    assert harness.turn() == []
    assert harness.ended == []
    assert harness.lookups.next_deadline() is None


def test_a_pause_that_is_over_while_the_leader_is_not_ready_leaves_no_deadline_behind(harness: Harness) -> None:
    harness.look_up({A0: EARLIEST})
    (sent,) = harness.turn()
    sent.is_lost()
    harness.world.nodes.discard(1)
    harness.world.after(1.0)
    assert harness.turn() == []
    assert harness.lookups.next_deadline() is None


# --- under any events ------------------------------------------------------------------------------------------------

PLACES = st.sampled_from([A0, A1, B0])


class AnyEvents(RuleBasedStateMachine):
    """Whatever happens in whatever order: no spinning, and each question ends exactly once, in the end and in time."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.epoch = 0
        self.open: dict[int, tuple[Lookup, float | None]] = {}
        self.ends: dict[int, int] = {}

    @rule(tp=PLACES, timestamp=st.sampled_from([EARLIEST, LATEST, 5]), timeout=st.none() | st.sampled_from([0.0, 1.0, 20.0]))
    def ask(self, tp: TopicPartition, timestamp: int, timeout: float | None) -> None:
        number = len(self.ends)
        self.ends[number] = 0
        deadline = None if timeout is None else self.harness.world.now + timeout

        def found(*end: Any) -> None:
            self.ends[number] += 1
            self.open.pop(number, None)

        (lookup,) = self.harness.lookups.submit({tp: timestamp}, found, deadline=deadline, now=self.harness.world.now)
        self.open[number] = (lookup, deadline)

    @precondition(lambda self: self.open)
    @rule()
    def cancel(self) -> None:
        number, (lookup, _) = next(iter(self.open.items()))
        self.harness.lookups.cancel(lookup)
        self.ends[number] += 1
        del self.open[number]

    @rule(leaders=st.tuples(*[st.sampled_from([-1, 1, 2])] * 3), error=st.sampled_from([0, 0, 0, 3, 29]))
    def leaders_move(self, leaders: tuple[int, int, int], error: int) -> None:
        self.epoch += 1
        a = topic("a", *leaders[:2], epoch=self.epoch)
        self.harness.knows(a, topic("b", error=error) if error else topic("b", leaders[2], epoch=self.epoch))

    @rule(nodes=st.sets(st.sampled_from([1, 2])))
    def nodes_become_ready_or_not(self, nodes: set[int]) -> None:
        self.harness.world.nodes = nodes

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.harness.world.after(seconds)

    @precondition(lambda self: self.harness.world.in_flight)
    @rule(data=st.data(), codes=st.lists(st.sampled_from([0, 0, 6, -1, 29, None]), min_size=3, max_size=3))
    def answer(self, data: st.DataObject, codes: list[int | None]) -> None:
        sent = data.draw(st.sampled_from(self.harness.world.in_flight))
        reported = [{"name": tp.topic, "partitions": [{"partition_index": tp.partition, "offset": 5, "timestamp": -1, "error_code": code}]}
                for tp, code in zip(timestamps(sent), codes, strict=False) if code is not None]
        sent.reply(topics=reported)

    @precondition(lambda self: self.harness.world.in_flight)
    @rule(lost=st.booleans())
    def fail(self, lost: bool) -> None:
        sent = self.harness.world.in_flight[0]
        sent.is_lost() if lost else sent.is_not_sent()

    @invariant()
    def nothing_is_late_or_reported_twice(self) -> None:
        self.harness.turn()
        assert all(ends <= 1 for ends in self.ends.values())
        assert all(deadline is None or deadline > self.harness.world.now for _, deadline in self.open.values())

    def teardown(self) -> None:
        """Once nothing fails any more, every question ends."""
        self.harness.world.nodes = {1, 2}
        self.harness.knows(topic("a", 1, 2, epoch=1000), topic("b", 1, epoch=1000))
        for _ in range(10):
            self.harness.turn()
            for sent in list(self.harness.world.in_flight):
                offsets(sent, dict.fromkeys(timestamps(sent), (5, -1)))
            self.harness.world.after(64.0)
        assert all(ends == 1 for ends in self.ends.values())
        assert self.harness.lookups.next_deadline() is None


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
