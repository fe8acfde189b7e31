"""A member under the consumer protocol with any sequence of events: no busy loop, no deadlock, and it owns only what it
may (N01 to N10).
"""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.consumer_member import MEMBERS, State
from pyclient.errors import FencedMemberEpochError, StaleMemberEpochError, UnknownServerError
from pyclient.records import TopicPartition
from tests.unit.core.consumer_groups import HEARTBEAT_API, ConsumerHarness, owned, with_ids
from tests.unit.core.groups import tps
from tests.unit.core.world import Sent

UNKNOWN_SERVER, LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, TOPIC_AUTHORIZATION, FENCED_INSTANCE, FENCED_EPOCH = -1, 14, 16, 25, 29, 82, 110
ERRORS = st.sampled_from([LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, FENCED_EPOCH, UNKNOWN_SERVER, TOPIC_AUTHORIZATION])
LEAVE_EPOCHS = (-1, -2)
T, NEW = tps(0, 1, 2), tps(0, 1, name="new")
SHARES = st.lists(st.sampled_from([*T, *NEW]), unique=True)


class ConsumerRules(RuleBasedStateMachine):
    """The coordinator may send any response, and the user's thread may run at any time."""

    instance: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.member = ConsumerHarness(instance=self.instance)
        self.seen: list[Sent] = []
        self.begun: Change | None = None
        self.owned: set[TopicPartition] = set()
        self.assignment: set[TopicPartition] = set()
        """The coordinator's newest assignment."""
        self.in_doubt = True
        """The member has stated its partitions, and there is no response: the coordinator may have assigned the others
        to another member.
        """
        self.member.subscribes()

    # ---- the user -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.begun is None)
    @rule()
    def polls(self) -> None:
        self.member.polls()

    @rule(waits=st.booleans())
    def waits_in_poll(self, waits: bool) -> None:
        self.member.group.polled_at = self.member.world.now
        self.member.group.polling = waits

    @precondition(lambda self: self.begun is None and self.member.group.change is not None)
    @rule()
    def begins(self) -> None:
        change = self.member.group.change
        assert change is not None
        assert self.member.group.begin(change)
        self.begun = change
        partitions = set(change.partitions)
        assert len(partitions) == len(change.partitions)
        if change.kind is ChangeKind.ASSIGNED:
            assert self.owned.isdisjoint(partitions)
            assert not partitions or not self.in_doubt, "another member may own it"
            assert partitions <= self.assignment
            self.owned |= partitions
        else:
            assert partitions
            assert partitions <= self.owned
        if change.kind is ChangeKind.LOST:
            assert partitions == self.owned
            self.owned -= partitions

    @precondition(lambda self: self.begun is not None)
    @rule(raises=st.booleans())
    def carries_out(self, raises: bool) -> None:
        assert self.begun is not None
        change, self.begun = self.begun, None
        if change.kind is ChangeKind.REVOKED or (raises and change.kind is ChangeKind.ASSIGNED):
            self.owned -= set(change.partitions)
        self.member.group.complete(change, ValueError("the listener's") if raises else None)

    @rule(topics=st.sampled_from([("t",), ("t", "u"), ("u",)]))
    def subscribes(self, topics: tuple[str, ...]) -> None:
        self.member.subscribes(*topics)

    @rule(broker=st.booleans())
    def subscribes_to_a_pattern(self, broker: bool) -> None:
        (self.member.subscribes_broker_pattern if broker else self.member.subscribes_client_pattern)("[tu].*")

    @precondition(lambda self: self.begun is None)
    @rule()
    def leaves_and_subscribes_again(self) -> None:
        """Like unsubscribe: the partitions were revoked before."""
        self.owned = set()
        self.member.group.leave("unsubscribed", lambda result, error: None, self.member.world.now + 10.0)
        self.member.subscribes()

    @rule(stale=st.booleans())
    def a_commit_is_refused(self, stale: bool) -> None:
        self.member.group.on_commit_refused(StaleMemberEpochError() if stale else FencedMemberEpochError(), self.member.group.identity)

    # ---- the cluster --------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 3.0, 45.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.member.world.after(seconds)

    @rule(knows=st.booleans())
    def the_view_changes(self, knows: bool) -> None:
        if knows:
            self.member.metadata_shows(t=4, new=2)
        else:
            self.member.metadata_shows(t=4)

    @rule()
    def turns(self) -> None:
        for sent in self.member.turn():
            stated = owned(sent) if sent.api is HEARTBEAT_API else None
            if stated is not None:
                assert stated >= with_ids(*self.owned), "an owned partition that is not stated is assigned to another member"
                self.in_doubt = True

    def _first(self) -> Sent | None:
        return next((each for each in self.member.world.in_flight if each.api is HEARTBEAT_API), None)

    @rule(share=SHARES, new=st.booleans(), interval=st.sampled_from([-1.0, 0.0, 2.0, 5.0]))
    def the_coordinator_answers(self, share: list[TopicPartition], new: bool, interval: float) -> None:
        """A full heartbeat always gets the assignment, others only when it is *new*."""
        self.turns()
        sent = self._first()
        if sent is None:
            return
        if sent.body.member_epoch in LEAVE_EPOCHS:
            self.member.reply_heartbeat(sent, epoch=sent.body.member_epoch)
            return
        counts = self._counts(sent)
        if new or sent.body.subscribed_topic_names is not None:
            self.member.reply_assignment(sent, *share, interval=interval)
            self.assignment = set(share) if counts else self.assignment
        else:
            self.member.reply_heartbeat(sent, interval=interval)
        self.in_doubt = self.in_doubt and not counts

    def _counts(self, sent: Sent) -> bool:
        """Whether it is the newest: responses to older ones do not count."""
        newest = [each for each in self.member.world.in_flight if each.api is HEARTBEAT_API and each.body.member_epoch not in LEAVE_EPOCHS][-1]
        return sent is newest and self.member.group.state not in (State.OUT, State.LOSING, State.FAILED)

    @rule(code=ERRORS | st.just(FENCED_INSTANCE))
    def the_coordinator_refuses(self, code: int) -> None:
        self.turns()
        sent = self._first()
        if sent is not None:
            self.member.reply_error(sent, code)

    @rule(data=st.data())
    def a_connection_breaks(self, data: Any) -> None:
        if self.member.world.in_flight:
            sent = data.draw(st.sampled_from(self.member.world.in_flight))
            if data.draw(st.booleans()):
                sent.is_lost()
            else:
                sent.is_not_sent(UnknownServerError("damaged"))

    # ---- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def it_owns_exactly_the_assigned_partitions(self) -> None:
        assert set(self.member.group.owned) == self.owned

    @invariant()
    def a_joining_member_owns_nothing(self) -> None:
        if self.member.group.state is State.JOINING:
            assert not self.owned
            assert self.member.group.change is None

    @invariant()
    def only_a_member_has_an_epoch(self) -> None:
        assert self.member.group.identity.joined == (self.member.group.state in MEMBERS)

    def teardown(self) -> None:
        """From any state: with a polling user and a responding coordinator, the member owns its assignment or reports
        why it cannot.
        """
        member = self.member
        member.group.polling = False
        member.metadata_shows(t=4, new=2)
        for _ in range(80):
            if self.begun is not None:
                self.carries_out(raises=False)
            if member.group.change is not None:
                self.begins()
                self.carries_out(raises=False)
            member.polls()
            member.world.after(1.0)
            member.group.polled_at = member.world.now
            self.turns()
            for sent in [each for each in member.world.in_flight if each.api is not HEARTBEAT_API]:
                sent.is_lost()
            if self._first() is not None:
                self.the_coordinator_answers([T[0], NEW[1]], True, 5.0)
        assert member.group.failure is not None or (member.group.state is State.STABLE and self.owned == {T[0], NEW[1]}), member.group.state


class StaticRules(ConsumerRules):
    instance = "i-1"


TestDynamic = ConsumerRules.TestCase
TestDynamic.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestStatic = StaticRules.TestCase
TestStatic.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
