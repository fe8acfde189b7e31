"""Members under the consumer protocol with the fake cluster's coordinator: no partition ever has two readers, and
finally each has one (N01 to N10).
"""
from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

import pytest
from tenacity import wait_exponential

from pyclient.codec.apis import Api
from pyclient.core.backoff import WaitPolicy
from pyclient.core.calls import Calls
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.consumer_member import ConsumerMember, State
from pyclient.core.group.coordinator import GroupOptions
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Reply
from pyclient.records import SubscriptionPattern, TopicPartition
from pyclient.testing.fake.model.reconciliation import Place
from tests.unit.core.world import Sent, World, make_metadata
from tests.unit.testing.fake.consumer_members import ConsumerMembers

REBALANCE_S = 300.0
SOON = WaitPolicy(wait_exponential(multiplier=0.1, max=1.0))
"""Like the default: with longer pauses a session may time out by chance."""
SUBSCRIPTIONS = (
    Subscription(frozenset({"t"})), Subscription(frozenset({"t", "u"})), Subscription(pattern=re.compile("[tu]+")),
    Subscription(brokers_pattern=SubscriptionPattern("[tu].*")))


class SimulatedConsumer:
    """One consumer: its member with calls and metadata, and a user that polls now and then."""

    def __init__(self, members: ConsumerMembers, name: int, subscription: Subscription, instance: str | None = None) -> None:
        self.members = members
        self.instance = instance
        self.world = World({1, 2}, now=members.loop.time())
        self.metadata = make_metadata()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=SOON)
        options = GroupOptions(group_id="g", instance_id=instance, session_timeout=45.0, heartbeat_interval=5.0, rebalance_timeout=REBALANCE_S,
                               request_timeout=30.0)
        self.group = ConsumerMember(options, self.calls, self.metadata, random=Random(name), backoff=SOON, notify_user=lambda: None)
        self.group.subscribe(subscription)
        self.begun: Change | None = None
        self.reads: set[TopicPartition] = set()

    # ---- the user -----------------------------------------------------------------------------------------------

    def polls(self, *, raises: bool = False) -> None:
        """One call of poll, which begins or completes one change."""
        if self.begun is None:
            self.group.polled_at = self.members.loop.time()
            if self.group.wants_poll:
                self.group.polled()
            self.begins()
        else:
            self.ends(raises)

    def begins(self) -> None:
        change = self.group.change
        if change is not None and self.group.begin(change):
            self.begun = change
            if change.kind is ChangeKind.ASSIGNED:
                assert self.reads.isdisjoint(change.partitions)
                self.reads |= set(change.partitions)
            else:
                assert self.reads >= set(change.partitions)

    def ends(self, raises: bool) -> None:
        change, self.begun = self.begun, None
        assert change is not None
        if raises or change.kind is not ChangeKind.ASSIGNED:
            self.reads -= set(change.partitions)
        self.group.complete(change, ValueError("the listener's") if raises else None)

    # ---- the network --------------------------------------------------------------------------------------------

    def turn(self, *, loses: float = 0.0, chance: Random | None = None) -> None:
        """Send all requests that are due, and get the cluster's responses, unless a request or a response is lost."""
        self.world.now = self.members.loop.time()
        while sent := self.world.turn(self.metadata, self.group, self.calls):
            for each in sent:
                self._carry(each, loses, chance or Random(0))

    def _carry(self, sent: Sent, loses: float, chance: Random) -> None:
        if chance.random() < loses / 2:
            sent.is_lost()
            return
        assert sent.request.fields is not None
        answer: Any = self.members.call(sent.api, sent.version, sent.request.fields(sent.version), sent.node)
        if chance.random() < loses / 2:
            sent.is_lost()
        else:
            sent.end(Reply(sent.version, answer))

    # ---- what it reads -------------------------------------------------------------------------------------------

    def partitions(self) -> set[Place]:
        """The partitions it reads, by topic id. A fenced member reads nothing, though its user may not know yet."""
        return {(self.members.kafka.topics[tp.topic].id, tp.partition) for tp in self.reads} if self.group.identity.joined else set()


