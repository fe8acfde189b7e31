"""Classic members in a consumer group of KIP-848, as during an online upgrade.

There is no group leader and no join barrier: a member gets its current assignment at once. When that must change, its
heartbeat is answered with REBALANCE_IN_PROGRESS; it rejoins with its owned partitions until it has its target.
"""
from __future__ import annotations

import attrs
from kio.schema.errors import ErrorCode

from pyclient.records import TopicPartition
from pyclient.testing.fake.model.request import Fields
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.heartbeats import JOIN, SYNC, ConsumerMembership, timer
from pyclient.testing.fake.model.membership import Joining, join_error
from pyclient.testing.fake.model.migration import PROTOCOL_TYPE, Policy, places
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.reconciliation import Classic, ConsumerMember, MemberState
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.subscription import Subscription, read_subscription, written


class ClassicMembers:
    """Classic members of all KIP-848 groups of a cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._members = kafka.part(ConsumerMembership)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: Joining) -> Fields:
        """JoinGroup: the member's epoch is its generation.

        Raises:
            RefusalError: this member cannot join.
        """
        if self._members.policy is Policy.DISABLED:
            raise RefusalError(ErrorCode.inconsistent_group_protocol)
        member_id = request.member_id or self._members.new_id()
        group.check_size(member_id, self._members.moment())
        if not _supports(group, request):
            raise RefusalError(ErrorCode.inconsistent_group_protocol)
        if not request.member_id and request.instance is None and request.needs_known_id:
            return join_error(ErrorCode.member_id_required, member_id)
        member = self._entered(group, request, _before(group, request, member_id))
        return {**join_error(0, member.id), "generation_id": member.epoch, "protocol_type": PROTOCOL_TYPE, "protocol_name": request.names[0]}

    def _entered(self, group: ConsumerGroup, request: Joining, old: ConsumerMember) -> ConsumerMember:
        said = read_subscription(request.protocols[0][1])
        before, moment = dict(group.members), self._members.moment()
        downgrades = self._downgrades(group, request.instance)
        owned = places(said.owned, moment.topics)
        if downgrades:
            moment = moment._replace(interval_s=float("inf"))
        member = group.let_in(old, _updated(old, request, said), owned, moment)
        self._coordinator.cancel(group, timer(JOIN, member.id))
        if downgrades:
            self._members.downgrade(group, [], rebalances=group.assignment_epoch < group.epoch)
        else:
            self._members.after(group, before, member)
            self._members.expire_after(group, member, SYNC, request.rebalance_timeout_ms / 1000)
        return member

    def _downgrades(self, group: ConsumerGroup, instance: str | None) -> bool:
        """Whether the static member replaces the last member that was not classic."""
        before = group.static_of(instance)
        return (before is not None and before.classic is None
                and all(each.classic is not None for each in group.members.values() if each is not before)
                and self._members.policy.downgrades and len(group.members) <= self._kafka.settings.group_max_size)

    # ---- sync and heartbeat ------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, member_id: str, instance: str | None, generation: int,
             names: tuple[str | None, str | None]) -> Fields:
        """SyncGroup: the current assignment; *names* are the protocol type and name.

        Raises:
            RefusalError: the member is in another epoch, or must rejoin.
        """
        member, classic = _classic(group, member_id, instance, generation)
        if names[0] not in (None, PROTOCOL_TYPE) or names[1] not in (None, classic.protocol):
            raise RefusalError(ErrorCode.inconsistent_group_protocol)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(group, member)
            raise RefusalError(ErrorCode.rebalance_in_progress)
        self._coordinator.cancel(group, timer(SYNC, member.id))
        self._members.watch(group, member)
        return {"throttle_time": 0, "error_code": 0, "protocol_type": names[0], "protocol_name": names[1],
                "assignment": self._assignment(member, classic)}

    def _assignment(self, member: ConsumerMember, classic: Classic) -> bytes:
        topics = {each.id: name for name, each in self._members.catalog().items()}
        version = read_subscription(classic.protocols[0][1]).version
        return written([TopicPartition(topics[topic], index) for topic, index in member.assigned if topic in topics], version)

    def heartbeat(self, group: ConsumerGroup, member_id: str, instance: str | None, generation: int) -> None:
        """Heartbeat.

        Raises:
            RefusalError: the member is in another epoch, or must rejoin.
        """
        member, _ = _classic(group, member_id, instance, generation)
        self._members.watch(group, member)
        if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or group.has_for(member):
            self._await_join(group, member)
            raise RefusalError(ErrorCode.rebalance_in_progress)

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start its rebalance timeout, unless it runs since an earlier REBALANCE_IN_PROGRESS."""
        if self._coordinator.when(group, timer(JOIN, member.id)) is None:
            self._members.expire_after(group, member, JOIN, member.rebalance_timeout_ms / 1000)


def _supports(group: ConsumerGroup, request: Joining) -> bool:
    """Whether one protocol is supported by this member and all other classic members."""
    others = [{name for name, _ in each.classic.protocols} for each in group.members.values() if each.classic is not None]
    return request.protocol_type == PROTOCOL_TYPE and any(all(name in each for each in others) for name in request.names)


def _before(group: ConsumerGroup, request: Joining, member_id: str) -> ConsumerMember:
    """The member before this request; a static one without id replaces its previous instance. Raises RefusalError."""
    if request.instance is None:
        return group.newcomer(member_id)
    if request.member_id:
        return group.static_member(member_id, request.instance)
    return group.newcomer(member_id, group.static_of(request.instance))


def _updated(member: ConsumerMember, request: Joining, said: Subscription) -> ConsumerMember:
    return attrs.evolve(
        member, instance=request.instance, rack=said.rack or member.rack, rebalance_timeout_ms=request.rebalance_timeout_ms, topics=said.topics,
        pattern="", client_id=request.client_id, host=request.host, classic=Classic(request.session_timeout_ms, request.protocols))


def _classic(group: ConsumerGroup, member_id: str, instance: str | None, generation: int) -> tuple[ConsumerMember, Classic]:
    """Raises RefusalError when there is no such classic member in this generation."""
    member = group.member(member_id) if instance is None else group.static_member(member_id, instance)
    if member.classic is None:
        raise RefusalError(ErrorCode.unknown_member_id)
    if member.epoch != generation:
        raise RefusalError(ErrorCode.illegal_generation)
    return member, member.classic
