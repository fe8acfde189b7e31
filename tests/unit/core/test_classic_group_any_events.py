"""A member of a classic group under any sequence of events: no busy loop, no deadlock, and it owns only assigned
partitions (G01 to G10).
"""
from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import Api
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.classic_member import SENDS_HEARTBEATS, State
from pyclient.records import TopicPartition
from tests.unit.core.groups import (
    FENCED_INSTANCE, ILLEGAL_GENERATION, MEMBER, MEMBER_ID_REQUIRED, REBALANCING, UNKNOWN_MEMBER, ClassicHarness, OneByOne, tps, subscription_of,
)
from tests.unit.core.world import Sent

LOADING, NOT_COORDINATOR = 14, 16
ANSWERS = st.sampled_from([0, 0, 0, 0, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, LOADING, NOT_COORDINATOR])
SHARES = st.sets(st.integers(0, 3)).map(sorted)
WAITING = (Api.JOIN_GROUP, Api.SYNC_GROUP)


class GroupRules(RuleBasedStateMachine):
    """The coordinator may send any response, and the user's thread may run at any time."""

    cooperative = False

    def __init__(self) -> None:
        super().__init__()
        self.member = ClassicHarness(OneByOne("turns", ("cooperative", "eager") if self.cooperative else ("eager",)))
        self.generation = 0
        self.begun: Change | None = None
        self.owned: set[TopicPartition] = set()
        self.member.subscribes()

    # ---- the user -----------------------------------------------------------------------------------------------

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
        if change.kind is ChangeKind.ASSIGNED:
            assert self.owned.isdisjoint(change.partitions)
            self.owned |= set(change.partitions)
        else:
            assert self.owned >= set(change.partitions)
        if change.kind is ChangeKind.LOST:
            self.owned -= set(change.partitions)

    @precondition(lambda self: self.begun is not None)
    @rule()
    def carries_out(self) -> None:
        assert self.begun is not None
        change, self.begun = self.begun, None
        if change.kind is ChangeKind.REVOKED:
            self.owned -= set(change.partitions)
        self.member.group.complete(change)

    @rule(topics=st.sampled_from([("t",), ("t", "u"), ("u",)]))
    def subscribes(self, topics: tuple[str, ...]) -> None:
        self.member.subscribes(*topics)

    # ---- the cluster --------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 3.0, 45.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.member.world.after(seconds)

    @rule(count=st.integers(1, 6))
    def partitions_are_added(self, count: int) -> None:
        self.member.metadata_shows(t=count)

    @rule()
    def turns(self) -> None:
        self.member.turn()

    def _first(self, *apis: Api) -> Sent | None:
        return next((each for each in self.member.world.in_flight if each.api in apis), None)

    @rule(code=ANSWERS, leads=st.booleans(), needs_id=st.booleans(), share=SHARES)
    def answers_the_waiting_request(self, code: int, leads: bool, needs_id: bool, share: list[int]) -> None:
        self.member.turn()
        sent = self._first(*WAITING)
        if sent is None:
            return
        if code:
            self.member.reply_error(sent, code)
        elif sent.api is Api.SYNC_GROUP:
            self.member.reply_assignment(sent, *tps(*share))
        elif needs_id and not sent.body.member_id:
            self.member.reply_joined(sent, error_code=MEMBER_ID_REQUIRED)
        else:
            self.generation += 1
            self.member.reply_joined(sent, generation=self.generation, leader=MEMBER if leads else "other", members={MEMBER: subscription_of()} if leads else {})

    @rule(code=ANSWERS | st.just(FENCED_INSTANCE))
    def answers_the_heartbeat(self, code: int) -> None:
        self.member.turn()
        sent = self._first(Api.HEARTBEAT)
        if sent is not None:
            sent.reply(error_code=code)

    @rule(data=st.data())
    def a_connection_breaks(self, data: Any) -> None:
        if self.member.world.in_flight:
            data.draw(st.sampled_from(self.member.world.in_flight)).is_lost()

    # ---- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def it_owns_exactly_the_assigned_partitions(self) -> None:
        assert set(self.member.group.owned) == self.owned

    @invariant()
    def one_request_waits_for_the_other_members_at_a_time(self) -> None:
        # One of them was cancelled: its response does not count.
        assert sum(each.api in WAITING for each in self.member.world.in_flight) <= 2
        if self.member.group.state in (State.JOINING, State.SYNCING):
            assert self.member.group.change is None

    def teardown(self) -> None:
        """From any state: with a polling user and a responding coordinator, the member becomes stable or reports why it
        cannot.
        """
        member = self.member
        member.group.polling = False
        for _ in range(60):
            if self.begun is not None:
                self.carries_out()
            if member.group.change is not None:
                self.begins()
            member.polls()
            member.world.after(1.0)
            member.group.polled_at = member.world.now
            member.turn()
            for sent in list(member.world.in_flight):
                if sent.api in WAITING:
                    self.answers_the_waiting_request(0, False, False, [0])
                elif sent.api is Api.HEARTBEAT:
                    sent.reply()
                elif sent.api is Api.LEAVE_GROUP:
                    sent.reply(members=[])
                elif sent.api is not Api.METADATA:
                    sent.is_lost()
        assert member.group.failure is not None or (member.group.state in SENDS_HEARTBEATS and member.group.identity.joined), member.group.state


class CooperativeRules(GroupRules):
    cooperative = True


TestEager = GroupRules.TestCase
TestEager.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestCooperative = CooperativeRules.TestCase
TestCooperative.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
