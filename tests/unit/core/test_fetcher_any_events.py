"""The fetcher through any sequence of events: nothing is missed, doubled, starved, or asked in a loop (C01, C03, C14)."""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.fetched import collect
from pyclient.errors import (
    RecordTooLargeError,
)
from pyclient.records import TopicPartition
from tests.unit.core.fetching import (
    A0, A1, A2, B0, NOT_LEADER, Fetching, asks, batch, gives,
)
from tests.unit.core.world import topic


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
