"""Members of a group of the next generation with the fake cluster's coordinator: nothing is read by two, and in the end all is (N01 to N10)."""
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
from pyclient.core.group.consumer import ConsumerGroup
from pyclient.core.group.consumer_state import State
from pyclient.core.group.membership import Change, ChangeKind, GroupOptions
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Reply
from pyclient.records import SubscriptionPattern, TopicPartition
from pyclient.testing.fake.model.reconciliation import Place
from tests.unit.core.world import Sent, World, make_metadata
from tests.unit.testing.fake.consumer_members import ConsumerMembers

REBALANCE_S = 300.0
SOON = WaitPolicy(wait_exponential(multiplier=0.1, max=1.0))
"""As usual: with longer pauses a session may end for bad luck alone."""
SUBSCRIPTIONS = (
    Subscription(frozenset({"t"})), Subscription(frozenset({"t", "u"})), Subscription(pattern=re.compile("[tu]+")),
    Subscription(brokers_pattern=SubscriptionPattern("[tu].*")))


class Seat:
    """One consumer: its manager with what that needs, and a user who polls now and then."""

    def __init__(self, members: ConsumerMembers, name: int, subscription: Subscription, instance: str | None = None) -> None:
        self.members = members
        self.instance = instance
        self.world = World({1, 2}, now=members.loop.time())
        self.metadata = make_metadata()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=SOON)
        options = GroupOptions(group_id="g", instance_id=instance, session_timeout=45.0, heartbeat_interval=5.0, rebalance_timeout=REBALANCE_S,
                               request_timeout=30.0)
        self.group = ConsumerGroup(options, self.calls, self.metadata, random=Random(name), backoff=SOON, on_news=lambda: None)
        self.group.subscribe(subscription)
        self.begun: Change | None = None
        self.reads: set[TopicPartition] = set()

    # ---- the user -----------------------------------------------------------------------------------------------

    def polls(self, *, raises: bool = False) -> None:
        """One call of poll, which begins or ends one change."""
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
        self.group.carried_out(change, ValueError("the listener's") if raises else None)

    # ---- the network --------------------------------------------------------------------------------------------

    def turn(self, *, loses: float = 0.0, chance: Random | None = None) -> None:
        """Everything that is to be sent is, and answered by the cluster, unless the request or the answer is lost."""
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

    # ---- the truth ----------------------------------------------------------------------------------------------

    def places(self) -> set[Place]:
        """What it reads, by the ids that the cluster gave the topics. Who was lost reads nothing, though the user may not know yet."""
        return {(self.members.kafka.topics[where.topic].id, where.partition) for where in self.reads} if self.group.identity.joined else set()


class Together(ConsumerMembers):
    """Several of them, and what is true of all."""

    def __init__(self) -> None:
        super().__init__()
        self.seats: list[Seat] = []
        self.made = 0
        self.do(lambda: self.kafka.create_topic("u", replicas=[[1, 2]] * 3))

    def enters(self, subscription: Subscription = SUBSCRIPTIONS[0], instance: str | None = None) -> Seat:
        self.made += 1
        self.seats.append(Seat(self, self.made, subscription, instance))
        return self.seats[-1]

    def leaves(self, seat: Seat) -> None:
        """As close does it: it waits for the answer."""
        self.seats.remove(seat)
        ended: list[object] = []
        seat.group.leave("closed", lambda result, error: ended.append(error), None)
        while not ended:
            seat.turn()
            self.advance(0.1)

    def check(self) -> None:
        """Nobody reads what another one may, whatever the members believe."""
        readers = Counter(place for seat in self.seats for place in seat.places())
        assert all(count == 1 for count in readers.values()), readers
        owners = self.consumers.owners() if readers else {}
        for seat in self.seats:
            assert all(owners.get(place) == seat.group.identity.member_id for place in seat.places())

    def rounds(self, count: int, seconds: float = 1.0) -> None:
        """Everybody polls and is heard."""
        for _ in range(count):
            for seat in self.seats:
                seat.polls()
                seat.turn()
                self.check()
            self.advance(seconds)

    def check_all_is_read(self, *topics: str) -> None:
        wanted = {(self.kafka.topics[name].id, number) for name in topics for number in range(len(self.kafka.topics[name].partitions))}
        assert set().union(*(seat.places() for seat in self.seats)) == wanted
        assert self.consumers.state.value == "Stable"
        for seat in self.seats:
            assert seat.group.state is State.STABLE
            assert seat.places() == set(self.consumers.members[seat.group.identity.member_id].assigned)


