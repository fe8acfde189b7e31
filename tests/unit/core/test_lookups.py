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


class Asking:
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

    def ask(self, targets: Mapping[TopicPartition, int], timeout: float | None = None) -> list[Lookup]:
        deadline = None if timeout is None else self.world.now + timeout
        return self.lookups.submit(targets, lambda tp, found, error, _now: self.ended.append((tp, found, error)), deadline=deadline, now=self.world.now)

    def turn(self) -> list[Sent]:
        return self.world.turn(self.lookups)

    def wants_metadata(self) -> bool:
        """Whether a request for metadata comes once its back-off is over."""
        self.world.after(64.0)
        return bool(self.world.turn(self.metadata))


@pytest.fixture
def asking() -> Asking:
    asking = Asking()
    asking.knows()
    return asking


def offsets(sent: Sent, reported: Mapping[TopicPartition, tuple[int, int]], code: int = 0) -> None:
    """Answer (offset, timestamp) for these partitions, in the error *code*."""
    parts = [{"name": tp.topic, "partitions": [
        {"partition_index": tp.partition, "offset": offset, "timestamp": timestamp, "leader_epoch": 4, "error_code": code}]}
        for tp, (offset, timestamp) in reported.items()]
    sent.reply(topics=parts)


def asked(sent: Sent) -> dict[TopicPartition, int]:
    return {TopicPartition(topic.name, part.partition_index): part.timestamp for topic in sent.body.topics for part in topic.partitions}


# --- what is asked of whom -------------------------------------------------------------------------------------------


def test_each_leader_is_asked_once_for_all_its_partitions(asking: Asking) -> None:
    asking.ask({A0: EARLIEST, A1: LATEST, B0: 1234})
    first, second = asking.turn()
    assert {first.node: asked(first), second.node: asked(second)} == {1: {A0: EARLIEST, B0: 1234}, 2: {A1: LATEST}}
    assert {first.request.use, second.request.use} == {Use.CONTROL}
    assert asking.turn() == []


@pytest.mark.parametrize("version", range(SPOKEN[Api.LIST_OFFSETS].low, SPOKEN[Api.LIST_OFFSETS].high + 1))
@pytest.mark.parametrize("isolation", [0, 1])
def test_the_request_says_the_same_in_every_version_and_its_answer_is_understood(version: int, isolation: int) -> None:
    asking = Asking(isolation)
    asking.knows(topic("a", 1, epoch=7))
    asking.world.versions[Api.LIST_OFFSETS] = version
    asking.ask({A0: 1234})
    (sent,) = asking.turn()
    body = read_request(sent.request, version)
    (part,) = body.topics[0].partitions
    assert (body.replica_id, getattr(body, "isolation_level", isolation)) == (-1, isolation)
    assert (part.timestamp, getattr(part, "current_leader_epoch", 7)) == (1234, 7)
    offsets(sent, {A0: (55, 1240)})
    assert asking.ended == [(A0, OffsetAndTimestamp(55, 1240, 4 if version >= 4 else None), None)]


def test_a_partition_is_named_once_in_a_request_and_asked_for_another_time_in_the_next(asking: Asking) -> None:
    asking.ask({A0: EARLIEST})
    asking.ask({A0: LATEST})
    asking.ask({A0: EARLIEST})
    first, second = asking.turn()
    assert (asked(first), asked(second)) == ({A0: EARLIEST}, {A0: LATEST})
    offsets(first, {A0: (0, -1)})
    offsets(second, {A0: (9, -1)})
    assert sorted(found.offset for _, found, _ in asking.ended if found) == [0, 0, 9]


def test_without_a_record_that_late_the_answer_is_None(asking: Asking) -> None:
    asking.ask({A0: 2**60})
    (sent,) = asking.turn()
    offsets(sent, {A0: (-1, -1)})
    assert asking.ended == [(A0, None, None)]


def test_a_topic_that_is_not_known_is_looked_up_first() -> None:
    asking = Asking()
    asking.ask({A0: EARLIEST})
    assert asking.turn() == []
    (metadata,) = asking.world.turn(asking.metadata)
    assert [each.name for each in metadata.body.topics] == ["a"]
    metadata.reply(**view(topic("a", 3)))
    (sent,) = asking.turn()
    assert sent.node == 3


def test_while_the_leader_is_not_ready_nothing_is_sent_and_nothing_spins(asking: Asking) -> None:
    asking.world.nodes.discard(1)
    asking.ask({A0: EARLIEST, A1: EARLIEST})
    (sent,) = asking.turn()
    assert sent.node == 2
    assert asking.lookups.next_deadline() is None
    assert 1 in asking.world.wished  # the links connect to what is wished for
    asking.world.nodes.add(1)
    assert [each.node for each in asking.turn()] == [1]


