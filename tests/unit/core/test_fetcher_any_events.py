"""The fetcher under any sequence of events: no loss, duplicate, starvation or busy loop (C01–C03, C07, C09, C14)."""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.collect import collect
from pyclient.errors import (
    RecordTooLargeError,
)
from pyclient.records import TopicPartition
from tests.unit.core.fetch_sessions import Answer, Model
from tests.unit.core.fetching import A0, A1, A2, B0, NOT_LEADER, OUT_OF_RANGE, Fetching, batch, gives
from tests.unit.core.world import Sent, topic, topic_id


# --- under any events ------------------------------------------------------------------------------------------------

PLACES = st.sampled_from([A0, A1, A2, B0])
ALL = (A0, A1, A2, B0)


class AnyEvents(RuleBasedStateMachine):
    """One record at each offset: under any events the user reads each from his position on once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.fetching = Fetching(max_bytes=1500, buffer_memory=1500, max_partition_bytes=400)
        self.next: dict[TopicPartition, int] = {}
        self.epoch = 0
        self.brokers = {node: Model() for node in (1, 2, 3)}
        self.heard: dict[Sent, Answer] = {}  # what brokers make of the requests under way

    # the user

    @rule(partitions=st.sets(PLACES))
    def assign(self, partitions: set[TopicPartition]) -> None:
        fresh = [tp for tp in partitions if tp not in self.next]
        self.fetching.fetcher.assign(partitions, self.fetching.world.now)
        for tp in fresh:
            self.fetching.fetcher.seek(tp, 0)
        self.next = {tp: self.next.get(tp, 0) for tp in partitions}

    @precondition(lambda self: self.next)
    @rule(data=st.data(), offset=st.integers(0, 50))
    def seek(self, data: st.DataObject, offset: int) -> None:
        tp = data.draw(st.sampled_from(sorted(self.next)))
        self.fetching.fetcher.seek(tp, offset)
        self.next[tp] = offset

    @precondition(lambda self: self.next)
    @rule(data=st.data(), paused=st.booleans())
    def pause_or_resume(self, data: st.DataObject, paused: bool) -> None:
        tp = data.draw(st.sampled_from(sorted(self.next)))
        (self.fetching.fetcher.pause if paused else self.fetching.fetcher.resume)([tp])

    @rule(limit=st.integers(1, 10))
    def poll(self, limit: int) -> None:
        paused = self.fetching.fetcher.paused
        try:
            records = collect(self.fetching.buffer, limit, None)
        except RecordTooLargeError:
            return
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            assert tp not in paused
            assert record.offset == self.next[tp], f"{tp} is at {self.next[tp]}"
            self.next[tp] += 1

    # the cluster

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(data=st.data(), counts=st.lists(st.sampled_from([0, 1, 3, None, "error", "cut", 1, 2, 3]), min_size=4, max_size=4))
    def answer(self, data: st.DataObject, counts: list[Any]) -> None:
        sent = data.draw(st.sampled_from(self.fetching.world.in_flight))
        reported: dict[TopicPartition, bytes | int | dict[str, object]] = {}
        for (tp, offset), count in zip(self.reads(sent).items(), counts, strict=False):
            if count == "error":
                reported[tp] = NOT_LEADER
            elif count == "cut":
                reported[tp] = batch(offset)[:-1]
            elif count is not None:
                reported[tp] = batch(offset, count) if count else b""
        self.report(sent, reported)

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(data=st.data(), replica=st.sampled_from([1, 2, 3, 9]))
    def name_a_nearer_replica(self, data: st.DataObject, replica: int) -> None:
        sent = data.draw(st.sampled_from(self.fetching.world.in_flight))
        self.report(sent, {tp: {"preferred_read_replica": replica} for tp in self.reads(sent)})

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(data=st.data())
    def a_follower_has_not_got_it(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.fetching.world.in_flight))
        leader = self.fetching.metadata.cluster.leader
        self.report(sent, {tp: OUT_OF_RANGE for tp in self.reads(sent) if leader(tp) != sent.node})

    @precondition(lambda self: self.fetching.world.in_flight)
    @rule(lost=st.booleans())
    def fail(self, lost: bool) -> None:
        sent = self.fetching.world.in_flight[0]
        self.heard.pop(sent)
        sent.is_lost() if lost else sent.is_not_sent()

    @rule(node=st.sampled_from([1, 2, 3]), room=st.booleans())
    def a_broker_forgets_its_sessions(self, node: int, room: bool) -> None:
        self.brokers[node].restart()
        self.brokers[node].room = room

    def reads(self, sent: Sent) -> dict[TopicPartition, int]:
        """Partition → offset of what a request makes a broker read."""
        names = {topic_id(name): name for name in "ab"}
        return {TopicPartition(names[key], number): want.offset for (key, number), want in self.heard[sent].reads.items()}  # type: ignore[index]

    def report(self, sent: Sent, reported: dict[TopicPartition, Any]) -> None:
        answer = self.heard.pop(sent)
        gives(sent, {} if answer.code else reported, session_id=answer.session, error_code=answer.code)

    def hear(self) -> None:
        """Requests reach their brokers."""
        for sent in self.fetching.world.in_flight:
            if sent not in self.heard:
                self.heard[sent] = self.brokers[sent.node].answer(sent.body, sent.version)

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
        self.hear()
        in_flight = [sent.node for sent in fetching.world.in_flight]
        assert len(in_flight) == len(set(in_flight))
        requested = [tp for sent in fetching.world.in_flight for tp in self.reads(sent)]
        assert len(requested) == len(set(requested))
        assert all(fetching.buffer.count(tp) <= 3 for tp in ALL)

    @invariant()
    def a_broker_reads_what_is_to_be_read_of_it(self) -> None:
        in_flight = self.fetching.world.in_flight
        if not any(self.heard[sent].code for sent in in_flight):
            assert {tp for sent in in_flight for tp in self.reads(sent)} == set(self.fetching.fetcher.in_flight)

    def teardown(self) -> None:
        """Once nothing fails any more, every partition is read on."""
        fetching = self.fetching
        fetching.world.nodes = {1, 2, 3}
        fetching.knows(topic("a", 1, 2, 3, epoch=1000), topic("b", 1, epoch=1000))
        fetching.fetcher.resume(self.next)
        goal = {tp: offset + 3 for tp, offset in self.next.items()}
        for _ in range(30):
            fetching.world.after(64.0)
            fetching.turn()
            self.hear()
            for sent in list(fetching.world.in_flight):
                self.report(sent, {tp: batch(offset) for tp, offset in self.reads(sent).items()})
            fetching.turn()
            self.hear()
            for _ in range(5):
                self.poll(1000)
        assert all(self.next[tp] >= offset for tp, offset in goal.items())


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