def test_one_member_reads_all_and_shares_with_those_who_come_and_takes_over_from_those_who_go() -> None:
    with Together() as group:
        group.enters()
        group.rounds(8)
        assert [len(seat.reads) for seat in group.seats] == [4]
        group.enters()
        group.enters()
        group.rounds(30)
        assert sorted(len(seat.reads) for seat in group.seats) == [1, 1, 2]
        group.check_all_is_read("t")
        group.leaves(group.seats[0])
        group.rounds(15)
        assert [len(seat.reads) for seat in group.seats] == [2, 2]
        group.check_all_is_read("t")


def test_nothing_is_given_to_another_before_the_slow_user_has_given_it_up() -> None:
    with Together() as group:
        slow = group.enters()
        group.rounds(8)
        other = group.enters()
        for _ in range(60):
            slow.turn()
            other.polls()
            other.turn()
            group.check()
            group.advance(1.0)
        assert (len(slow.reads), len(other.reads)) == (4, 0)
        group.rounds(15)
        assert (len(slow.reads), len(other.reads)) == (2, 2)


def test_N07_who_does_not_give_up_in_time_is_fenced_and_comes_back() -> None:
    with Together() as group:
        slow = group.enters()
        group.rounds(8)
        slow.group.polling = True
        other = group.enters()
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


def test_N08_who_does_not_poll_makes_room_and_comes_back_with_the_next_poll() -> None:
    with Together() as group:
        away, other = group.enters(), group.enters()
        group.rounds(20)
        for _ in range(int(REBALANCE_S) + 20):
            away.turn()
            other.polls()
            other.turn()
            group.advance(1.0)
        assert len(other.reads) == 4
        group.rounds(30)
        group.check_all_is_read("t")


def test_N09_a_topic_that_comes_to_match_is_read_though_the_client_never_named_it() -> None:
    with Together() as group:
        group.enters(SUBSCRIPTIONS[3])
        group.enters(SUBSCRIPTIONS[3])
        group.rounds(20)
        group.check_all_is_read("t", "u")
        group.do(lambda: group.kafka.create_topic("tu", replicas=[[1, 2]] * 2))
        group.rounds(40)
        group.check_all_is_read("t", "u", "tu")


def test_N01_a_static_member_that_was_restarted_gets_what_it_had_and_nobody_else_notices() -> None:
    with Together() as group:
        static, other = group.enters(instance="i-1"), group.enters()
        group.rounds(20)
        had, others = set(static.reads), set(other.reads)
        group.leaves(static)
        group.rounds(5)
        again = group.enters(instance="i-1")
        group.rounds(10)
        assert again.group.identity.member_id != static.group.identity.member_id
        assert (again.reads, other.reads) == (had, others)


def test_a_static_member_whose_join_was_answered_to_nobody_joins_all_the_same() -> None:
    with Together() as group:
        static = group.enters(instance="i-1")
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
    """The request arrives, the answer does not."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked = 0

    def random(self) -> float:
        self.asked += 1
        return 1.0 if self.asked == 1 else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_and_whoever_is_slow_nothing_is_read_by_two_and_in_the_end_all_is_read(seed: int) -> None:
    with Together() as group:
        chance = Random(seed)
        for _ in range(150):
            something_happens(group, chance)
            for seat in group.seats:
                if chance.random() < 0.5:
                    seat.polls(raises=chance.random() < 0.1)
                if chance.random() < 0.7:
                    seat.turn(loses=0.3 if seed % 2 else 0.0, chance=chance)
                group.check()
            group.advance(chance.choice([0.1, 1.0, 2.0]))
        group.enters(SUBSCRIPTIONS[1])
        group.rounds(60)
        group.check_all_is_read("t", "u")


def something_happens(group: Together, chance: Random) -> None:
    """Somebody comes, goes or wants something else; a topic grows; the group's coordinator moves."""
    match chance.randrange(16):
        case 0 if len(group.seats) < 4:
            instance = chance.choice([None, "i-1"]) if not any(seat.instance for seat in group.seats) else None
            group.enters(chance.choice(SUBSCRIPTIONS), instance)
        case 1 if len(group.seats) > 1:
            group.leaves(chance.choice(group.seats))
        case 2 if group.seats:
            chance.choice(group.seats).group.subscribe(chance.choice(SUBSCRIPTIONS))
        case 3 if len(group.kafka.topics["u"].partitions) < 6:
            group.do(lambda: group.kafka.add_partitions(group.kafka.topics["u"], [[1, 2]]))
        case 4:
            group.do(lambda: group.kafka.move_coordinator("g", chance.choice([1, 2])))
