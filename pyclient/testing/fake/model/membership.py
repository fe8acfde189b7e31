"""Rebalances of classic groups: join, sync, heartbeat, leave and session expiry."""
from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Fields
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.group import Committed, Event, Group, Member, State
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.refusal import RefusalError

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""Session of a member that has not received its id yet: without one it cannot send heartbeats."""
TICK_S: Final = 1e-4
"""Loops may wake a little early."""
Pending: TypeAlias = "asyncio.Future[Fields]"


@attrs.frozen(kw_only=True)
class Joining:
    """A JoinGroup request."""

    client_id: str
    host: str
    member_id: str
    instance: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool
    """A dynamic member must rejoin with the id it is given (KIP-394)."""
    may_skip_assignment: bool
    """It understands ``skip_assignment`` (KIP-814)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The protocols it supports."""
        return tuple(name for name, _ in self.protocols)

    def new_member(self, member_id: str) -> Member:
        """The member that this request describes."""
        return Member(id=member_id, instance=self.instance, client_id=self.client_id, host=self.host,
                      session_timeout_ms=self.session_timeout_ms, rebalance_timeout_ms=self.rebalance_timeout_ms,
                      protocol_type=self.protocol_type, protocols=self.protocols)


class SessionTimers:
    """Deadlines of members' sessions and of ids that no member uses yet; one timer per group.

    *expire* removes a member; *id_expired* is called after an unused id was removed.
    """

    def __init__(self, kafka: Kafka, expire: Callable[[Group, str], None], id_expired: Callable[[Group], None]) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._expire = expire
        self._id_expired = id_expired

    def restart(self, group: Group, member: Member, seconds: float | None = None) -> None:
        """Begin a member's session again, with its session timeout or for *seconds*."""
        member.silent_at = self._kafka.clock() + (member.session_timeout_ms / 1000 if seconds is None else seconds)
        self._watch(group, member.silent_at)

    def reserve(self, group: Group, member_id: str, seconds: float) -> None:
        """Keep an id for a member that must rejoin with it."""
        group.pending[member_id] = self._kafka.clock() + seconds
        self._watch(group, group.pending[member_id])

    def _watch(self, group: Group, until: float) -> None:
        """Schedule a check at the deadline; heartbeats move deadlines, not the timer."""
        planned = self._coordinator.when(group, "watch")
        if until != math.inf and (planned is None or planned > until):
            self._coordinator.after(group, "watch", until - self._kafka.clock(), lambda: self._check(group))

    def _check(self, group: Group) -> None:
        """Drop unused ids and members with an expired session; a waiting request keeps a session alive."""
        self._coordinator.cancel(group, "watch")
        now = self._kafka.clock() + TICK_S
        for member in [each for each in group.members.values() if each.silent_at <= now]:
            if member.waits and not member.is_new:
                member.silent_at = math.inf
            elif member.id in group.members:
                self._expire(group, member.id)
        for member_id in [key for key, until in group.pending.items() if until <= now]:
            del group.pending[member_id]
            self._id_expired(group)
        deadlines = [*group.pending.values(), *(each.silent_at for each in group.members.values())]
        self._watch(group, min(deadlines, default=math.inf))