class SimulatedGroup(ConsumerMembers):
    """Several consumers of one group, and what must hold for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[SimulatedConsumer] = []
        self.made = 0
        self.do(lambda: self.kafka.create_topic("u", replicas=[[1, 2]] * 3))

    def adds(self, subscription: Subscription = SUBSCRIPTIONS[0], instance: str | None = None) -> SimulatedConsumer:
        self.made += 1
        self.clients.append(SimulatedConsumer(self, self.made, subscription, instance))
        return self.clients[-1]

    def removes(self, consumer: SimulatedConsumer) -> None:
        """Like close: wait for the response."""
        self.clients.remove(consumer)
        ended: list[object] = []
        consumer.group.leave("closed", lambda result, error: ended.append(error), None)
        while not ended:
            consumer.turn()
            self.advance(0.1)

    def check(self) -> None:
        """No partition has two readers, and each reader is the owner at the coordinator."""
        readers = Counter(each for consumer in self.clients for each in consumer.partitions())
        assert all(count == 1 for count in readers.values()), readers
        owners = self.consumers.owners() if readers else {}
        for consumer in self.clients:
            assert all(owners.get(each) == consumer.group.identity.member_id for each in consumer.partitions())

    def rounds(self, count: int, seconds: float = 1.0) -> None:
        """All users poll, and all requests are answered."""
        for _ in range(count):
            for consumer in self.clients:
                consumer.polls()
                consumer.turn()
                self.check()
            self.advance(seconds)

    def check_all_is_read(self, *topics: str) -> None:
        wanted = {(self.kafka.topics[name].id, number) for name in topics for number in range(len(self.kafka.topics[name].partitions))}
        assert set().union(*(consumer.partitions() for consumer in self.clients)) == wanted
        assert self.consumers.state.value == "Stable"
        for consumer in self.clients:
            assert consumer.group.state is State.STABLE
            assert consumer.partitions() == set(self.consumers.members[consumer.group.identity.member_id].assigned)


def test_partitions_are_rebalanced_as_members_join_and_leave() -> None:
    with SimulatedGroup() as group:
        group.adds()
        group.rounds(8)
        assert [len(consumer.reads) for consumer in group.clients] == [4]
        group.adds()
        group.adds()
        group.rounds(30)
        assert sorted(len(consumer.reads) for consumer in group.clients) == [1, 1, 2]
        group.check_all_is_read("t")
        group.removes(group.clients[0])
        group.rounds(15)
        assert [len(consumer.reads) for consumer in group.clients] == [2, 2]
        group.check_all_is_read("t")


def test_a_partition_is_not_assigned_before_its_slow_owner_has_revoked_it() -> None:
    with SimulatedGroup() as group:
        slow = group.adds()
        group.rounds(8)
        other = group.adds()
        for _ in range(60):
            slow.turn()
            other.polls()
            other.turn()
            group.check()
            group.advance(1.0)
        assert (len(slow.reads), len(other.reads)) == (4, 0)
        group.rounds(15)
        assert (len(slow.reads), len(other.reads)) == (2, 2)


def test_N07_a_member_that_does_not_revoke_in_time_is_fenced_and_joins_again() -> None:
    with SimulatedGroup() as group:
        slow = group.adds()
        group.rounds(8)
        slow.group.polling = True
        other = group.adds()
        for _ in range(int(REBALANCE_S) + 20):
            slow.turn()
            other.polls()
            other.turn()
            group.advance(1.0)
        assert len(other.reads) == 4
        slow.group.polling = False
        group.rounds(30)
        group.check_all_is_read("t")
        assert (len(slow.reads), len(other.reads)) == (2, 2)


def test_N08_a_member_that_does_not_poll_leaves_and_joins_again_with_the_next_poll() -> None:
    with SimulatedGroup() as group:
        away, other = group.adds(), group.adds()
        group.rounds(20)
        for _ in range(int(REBALANCE_S) + 20):
            away.turn()
            other.polls()
            other.turn()
            group.advance(1.0)
        assert len(other.reads) == 4
        group.rounds(30)
        group.check_all_is_read("t")


def test_N09_a_new_topic_that_matches_the_brokers_pattern_is_read() -> None:
    with SimulatedGroup() as group:
        group.adds(SUBSCRIPTIONS[3])
        group.adds(SUBSCRIPTIONS[3])
        group.rounds(20)
        group.check_all_is_read("t", "u")
        group.do(lambda: group.kafka.create_topic("tu", replicas=[[1, 2]] * 2))
        group.rounds(40)
        group.check_all_is_read("t", "u", "tu")


def test_N01_a_restarted_static_member_gets_its_partitions_without_a_rebalance() -> None:
    with SimulatedGroup() as group:
        static, other = group.adds(instance="i-1"), group.adds()
        group.rounds(20)
        had, others = set(static.reads), set(other.reads)
        group.removes(static)
        group.rounds(5)
        again = group.adds(instance="i-1")
        group.rounds(10)
        assert again.group.identity.member_id != static.group.identity.member_id
        assert (again.reads, other.reads) == (had, others)


def test_a_static_member_whose_join_response_was_lost_joins_again() -> None:
    with SimulatedGroup() as group:
        static = group.adds(instance="i-1")
        static.polls()
        while Api.CONSUMER_GROUP_HEARTBEAT not in {each.api for each in static.world.in_flight}:
            for sent in static.world.turn(static.metadata, static.group, static.calls):
                if sent.api is not Api.CONSUMER_GROUP_HEARTBEAT:
                    static._carry(sent, 0.0, Random(0))
        join, = static.world.in_flight
        static._carry(join, 2.0, AlwaysLate())
        group.rounds(20)
        group.check_all_is_read("t")


class AlwaysLate(Random):
    """The request arrives, the response is lost."""

    def __init__(self) -> None:
        super().__init__(0)
        self.calls = 0

    def random(self) -> float:
        self.calls += 1
        return 1.0 if self.calls == 1 else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_with_losses_and_slow_users_no_partition_has_two_readers_and_finally_each_has_one(seed: int) -> None:
    with SimulatedGroup() as group:
        chance = Random(seed)
        for _ in range(150):
            something_happens(group, chance)
            for consumer in group.clients:
                if chance.random() < 0.5:
                    consumer.polls(raises=chance.random() < 0.1)
                if chance.random() < 0.7:
                    consumer.turn(loses=0.3 if seed % 2 else 0.0, chance=chance)
                group.check()
            group.advance(chance.choice([0.1, 1.0, 2.0]))
        group.adds(SUBSCRIPTIONS[1])
        group.rounds(60)
        group.check_all_is_read("t", "u")


def something_happens(group: SimulatedGroup, chance: Random) -> None:
    """A consumer joins, leaves or changes its subscription; a topic gets partitions; the coordinator moves."""
    match chance.randrange(16):
        case 0 if len(group.clients) < 4:
            instance = chance.choice([None, "i-1"]) if not any(consumer.instance for consumer in group.clients) else None
            group.adds(chance.choice(SUBSCRIPTIONS), instance)
        case 1 if len(group.clients) > 1:
            group.removes(chance.choice(group.clients))
        case 2 if group.clients:
            chance.choice(group.clients).group.subscribe(chance.choice(SUBSCRIPTIONS))
        case 3 if len(group.kafka.topics["u"].partitions) < 6:
            group.do(lambda: group.kafka.add_partitions(group.kafka.topics["u"], [[1, 2]]))
        case 4:
            group.do(lambda: group.kafka.move_coordinator("g", chance.choice([1, 2])))
