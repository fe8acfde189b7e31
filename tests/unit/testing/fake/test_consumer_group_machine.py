"""Random histories of members and topics, with lost messages: no partition has two owners, epochs only grow, and in the
end every partition is assigned."""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.testing.fake.model.consumer_group import ConsumerGroup, ConsumerState
from pyclient.testing.fake.model.reconciliation import ConsumerMember, Place
from pyclient.testing.fake.model.refusal import RefusalError
from tests.unit.testing.fake.consumers import ClassicClient, Client, Topics, settle

NAMES = ("t", "u", "tt")
PATTERNS = ("t+", "u|tt", "nothing")
INSTANCES = ("i", "j")
MOST = 5

which = st.integers(0, 99)
subscriptions = st.just(["t"]) | st.lists(st.sampled_from(NAMES), max_size=3, unique=True)  # what is shared is what can go wrong
patterns = st.none() | st.sampled_from(PATTERNS)


class Consumers(RuleBasedStateMachine):
    """Correct members: they read their target until they revoke it; the order of their actions is random."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics(t=3, u=2)
        self.group = ConsumerGroup("g")
        self.clients: list[Client] = []
        self.away: list[Client] = []
        """Static members that left for now."""
        self.made = 0
        self.before: dict[str, ConsumerMember] = {}
        self.epochs = (0, 0)
        self.now = 0.0

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def hear(self, topic: str, *, is_new: bool) -> None:
        self.group.on_topic_change(topic, is_new=is_new)

    # ---- members -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) + len(self.away) < MOST)
    @rule(topics=subscriptions)
    def join_classic(self, topics: list[str]) -> None:
        self.made += 1
        client = ClassicClient(self.group, self.topics, f"member {self.made}", *topics)
        client.heartbeat()
        self.clients.append(client)

    @precondition(lambda self: len(self.clients) + len(self.away) < MOST)
    @rule(topics=subscriptions, pattern=patterns, instance=st.none() | st.sampled_from(INSTANCES),
          assignor=st.sampled_from((None, None, "range", "uniform")))
    def join(self, topics: list[str], pattern: str | None, instance: str | None, assignor: str | None) -> None:
        if instance not in self.group.statics:
            self.made += 1
            client = Client(self.group, self.topics, f"member {self.made}", *topics, pattern=pattern, instance=instance, assignor=assignor)
            client.heartbeat()
            self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(number=which, lost=st.booleans())
    def heartbeat(self, number: int, lost: bool) -> None:
        try:
            self.client(number).heartbeat(lost=lost)
        except RefusalError:  # it was given up, or two answers in a row were lost with a change in each
            client = self.client(number)
            client.come_back_fenced()
            if client.instance is not None:  # another one may have its instance by then
                self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=which)
    def reconcile(self, number: int) -> None:
        self.client(number).reconcile()

    @precondition(lambda self: self.clients)
    @rule(number=which, topics=subscriptions, pattern=patterns)
    def resubscribe(self, number: int, topics: list[str], pattern: str | None) -> None:
        client = self.client(number)
        client.resubscribe(*topics, pattern=None if isinstance(client, ClassicClient) else pattern)

    @precondition(lambda self: self.clients)
    @rule(number=which, for_now=st.booleans())
    def leave(self, number: int, for_now: bool) -> None:
        client = self.clients.pop(number % len(self.clients))
        for_now = for_now and client.instance is not None and client.name in self.group.members
        if client.name in self.group.members:
            client.leave(for_now=for_now)
        if for_now:
            self.away.append(client)

    @precondition(lambda self: self.away)
    @rule(same=st.booleans())
    def come_back(self, same: bool) -> None:
        client = self.away.pop(0)
        self.made += 1
        client.return_as(client.name if same else f"member {self.made}")
        client.heartbeat()
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(number=which)
    def expire(self, number: int) -> None:
        """It is given up, and comes back; a static one may find another one in its place, and stays away."""
        client = self.client(number)
        if client.name in self.group.members:
            self.group.remove([self.group.members[client.name]], self.topics.catalog)
        client.abandon()
        if client.instance is not None:
            self.clients.remove(client)

    @precondition(lambda self: self.away)
    @rule()
    def expire_away(self) -> None:
        self.group.remove([self.group.members[self.away.pop().name]], self.topics.catalog)

    # ---- topics ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 5))
    def create(self, name: str, partitions: int) -> None:
        if name not in self.topics.catalog:
            self.topics.create(name, partitions)
            self.hear(name, is_new=True)

    @rule(name=st.sampled_from(NAMES))
    def grow(self, name: str) -> None:
        if name in self.topics.catalog:
            self.topics.grow(name)
            self.hear(name, is_new=False)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.topics.catalog.pop(name, None) is not None:
            self.hear(name, is_new=False)

    # ---- coordinators ------------------------------------------------------------------------------------------------

    @rule()
    def match(self) -> None:
        self.now += 1
        if self.group.wants_match(self.now, 0, 600):
            self.group.match(self.topics.catalog, self.now)

    @rule()
    def move(self) -> None:
        self.group = self.group.restored()
        for each in (*self.clients, *self.away):
            each.group = self.group

    # ---- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_given_to_two(self) -> None:
        held = [place for each in self.group.members.values() for place in each.holds]
        assert len(held) == len(set(held))
        targets = [place for each in self.group.targets.values() for place in each]
        assert len(targets) == len(set(targets))

    @invariant()
    def nothing_is_read_by_two_and_what_is_read_is_held(self) -> None:
        read = [place for each in self.clients for place in each.owned]
        assert len(read) == len(set(read))
        for each in self.clients:
            if each.owned:
                assert each.owned <= self.group.members[each.name].holds.keys()

    @invariant()
    def epochs_never_go_back(self) -> None:
        epochs = (self.group.epoch, self.group.assignment_epoch)
        assert all(now >= then for now, then in zip(epochs, self.epochs, strict=True))
        assert self.group.assignment_epoch <= self.group.epoch
        for name, member in self.group.members.items():
            old = self.before.get(name)
            assert member.epoch <= self.group.epoch
            assert old is None or member.epoch >= old.epoch or member.epoch == -2
        self.epochs, self.before = epochs, dict(self.group.members)

    @invariant()
    def the_state_says_what_is_so(self) -> None:
        match self.group.state:
            case ConsumerState.EMPTY:
                assert not self.group.owners()
            case ConsumerState.STABLE:
                owners, targets = self.group.owners(), {place: name for name, places in self.group.targets.items() for place in places}
                assert owners.items() <= targets.items()
                assert not any(self.wants(targets[place], place) for place in targets.keys() - owners)
                assert not any(each.revoking for each in self.group.members.values())

    def teardown(self) -> None:
        """When everybody is truthful and nothing else happens, every partition has one reader, who wants it."""
        while self.away:
            self.come_back(same=False)
        if self.clients and all(isinstance(each, ClassicClient) for each in self.clients):
            self.clients.append(Client(self.group, self.topics, "one of the new protocol"))  # else the group would be a classic one
        settle(*self.clients, rounds=2)
        if self.group.wants_match(self.now + 1, 0, 600):
            self.group.match(self.topics.catalog, self.now + 1)
        self.something_happens()
        settle(*self.clients, rounds=3 * MOST)
        if not self.clients:
            return
        assert self.group.state is ConsumerState.STABLE
        wanted = {each.name: self.wanted_by(each) for each in self.clients}
        assert set().union(*wanted.values()) == set().union(*(each.owned for each in self.clients))
        for each in self.clients:
            assert each.owned <= wanted[each.name]
            assert each.owned == set(self.group.members[each.name].assigned)
        if self.group.assignor == "uniform":
            self.check_balance(wanted)

    def something_happens(self) -> None:
        """Until the next change, partitions whose pattern was replaced may stay unowned, as with real brokers
        (`STRANDED`)."""
        if self.clients:
            visitor = Client(self.group, self.topics, "a visitor")
            visitor.heartbeat()
            visitor.leave()

    def wants(self, name: str, place: Place) -> bool:
        """Whether a member is subscribed to the partition's topic by its last heartbeat; its target may be older."""
        member = self.group.members[name]
        matched = self.group.patterns.get(member.pattern)
        return place in self.topics.places(*member.topics, *(matched.topics if matched is not None else ()))

    def wanted_by(self, client: Client) -> set[Any]:
        matched = self.group.patterns.get(client.pattern or "")
        return self.topics.places(*client.subscribed, *(matched.topics if matched is not None else ()))

    def check_balance(self, wanted: dict[str, set[Any]]) -> None:
        """No member has two partitions more than another one that could take one of them."""
        for giver in self.clients:
            for taker in self.clients:
                if giver.owned & wanted[taker.name]:
                    assert len(giver.owned) <= len(taker.owned) + 1


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