class Membership:
    """Members of all classic groups of a cluster. A response is immediate or a future that a later event completes."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._coordinator.keepers[Group] = self
        self._sessions = SessionTimers(kafka, self.expire, self._id_expired)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def join(self, group: Group | None, group_id: str, request: Joining) -> Fields | Pending:
        """JoinGroup: answered when all members have joined or the rebalance timeout is over.

        Raises:
            RefusalError: this member cannot join.
        """
        if group is None and request.member_id:
            raise RefusalError(ErrorCode.unknown_member_id)
        group = group or self.made(group_id)
        if not group.accepts(request.member_id, self._kafka.settings.group_max_size):
            self._drop(group, request.member_id)
            return join_error(ErrorCode.group_max_size_reached)
        if not group.supports(request.protocol_type, request.names):
            raise RefusalError(ErrorCode.inconsistent_group_protocol)
        if not request.member_id:
            return self._join_new(group, request)
        if request.member_id in group.pending:
            return self._enter(group, request, request.member_id)
        return self._rejoin(group, request, known(group, request.member_id, request.instance))

    def made(self, group_id: str, offsets: dict[tuple[str, int], Committed] | None = None) -> Group:
        """A new empty group, perhaps with the offsets of the one it replaces."""
        group = Group(group_id, offsets={} if offsets is None else offsets)
        group.save()
        self._coordinator.put(group)
        return group

    def _join_new(self, group: Group, request: Joining) -> Fields | Pending:
        uuid = UUID(int=self._kafka.random.getrandbits(128), version=4)
        member_id = f"{request.client_id if request.instance is None else request.instance}-{uuid}"
        if request.instance is not None:
            known_as = group.statics.get(request.instance)
            return (self._enter(group, request, member_id) if known_as is None
                    else self._return(group, request, group.members[known_as], member_id))
        if request.needs_known_id:
            self._sessions.reserve(group, member_id, request.session_timeout_ms / 1000)
            return join_error(ErrorCode.member_id_required, member_id)
        return self._enter(group, request, member_id)

    def _enter(self, group: Group, request: Joining, member_id: str) -> Pending:
        member = request.new_member(member_id)
        if group.state is State.PREPARING and group.before is State.EMPTY:
            group.has_new_member = True
        group.add(member)
        waiting = _await_join(member)
        self._sessions.restart(group, member, NEW_MEMBER_TIMEOUT_S)
        self._kafka.report("member joined", group=group.id, member=member.id, instance=member.instance)
        self._rebalance(group)
        return waiting

    def _rejoin(self, group: Group, request: Joining, member: Member) -> Fields | Pending:
        match group.state:
            case State.COMPLETING if member.protocols == request.protocols:
                return _joined(group, member)
            case State.STABLE if member.protocols == request.protocols and member.id != group.leader:
                return _joined(group, member)
            case State.EMPTY:
                return join_error(ErrorCode.unknown_member_id)
        _update(member, request)
        waiting = _await_join(member)
        self._rebalance(group)
        return waiting

    def _return(self, group: Group, request: Joining, old: Member, member_id: str) -> Fields | Pending:
        """A static member joins without its id: it was restarted, and its previous instance is fenced."""
        led_by = group.leader
        member = group.replace(old, member_id)
        old.answer_join(join_error(ErrorCode.fenced_instance_id, old.id))
        old.answer_sync(sync_error(ErrorCode.fenced_instance_id))
        _update(member, request)
        self._sessions.restart(group, member)
        self._kafka.report("member replaced", group=group.id, member=member.id, instead_of=old.id, instance=member.instance)
        if group.state is State.STABLE and group.choose() == group.protocol:
            group.save()
            return _unchanged(group, member, str(led_by), request)
        waiting = _await_join(member)
        self._rebalance(group)
        return waiting

    # ---- a rebalance -------------------------------------------------------------------------------------------------

    def _rebalance(self, group: Group) -> None:
        """Start a rebalance, or complete the current one when no member is missing."""
        if group.state is not State.PREPARING:
            self._prepare(group)
        elif group.all_joined and group.before is not State.EMPTY:
            self._complete(group)

    def _prepare(self, group: Group) -> None:
        if group.state is State.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                member.answer_sync(sync_error(ErrorCode.rebalance_in_progress))
        self._coordinator.cancel(group, "sync")
        group.on(Event.DISTURBED)
        self._report(group)
        if group.before is State.EMPTY:
            delay = self._kafka.settings.group_initial_rebalance_delay_ms
            self._gather(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        elif group.all_joined:
            self._complete(group)
        else:
            self._wait_for_members(group)

    def _gather(self, group: Group, delay_ms: int, left_ms: int) -> None:
        """The initial rebalance waits for more members."""
        self._coordinator.after(group, "join", delay_ms / 1000, lambda: self._gathered(group, delay_ms, left_ms))

    def _gathered(self, group: Group, delay_ms: int, left_ms: int) -> None:
        if group.has_new_member and left_ms:
            group.has_new_member = False
            self._gather(group, min(self._kafka.settings.group_initial_rebalance_delay_ms, left_ms), max(left_ms - delay_ms, 0))
        else:
            self._complete(group)

    def _wait_for_members(self, group: Group) -> None:
        self._coordinator.after(group, "join", group.rebalance_timeout_ms / 1000, lambda: self._complete(group))

    def _complete(self, group: Group) -> None:
        """End of the join phase: dynamic members that did not join are removed."""
        self._coordinator.cancel(group, "join")
        for member in [each for each in group.members.values() if each.joining is None and each.instance is None]:
            self._drop(group, member.id)
        if group.members and not group.elect():
            self._wait_for_members(group)
            return
        group.has_new_member = False
        group.begin_generation()
        self._report(group)
        if group.members:
            self._answer_joins(group)
        else:
            group.save()

    def _answer_joins(self, group: Group) -> None:
        """Answer the JoinGroups and wait for the leader's assignment."""
        for member in group.members.values():
            member.answer_join(_joined(group, member))
            member.is_new = False
            group.unsynced[member.id] = None
            self._sessions.restart(group, member)
        generation = group.generation
        self._coordinator.after(group, "sync", group.rebalance_timeout_ms / 1000, lambda: self._sync_is_over(group, generation))

    def _sync_is_over(self, group: Group, generation: int) -> None:
        """Remove members that did not send SyncGroup in time."""
        if group.generation == generation and group.unsynced and group.state in (State.COMPLETING, State.STABLE):
            for member_id in list(group.unsynced):
                self._drop(group, member_id)
            self._prepare(group)

    # ---- sync, heartbeat, leave --------------------------------------------------------------------------------------

    def sync(self, group: Group, member: Member, assignments: Mapping[str, bytes]) -> Fields | Pending:
        """SyncGroup of a member of the current generation.

        Raises:
            RefusalError: the group does not expect it.
        """
        match group.state:
            case State.EMPTY:
                raise RefusalError(ErrorCode.unknown_member_id)
            case State.PREPARING:
                raise RefusalError(ErrorCode.rebalance_in_progress)
        self._synced(group, member)
        if group.state is State.STABLE:
            return synced(group, member)
        waiting = member.syncing = asyncio.get_running_loop().create_future()
        if member.id == group.leader:
            self._assign(group, assignments)
        return waiting

    def _synced(self, group: Group, member: Member) -> None:
        group.unsynced.pop(member.id, None)
        if not group.unsynced:
            self._coordinator.cancel(group, "sync")

    def _assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        group.on(Event.ASSIGNED)
        for member in group.members.values():
            member.assignment = bytes(assignments.get(member.id, b""))
            member.answer_sync(synced(group, member))
            self._sessions.restart(group, member)
        group.save()
        self._report(group)

    def heartbeat(self, group: Group, member: Member) -> None:
        """Heartbeat of a member of the current generation.

        Raises:
            RefusalError: it must rejoin.
        """
        if group.state is State.EMPTY:
            raise RefusalError(ErrorCode.unknown_member_id)
        self._sessions.restart(group, member)
        if group.state is State.PREPARING:
            raise RefusalError(ErrorCode.rebalance_in_progress)

    def alive(self, group: Group, member: Member) -> None:
        """Restart the session timeout, as after a commit."""
        self._sessions.restart(group, member)

    def leave_all(self, group: Group, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """Members leave, by id or instance id; an error code for each. There is one rebalance for all of them."""
        codes, gone = [], False
        for member_id, instance in leaving:
            try:
                gone |= self._leave(group, member_id, instance)
                codes.append(0)
            except RefusalError as refused:
                codes.append(refused.code)
        if gone:
            self.left(group)
        return codes

    def _leave(self, group: Group, member_id: str, instance: str | None) -> bool:
        """Whether the group has to rebalance. Raises RefusalError when there is no such member."""
        if not member_id:
            member_id = group.statics.get(instance or "", "")
            if instance is None or not member_id:
                raise RefusalError(ErrorCode.unknown_member_id)
        elif member_id in group.pending:
            self._drop(group, member_id)
            return False
        else:
            known(group, member_id, instance)
        self._drop(group, member_id)
        return True

    def left(self, group: Group) -> None:
        """Members were removed: the others rebalance."""
        if group.state is not State.EMPTY:
            self._rebalance(group)

    # ---- expiry ------------------------------------------------------------------------------------------------------

    def expire(self, group: Group, member_id: str) -> None:
        """Expire a member, as after its session timeout."""
        self._drop(group, member_id)
        self.left(group)

    def _id_expired(self, group: Group) -> None:
        if group.state is State.PREPARING:
            self._rebalance(group)

    def _drop(self, group: Group, member_id: str) -> None:
        member = group.remove(member_id)
        if member is not None:
            member.answer_join(join_error(ErrorCode.unknown_member_id))
            member.answer_sync(sync_error(ErrorCode.unknown_member_id))
            self._kafka.report("member left", group=group.id, member=member.id, instance=member.instance)

    # ---- conversion --------------------------------------------------------------------------------------------------

    def dismiss(self, group: Group) -> None:
        """The group was upgraded: waiting members must rejoin."""
        for member in group.members.values():
            member.answer_join(join_error(ErrorCode.rebalance_in_progress, member.id))
            member.answer_sync(sync_error(ErrorCode.rebalance_in_progress))

    def adopt(self, group: Group, *, rebalances: bool) -> None:
        """A KIP-848 group was downgraded: only classic members are left."""
        group.save()
        self._coordinator.put(group)
        for member in group.members.values():
            self._sessions.restart(group, member)
        self._report(group)
        if rebalances:
            self._prepare(group)

    # ---- moving ------------------------------------------------------------------------------------------------------

    def unload(self, group: Group) -> None:
        """Waiting members must find the new coordinator."""
        for member in group.members.values():
            member.answer_join(join_error(ErrorCode.not_coordinator))
            member.answer_sync(sync_error(ErrorCode.not_coordinator))

    def load(self, group: Group) -> None:
        """Restart every member's timers."""
        delay = self._kafka.settings.coordinator_load_ms / 1000
        for member in group.members.values():
            self._sessions.restart(group, member, delay + member.session_timeout_ms / 1000)

    # ---- reports -----------------------------------------------------------------------------------------------------

    def _report(self, group: Group) -> None:
        self._kafka.report("group", group=group.id, state=group.state.value, generation=group.generation, leader=group.leader,
                         members=tuple(group.members), protocol=group.protocol)


def known(group: Group, member_id: str, instance: str | None) -> Member:
    """The member with this id or instance id.

    Raises:
        RefusalError: there is none, or another one has the instance id now.
    """
    if instance is not None:
        owner = group.statics.get(instance)
        if owner is None:
            raise RefusalError(ErrorCode.unknown_member_id)
        if owner != member_id:
            raise RefusalError(ErrorCode.fenced_instance_id)
    if member_id not in group.members:
        raise RefusalError(ErrorCode.unknown_member_id)
    return group.members[member_id]


def current(group: Group, member_id: str, instance: str | None, generation: int) -> Member:
    """The same, in the current generation."""
    member = known(group, member_id, instance)
    if generation != group.generation:
        raise RefusalError(ErrorCode.illegal_generation)
    return member


def join_error(code: int, member_id: str = "") -> Fields:
    """A JoinGroup response with an error."""
    return {"throttle_time": 0, "error_code": code, "generation_id": -1, "protocol_type": None, "protocol_name": None, "leader": "",
            "skip_assignment": False, "member_id": member_id, "members": []}


def sync_error(code: int) -> Fields:
    """A SyncGroup response without assignment."""
    return {"throttle_time": 0, "error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}


def synced(group: Group, member: Member) -> Fields:
    """A SyncGroup response."""
    return {"throttle_time": 0, "error_code": 0, "protocol_type": group.protocol_type, "protocol_name": group.protocol,
            "assignment": member.assignment}


def _await_join(member: Member) -> Pending:
    member.joining = asyncio.get_running_loop().create_future()
    return member.joining


def _update(member: Member, request: Joining) -> None:
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id, member.host = request.client_id, request.host


def _joined(group: Group, member: Member) -> Fields:
    """The leader's response lists the members; the others name the leader."""
    return {"throttle_time": 0, "error_code": 0, "generation_id": group.generation, "protocol_type": group.protocol_type,
            "protocol_name": group.protocol, "leader": group.leader, "skip_assignment": False, "member_id": member.id,
            "members": _described(group) if member.id == group.leader else []}


def _described(group: Group) -> list[Fields]:
    return [{"member_id": each.id, "group_instance_id": each.instance, "metadata": each.metadata(group.protocol)}
            for each in group.members.values()]


def _unchanged(group: Group, member: Member, led_by: str, request: Joining) -> Fields:
    """A static member returns to the same generation.

    An old leader client gets its previous id, so that it does not assign again.
    """
    if request.may_skip_assignment:
        return {**_joined(group, member), "skip_assignment": member.id == group.leader}
    return {**_joined(group, member), "leader": led_by, "members": []}
