"""Members of consumer groups of the next generation (KIP-848): who beats, leaves, is silent too long, or keeps what it should give up.

The rules of a group are in `consumer_group`; here is when they apply: requests, timers, changes of topics, moves of coordinators.
"""
from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.consumer_group import JOINS, LEAVES_FOR_NOW, HeartbeatRequest, Catalog, ConsumerGroup, Moment, HeartbeatResponse, TopicView
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.model.group import Group
from pyclient.testing.fake.model.membership import Membership
from pyclient.testing.fake.model.migration import Policy, can_downgrade, downgraded, upgraded
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.reconciliation import ConsumerMember, MemberState
from pyclient.testing.fake.model.refusal import RefusalError

SESSION: Final = "session of"
REVOCATION: Final = "revocation by"
JOIN: Final = "join of"
SYNC: Final = "sync of"
TIMERS: Final = (SESSION, REVOCATION, JOIN, SYNC)
"""What a member can be too late for; the last two are of classic members."""
NEW_EPOCHS_SINCE: Final = "4.3"
"""From this release on groups begin with epoch 1, and members commit in epochs before their own (KIP-1251)."""


class ConsumerMembership:
    """Members of all groups of the new kind in a cluster. Every request is answered at once."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._coordinator.keepers[ConsumerGroup] = self
        kafka.listeners.append(self._on_event)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def heartbeat(self, group: AnyGroup | None, group_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        """A heartbeat of a member that joins or stays.

        Raises:
            Refused: there is no such group or member, or another one is in its place.
        """
        found = self._joinable(group, group_id) if request.epoch == JOINS else self.existing(group, group_id, "Consumer group")
        before = dict(found.members)
        told = found.heartbeat(request, self.moment())
        if found is not group:
            self._begin(found, group)
        self.after(found, before, told.member)
        return told

    def after(self, group: ConsumerGroup, before: Mapping[str, ConsumerMember], member: ConsumerMember) -> None:
        """What has to be done when a member joined or beat; *before* are all members as they were."""
        self.report(group, before)
        self.watch(group, member)
        self._watch_revocation(group, before.get(member.id), member)
        self._match_later(group)

    def moment(self) -> Moment:
        """What is known now."""
        settings = self._kafka.settings
        return Moment(self.catalog(), self._kafka.clock(), settings.group_consumer_max_size,
                      settings.group_consumer_assignment_interval_ms / 1000)

    def leave(self, group: AnyGroup | None, group_id: str, request: HeartbeatRequest) -> None:
        """A member goes for good, or a static one for now.

        Raises:
            Refused: there is no such group or member.
        """
        found = self.existing(group, group_id, "Group")
        if request.instance is None:
            self.remove(found, [found.member(request.member_id)])
            return
        member = found.static_member(request.member_id, request.instance)
        if request.epoch == LEAVES_FOR_NOW:
            before = dict(found.members)
            found.leave_for_now(member)
            self._coordinator.cancel(found, timer(REVOCATION, member.id))
            self.report(found, before)
        else:
            self.remove(found, [member])

    def leave_all(self, group: ConsumerGroup, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """A LeaveGroup, with which admins take out members of any kind; an error code for each."""
        found = [_refusable(group, member_id, instance) for member_id, instance in leaving]
        gone = {each.id: each for each in found if isinstance(each, ConsumerMember)}
        if gone:
            self.remove(group, list(gone.values()))
        return [each if isinstance(each, int) else 0 for each in found]

    def _joinable(self, group: AnyGroup | None, group_id: str) -> ConsumerGroup:
        """The group, or one in the place of a classic one; nobody else sees it before the member that brings it is in."""
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None and not group.is_empty:
            return upgraded(group, self.catalog(), self.policy, self._kafka.settings.group_consumer_max_size)
        first = 1 if self._kafka.profile.is_since(NEW_EPOCHS_SINCE) else 0
        return ConsumerGroup(group_id, first, first, offsets=group.offsets if group is not None else {})

    def _begin(self, group: ConsumerGroup, instead_of: AnyGroup | None) -> None:
        if isinstance(instead_of, Group):
            self._kafka.part(Membership).dismiss(instead_of)
        self._coordinator.put(group)
        for member in group.members.values():
            self.watch(group, member)

    @property
    def policy(self) -> Policy:
        """Which way groups with members in them may change their kind."""
        return Policy(self._kafka.settings.group_consumer_migration_policy)

    def existing(self, group: AnyGroup | None, group_id: str, called: str) -> ConsumerGroup:
        """Raises Refused when there is no group of the new kind."""
        if group is None:
            raise RefusalError(ErrorCode.group_id_not_found, f"{called} {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise RefusalError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return group

    def new_id(self) -> str:
        """An id for a member that brings none, as before version 1."""
        return base64.urlsafe_b64encode(self._kafka.random.randbytes(16)).decode().rstrip("=")

    # ---- being given up ---------------------------------------------------------------------------------------------

    def expire(self, group: ConsumerGroup, member_id: str) -> None:
        """Give a member up, as when it was silent for its session timeout."""
        self.remove(group, [group.members[member_id]])

    def remove(self, group: ConsumerGroup, gone: Sequence[ConsumerMember]) -> None:
        """Take members out, all in one epoch. When only classic ones are left, the group is theirs again."""
        names = [each.id for each in gone]
        if can_downgrade(group, names, self.policy, self._kafka.settings.group_max_size):
            self.downgrade(group, names, rebalances=True)
            return
        before = dict(group.members)
        group.remove(gone, self.catalog())
        for member in gone:
            for kind in TIMERS:
                self._coordinator.cancel(group, timer(kind, member.id))
        self.report(group, before)

    def downgrade(self, group: ConsumerGroup, without: Sequence[str], *, rebalances: bool) -> None:
        """Make a classic group of it."""
        for name in without:
            self._kafka.report("member left", group=group.id, member=name, instance=group.members[name].instance)
        self._kafka.part(Membership).adopt(downgraded(group, without, self.catalog()), rebalances=rebalances)

    def watch(self, group: ConsumerGroup, member: ConsumerMember, more_s: float = 0.0) -> None:
        """Give the member up when nothing is heard of it for the session timeout."""
        timeout_ms = self._kafka.settings.group_consumer_session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.give_up_after(group, member, SESSION, more_s + timeout_ms / 1000)

    def give_up_after(self, group: ConsumerGroup, member: ConsumerMember, kind: str, seconds: float) -> None:
        """Give the member up unless the timer of this kind is cancelled, or set anew."""
        self._coordinator.after(group, timer(kind, member.id), seconds, functools.partial(self._silent, group, member.id))

    def _silent(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id in group.members:
            self.expire(group, member_id)

    def _watch_revocation(self, group: ConsumerGroup, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """Who is told to give something up has its rebalance timeout for it; news of what to give up begin it anew."""
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._coordinator.cancel(group, timer(REVOCATION, member.id))
        elif before is None or member.revoking != before.revoking or member.assigned != before.assigned:
            self._await_revocation(group, member)

    def _await_revocation(self, group: ConsumerGroup, member: ConsumerMember, more_s: float = 0.0) -> None:
        self._coordinator.after(group, timer(REVOCATION, member.id), more_s + member.rebalance_timeout_ms / 1000,
                                functools.partial(self._unrevoked, group, member.id, member.epoch))

    def _unrevoked(self, group: ConsumerGroup, member_id: str, epoch: int) -> None:
        member = group.members.get(member_id)
        if member is not None and member.epoch == epoch:
            self.expire(group, member_id)

    # ---- topics -----------------------------------------------------------------------------------------------------

    def catalog(self) -> Catalog:
        """The topics there are."""
        return {each.name: TopicView(each.id, len(each.partitions)) for each in self._kafka.topics.values()}

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        if event in ("topic created", "topic deleted", "partitions added"):
            for group in self._coordinator.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.hear_of(str(facts["topic"]), is_new=event == "topic created")

    def _match_later(self, group: ConsumerGroup) -> None:
        """Look at the regular expressions when there is reason to, soon, but not in the answer that is under way."""
        settings = self._kafka.settings
        if self._coordinator.when(group, "patterns") is None and group.wants_match(
                self._kafka.clock(), settings.regex_refresh_min_ms / 1000, settings.group_consumer_regex_refresh_interval_ms / 1000):
            self._coordinator.after(group, "patterns", 0, functools.partial(self._match, group))

    def _match(self, group: ConsumerGroup) -> None:
        self._coordinator.cancel(group, "patterns")
        group.match(self.catalog(), self._kafka.clock())
        self.report(group, group.members)

    # ---- moving -----------------------------------------------------------------------------------------------------

    def unload(self, group: ConsumerGroup) -> None:
        """Another broker has the group now: nobody waits for an answer of this one."""

    def load(self, group: ConsumerGroup) -> None:
        """Give every member the time it had."""
        delay = self._kafka.settings.coordinator_load_ms / 1000
        for member in group.members.values():
            self.watch(group, member, delay)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._await_revocation(group, member, delay)

    # ---- telling ----------------------------------------------------------------------------------------------------

    def report(self, group: ConsumerGroup, before: Mapping[str, ConsumerMember]) -> None:
        """Tell what has become of the members."""
        for old in before.values():
            if old.id not in group.members:
                self._kafka.report("member left", group=group.id, member=old.id, instance=old.instance)
        for member in group.members.values():
            if member.id not in before:
                self._kafka.report("member joined", group=group.id, member=member.id, instance=member.instance)
            if member != before.get(member.id):
                self._kafka.report("member reconciled", group=group.id, member=member.id, epoch=member.epoch, state=member.state.name,
                                 assigned=tuple(member.assigned), revoking=tuple(member.revoking))
        self._kafka.report("group", group=group.id, state=group.state.value, generation=group.epoch, leader=None,
                         members=tuple(group.members), protocol=group.assignor)


def _refusable(group: ConsumerGroup, member_id: str, instance: str | None) -> ConsumerMember | int:
    """Who leaves, or why not: the instance id alone will do."""
    try:
        if instance is None:
            return group.member(member_id)
        return group.static_member(member_id or group.statics.get(instance, ""), instance)
    except RefusalError as refused:
        return refused.code


def timer(kind: str, member_id: str) -> str:
    """The name of a member's timer."""
    return f"{kind} {member_id}"
