"""A member of a group of the next generation through any sequence of events: it never spins, never gets stuck, and owns only what it may (N01 to N10)."""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.consumer_member import MEMBERS, State
from pyclient.errors import FencedMemberEpochError, StaleMemberEpochError, UnknownServerError
from pyclient.records import TopicPartition
from tests.unit.core.consumer_groups import BEAT, Consumer, owned, places
from tests.unit.core.groups import parts
from tests.unit.core.world import Sent

UNKNOWN_SERVER, LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, TOPIC_AUTHORIZATION, FENCED_INSTANCE, FENCED_EPOCH = -1, 14, 16, 25, 29, 82, 110
ERRORS = st.sampled_from([LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, FENCED_EPOCH, UNKNOWN_SERVER, TOPIC_AUTHORIZATION])
LEAVES = (-1, -2)
T, NEW = parts(0, 1, 2), parts(0, 1, name="new")
SHARES = st.lists(st.sampled_from([*T, *NEW]), unique=True)


class ConsumerRules(RuleBasedStateMachine):
    """The coordinator answers as it likes, the user's thread comes when it likes."""

    instance: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.member = Consumer(instance=self.instance)
        self.seen: list[Sent] = []
        self.begun: Change | None = None
        self.owned: set[TopicPartition] = set()
        self.told: set[TopicPartition] = set()
        """What the coordinator said last that the member is to have."""
        self.in_doubt = True
        """The member has said what it has, and there is no answer: the coordinator may have given away the rest."""
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
        given = set(change.partitions)
        assert len(given) == len(change.partitions)
        if change.kind is ChangeKind.ASSIGNED:
            assert self.owned.isdisjoint(given)
            assert not given or not self.in_doubt, "it may be somebody else's by now"
            assert given <= self.told
            self.owned |= given
        else:
            assert given
            assert given <= self.owned
        if change.kind is ChangeKind.LOST:
            assert given == self.owned
            self.owned -= given

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
        (self.member.matches if broker else self.member.matches_itself)("[tu].*")

    @precondition(lambda self: self.begun is None)
    @rule()
    def leaves_and_subscribes_again(self) -> None:
        """As unsubscribe does: the partitions were given up before."""
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
            self.member.tells(t=4, new=2)
        else:
            self.member.tells(t=4)

    @rule()
    def turns(self) -> None:
        for sent in self.member.turn():
            said = owned(sent) if sent.api is BEAT else None
            if said is not None:
                assert said >= places(*self.owned), "what it has, and does not say, others will get"
                self.in_doubt = True

    def _first(self) -> Sent | None:
        return next((each for each in self.member.world.in_flight if each.api is BEAT), None)

    @rule(share=SHARES, news=st.booleans(), interval=st.sampled_from([-1.0, 0.0, 2.0, 5.0]))
    def the_coordinator_answers(self, share: list[TopicPartition], news: bool, interval: float) -> None:
        """Who says all is told all; the others only what is new to them."""
        self.turns()
        sent = self._first()
        if sent is None:
            return
        if sent.body.member_epoch in LEAVES:
            self.member.heard(sent, epoch=sent.body.member_epoch)
            return
        counts = self._counts(sent)
        if news or sent.body.subscribed_topic_names is not None:
            self.member.told_to_have(sent, *share, interval=interval)
            self.told = set(share) if counts else self.told
        else:
            self.member.heard(sent, interval=interval)
        self.in_doubt = self.in_doubt and not counts

    def _counts(self, sent: Sent) -> bool:
        """Whether it is the newest: the answers to older ones were given up."""
        return sent is [each for each in self.member.world.in_flight if each.api is BEAT and each.body.member_epoch not in LEAVES][-1] and self.member.group.state not in (
            State.OUT, State.LOSING, State.FAILED)

    @rule(code=ERRORS | st.just(FENCED_INSTANCE))
    def the_coordinator_refuses(self, code: int) -> None:
        self.turns()
        sent = self._first()
        if sent is not None:
            self.member.refused(sent, code)

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
    def it_owns_what_the_user_was_given_and_nothing_else(self) -> None:
        assert set(self.member.group.owned) == self.owned

    @invariant()
    def who_joins_has_nothing(self) -> None:
        if self.member.group.state is State.JOINING:
            assert not self.owned
            assert self.member.group.change is None

    @invariant()
    def the_epoch_is_a_members(self) -> None:
        assert self.member.group.identity.joined == (self.member.group.state in MEMBERS)

    def teardown(self) -> None:
        """However it stands: with a user who polls and a coordinator that answers, it has what it is to have, or said why it has not."""
        member = self.member
        member.group.polling = False
        member.tells(t=4, new=2)
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
            for sent in [each for each in member.world.in_flight if each.api is not BEAT]:
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
