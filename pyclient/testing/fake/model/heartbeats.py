"""Members of KIP-848 groups: heartbeats, leaving, session expiry and revocation timeouts.

The rules are in `consumer_group`; here are the triggers: requests, timers, topic changes, coordinator moves.
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
"""A member's timers; the last two belong to classic members."""
NEW_EPOCHS_SINCE: Final = "4.3"
"""Since this release groups start with epoch 1, and commits may name older epochs (KIP-1251)."""


class ConsumerMembership:
    """Members of all KIP-848 groups of a cluster. Every request is answered at once."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._coordinator.keepers[ConsumerGroup] = self
        kafka.listeners.append(self._on_event)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def heartbeat(self, group: AnyGroup | None, group_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        """A heartbeat of a member that joins or stays.

        Raises:
            RefusalError: there is no such group or member, or another member replaced it.
        """
        found = self._joinable(group, group_id) if request.epoch == JOINS else self.existing(group, group_id, "Consumer group")
        before = dict(found.members)
        response = found.heartbeat(request, self.moment())
        if found is not group:
            self._begin(found, group)
        self.after(found, before, response.member)
        return response

    def after(self, group: ConsumerGroup, before: Mapping[str, ConsumerMember], member: ConsumerMember) -> None:
        """Follow up a join or heartbeat; *before* are all members as they were."""
        self.report(group, before)
        self.watch(group, member)
        self._watch_revocation(group, before.get(member.id), member)
        self._match_later(group)

    def moment(self) -> Moment:
        """The coordinator's current view."""
        settings = self._kafka.settings
        return Moment(self.catalog(), self._kafka.clock(), settings.group_consumer_max_size,
                      settings.group_consumer_assignment_interval_ms / 1000)

    def leave(self, group: AnyGroup | None, group_id: str, request: HeartbeatRequest) -> None:
        """A member leaves permanently, or a static one temporarily.

        Raises:
            RefusalError: there is no such group or member.
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
        """LeaveGroup, by which admins remove members of any kind; an error code for each."""
        found = [_refusable(group, member_id, instance) for member_id, instance in leaving]
        gone = {each.id: each for each in found if isinstance(each, ConsumerMember)}
        if gone:
            self.remove(group, list(gone.values()))
        return [each if isinstance(each, int) else 0 for each in found]

    def _joinable(self, group: AnyGroup | None, group_id: str) -> ConsumerGroup:
        """The group, or a conversion of a classic one; it is published only after the member joined."""
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
        """Which online conversions are allowed."""
        return Policy(self._kafka.settings.group_consumer_migration_policy)

    def existing(self, group: AnyGroup | None, group_id: str, called: str) -> ConsumerGroup:
        """Raises RefusalError when this is not a KIP-848 group."""
        if group is None:
            raise RefusalError(ErrorCode.group_id_not_found, f"{called} {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise RefusalError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return group

    def new_id(self) -> str:
        """An id for a member without one, as before version 1."""
        return base64.urlsafe_b64encode(self._kafka.random.randbytes(16)).decode().rstrip("=")

    # ---- expiry ------------------------------------------------------------------------------------------------------

    def expire(self, group: ConsumerGroup, member_id: str) -> None:
        """Expire a member, as after its session timeout."""
        self.remove(group, [group.members[member_id]])

    def remove(self, group: ConsumerGroup, gone: Sequence[ConsumerMember]) -> None:
        """Remove members in one epoch. When only classic ones are left, the group becomes a classic one."""
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
        """Convert it to a classic group."""
        for name in without:
            self._kafka.report("member left", group=group.id, member=name, instance=group.members[name].instance)
        self._kafka.part(Membership).adopt(downgraded(group, without, self.catalog()), rebalances=rebalances)

    def watch(self, group: ConsumerGroup, member: ConsumerMember, more_s: float = 0.0) -> None:
        """Restart the member's session timeout."""
        timeout_ms = self._kafka.settings.group_consumer_session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.expire_after(group, member, SESSION, more_s + timeout_ms / 1000)

    def expire_after(self, group: ConsumerGroup, member: ConsumerMember, kind: str, seconds: float) -> None:
        """Expire the member unless the timer of this kind is cancelled or replaced."""
        self._coordinator.after(group, timer(kind, member.id), seconds, functools.partial(self._expire, group, member.id))

    def _expire(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id in group.members:
            self.expire(group, member_id)

    def _watch_revocation(self, group: ConsumerGroup, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """A revocation must be confirmed within the rebalance timeout; another revocation restarts it."""
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

    # ---- topics ------------------------------------------------------------------------------------------------------

    def catalog(self) -> Catalog:
        """All topics."""
        return {each.name: TopicView(each.id, len(each.partitions)) for each in self._kafka.topics.values()}

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        if event in ("topic created", "topic deleted", "partitions added"):
            for group in self._coordinator.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.on_topic_change(str(facts["topic"]), is_new=event == "topic created")

    def _match_later(self, group: ConsumerGroup) -> None:
        """Resolve the patterns if needed: soon, but not within the current response."""
        settings = self._kafka.settings
        if self._coordinator.when(group, "patterns") is None and group.wants_match(
                self._kafka.clock(), settings.regex_refresh_min_ms / 1000, settings.group_consumer_regex_refresh_interval_ms / 1000):
            self._coordinator.after(group, "patterns", 0, functools.partial(self._match, group))

    def _match(self, group: ConsumerGroup) -> None:
        self._coordinator.cancel(group, "patterns")
        group.match(self.catalog(), self._kafka.clock())
        self.report(group, group.members)

    # ---- moving ------------------------------------------------------------------------------------------------------

    def unload(self, group: ConsumerGroup) -> None:
        """Nothing to do: no member waits for an answer."""

    def load(self, group: ConsumerGroup) -> None:
        """Restart every member's timers."""
        delay = self._kafka.settings.coordinator_load_ms / 1000
        for member in group.members.values():
            self.watch(group, member, delay)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._await_revocation(group, member, delay)

    # ---- reports -----------------------------------------------------------------------------------------------------

    def report(self, group: ConsumerGroup, before: Mapping[str, ConsumerMember]) -> None:
        """Report changes of the members."""
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
    """The leaving member, or an error code; the instance id alone is enough."""
    try:
        if instance is None:
            return group.member(member_id)
        return group.static_member(member_id or group.statics.get(instance, ""), instance)
    except RefusalError as refused:
        return refused.code


def timer(kind: str, member_id: str) -> str:
    """The name of a member's timer."""
    return f"{kind} {member_id}"