# --- what becomes of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [*REFRESHED, *RETRIED])
def test_C13_an_error_that_may_pass_is_tried_again_ever_later_at_the_leader_of_then(asking: Asking, code: int) -> None:
    asking.ask({A0: EARLIEST})
    for pause in (1, 2, 4):
        (sent,) = asking.turn()
        offsets(sent, {A0: (-1, -1)}, code)
        assert asking.turn() == []
        assert asking.lookups.next_deadline() == asking.world.now + pause
        asking.world.after(pause)
    asking.knows(topic("a", 3, 2, epoch=1))
    (sent,) = asking.turn()
    assert sent.node == 3
    offsets(sent, {A0: (5, -1)})
    assert [end[1] for end in asking.ended] == [OffsetAndTimestamp(5, -1, 4)]


@pytest.mark.parametrize("code", REFRESHED)
def test_C13_an_error_that_says_the_leader_moved_refreshes_metadata(asking: Asking, code: int) -> None:
    asking.world.turn(asking.metadata)[0].reply(**view(topic("a", 1, 2), topic("b", 1)))
    asking.ask({A0: EARLIEST})
    asking.world.turn(asking.metadata)[0].reply(**view(topic("a", 1, 2)))
    (sent,) = asking.turn()
    offsets(sent, {A0: (-1, -1)}, code)
    assert asking.wants_metadata()


@pytest.mark.parametrize("code", RAISED)
def test_C13_an_error_that_waiting_cannot_cure_ends_the_question_and_no_other(asking: Asking, code: int) -> None:
    asking.ask({A0: EARLIEST, B0: EARLIEST})
    (sent,) = asking.turn()
    sent.reply(topics=[
        {"name": "a", "partitions": [{"partition_index": 0, "error_code": code}]},
        {"name": "b", "partitions": [{"partition_index": 0, "offset": 3, "timestamp": -1, "error_code": 0}]}])
    ends = {tp: (found, error) for tp, found, error in asking.ended}
    assert isinstance(ends[A0][1], type(error_for(code)))
    assert str(A0) in str(ends[A0][1])
    assert ends[B0] == (OffsetAndTimestamp(3, -1, None), None)
    assert asking.turn() == []


def test_M03_an_error_of_the_topic_that_waiting_cannot_cure_ends_the_question() -> None:
    asking = Asking()
    asking.knows(topic("a", error=29))
    asking.ask({A0: EARLIEST})
    assert asking.turn() == []
    ((_, _, error),) = asking.ended
    assert isinstance(error, TopicAuthorizationError)


def test_a_partition_that_the_answer_leaves_out_is_asked_for_again(asking: Asking) -> None:
    asking.ask({A0: EARLIEST, B0: EARLIEST})
    (sent,) = asking.turn()
    offsets(sent, {A0: (1, -1)})
    asking.world.after(1.0)
    (again,) = asking.turn()
    assert asked(again) == {B0: EARLIEST}


@pytest.mark.parametrize("how", ["lost", "not sent"])
def test_a_request_without_an_answer_is_repeated_after_a_pause(asking: Asking, how: str) -> None:
    asking.ask({A0: EARLIEST})
    (sent,) = asking.turn()
    sent.is_lost() if how == "lost" else sent.is_not_sent()
    assert asking.turn() == []
    asking.world.after(1.0)
    assert [asked(each) for each in asking.turn()] == [{A0: EARLIEST}]


def test_M15_a_broker_without_a_common_version_ends_the_question(asking: Asking) -> None:
    asking.ask({A0: EARLIEST})
    (sent,) = asking.turn()
    cause = UnsupportedVersionError("too old")
    sent.is_not_sent(cause)
    assert asking.ended == [(A0, None, cause)]


@pytest.mark.parametrize("known", [True, False])
def test_a_question_ends_at_its_deadline_wherever_it_stands_and_names_the_cause(known: bool) -> None:
    asking = Asking()
    if known:
        asking.knows()
    asking.ask({A0: EARLIEST}, timeout=10.0)
    sent = asking.turn()
    assert len(sent) == known
    assert asking.lookups.next_deadline() == asking.world.now + 10
    asking.world.after(10.0)
    asking.turn()
    ((tp, _, error),) = asking.ended
    assert tp == A0
    assert isinstance(error, KafkaTimeoutError)
    assert "a-0" in str(error)
    for each in sent:
        offsets(each, {A0: (5, -1)})
    assert len(asking.ended) == 1


def test_the_last_error_is_part_of_the_time_out(asking: Asking) -> None:
    asking.ask({A0: EARLIEST}, timeout=1.0)
    (sent,) = asking.turn()
    offsets(sent, {A0: (-1, -1)}, 6)
    asking.world.after(1.0)
    asking.turn()
    assert "NOT_LEADER_OR_FOLLOWER" in str(asking.ended[0][2])


def test_a_cancelled_lookup_gets_no_answer(asking: Asking) -> None:
    (lookup,) = asking.ask({A0: EARLIEST}, timeout=5.0)
    (sent,) = asking.turn()
    asking.lookups.cancel(lookup)
    offsets(sent, {A0: (5, -1)})
    asking.world.after(10.0)
    assert asking.turn() == []
    assert asking.ended == []
    assert asking.lookups.next_deadline() is None


def test_a_pause_that_is_over_while_the_leader_is_not_ready_leaves_no_deadline_behind(asking: Asking) -> None:
    asking.ask({A0: EARLIEST})
    (sent,) = asking.turn()
    sent.is_lost()
    asking.world.nodes.discard(1)
    asking.world.after(1.0)
    assert asking.turn() == []
    assert asking.lookups.next_deadline() is None


# --- under any events ------------------------------------------------------------------------------------------------

PLACES = st.sampled_from([A0, A1, B0])


class AnyEvents(RuleBasedStateMachine):
    """Whatever happens in whatever order: no spinning, and each question ends exactly once, in the end and in time."""

    def __init__(self) -> None:
        super().__init__()
        self.asking = Asking()
        self.epoch = 0
        self.open: dict[int, tuple[Lookup, float | None]] = {}
        self.ends: dict[int, int] = {}

    @rule(tp=PLACES, timestamp=st.sampled_from([EARLIEST, LATEST, 5]), timeout=st.none() | st.sampled_from([0.0, 1.0, 20.0]))
    def ask(self, tp: TopicPartition, timestamp: int, timeout: float | None) -> None:
        number = len(self.ends)
        self.ends[number] = 0
        deadline = None if timeout is None else self.asking.world.now + timeout

        def found(*end: Any) -> None:
            self.ends[number] += 1
            self.open.pop(number, None)

        (lookup,) = self.asking.lookups.submit({tp: timestamp}, found, deadline=deadline, now=self.asking.world.now)
        self.open[number] = (lookup, deadline)

    @precondition(lambda self: self.open)
    @rule()
    def cancel(self) -> None:
        number, (lookup, _) = next(iter(self.open.items()))
        self.asking.lookups.cancel(lookup)
        self.ends[number] += 1
        del self.open[number]

    @rule(leaders=st.tuples(*[st.sampled_from([-1, 1, 2])] * 3), error=st.sampled_from([0, 0, 0, 3, 29]))
    def leaders_move(self, leaders: tuple[int, int, int], error: int) -> None:
        self.epoch += 1
        a = topic("a", *leaders[:2], epoch=self.epoch)
        self.asking.knows(a, topic("b", error=error) if error else topic("b", leaders[2], epoch=self.epoch))

    @rule(nodes=st.sets(st.sampled_from([1, 2])))
    def nodes_become_ready_or_not(self, nodes: set[int]) -> None:
        self.asking.world.nodes = nodes

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.asking.world.after(seconds)

    @precondition(lambda self: self.asking.world.in_flight)
    @rule(data=st.data(), codes=st.lists(st.sampled_from([0, 0, 6, -1, 29, None]), min_size=3, max_size=3))
    def answer(self, data: st.DataObject, codes: list[int | None]) -> None:
        sent = data.draw(st.sampled_from(self.asking.world.in_flight))
        reported = [{"name": tp.topic, "partitions": [{"partition_index": tp.partition, "offset": 5, "timestamp": -1, "error_code": code}]}
                for tp, code in zip(asked(sent), codes, strict=False) if code is not None]
        sent.reply(topics=reported)

    @precondition(lambda self: self.asking.world.in_flight)
    @rule(lost=st.booleans())
    def fail(self, lost: bool) -> None:
        sent = self.asking.world.in_flight[0]
        sent.is_lost() if lost else sent.is_not_sent()

    @invariant()
    def nothing_is_late_or_reported_twice(self) -> None:
        self.asking.turn()
        assert all(ends <= 1 for ends in self.ends.values())
        assert all(deadline is None or deadline > self.asking.world.now for _, deadline in self.open.values())

    def teardown(self) -> None:
        """Once nothing fails any more, every question ends."""
        self.asking.world.nodes = {1, 2}
        self.asking.knows(topic("a", 1, 2, epoch=1000), topic("b", 1, epoch=1000))
        for _ in range(10):
            self.asking.turn()
            for sent in list(self.asking.world.in_flight):
                offsets(sent, dict.fromkeys(asked(sent), (5, -1)))
            self.asking.world.after(64.0)
        assert all(ends == 1 for ends in self.ends.values())
        assert self.asking.lookups.next_deadline() is None


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
