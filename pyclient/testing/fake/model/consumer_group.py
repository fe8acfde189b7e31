"""A consumer group of the next generation (KIP-848): its members, its epochs, and who is to have what. Pure: waits for nothing, reads no clock.

Three epochs follow each other: the group's grows when members or topics change, the assignment's when all was shared out for it, and each
member's when it has given up what it had to (see `reconciliation`). When things happen is the business of `heartbeats`.
"""
from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.group import Committed
from pyclient.testing.fake.model.patterns import InvalidPatternError, matcher
from pyclient.testing.fake.model.reconciliation import Aim, ConsumerMember, MemberState, Place, reconciled
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.server_assignors import ASSIGNORS, DEFAULT, Subscriber

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_NOW: Final = -2
"""What members send, and a static member that left for now has, instead of an epoch."""


class ConsumerState(enum.Enum):
    """Values are the names that Kafka's answers use."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class TopicView(NamedTuple):
    """What a group knows of a topic: when this changes, it has to share anew."""

    id: UUID
    partitions: int


Catalog: TypeAlias = Mapping[str, TopicView]
"""All topics there are, by name."""


class Matched(NamedTuple):
    """What a regular expression matched when it was looked at last."""

    topics: tuple[str, ...]
    at: float
    """When that was, in the coordinator's seconds."""


@attrs.frozen(kw_only=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat of a member that joins or stays; None is what it does not say, for nothing changed."""

    member_id: str
    epoch: int
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: tuple[Place, ...] | None = None
    client_id: str = ""
    host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says all that a member can say, as after an error."""
        return self.rebalance_timeout_ms != -1 and (self.topics is not None or self.pattern is not None) and self.owned is not None


class Moment(NamedTuple):
    """What a coordinator knows when a request comes."""

    topics: Catalog
    now: float = 0.0
    """In the coordinator's seconds."""
    most: int = 2**31 - 1
    """So many members a group has."""
    interval_s: float = 0.0
    """A group shares anew no sooner than so long after the last time."""


class HeartbeatResponse(NamedTuple):
    """What a member is answered."""

    member: ConsumerMember
    assignment: tuple[Place, ...] | None
    """What it may use from now on; None when that is what it was told before."""


@attrs.define(eq=False)
class ConsumerGroup:
    """A group. Members stand in the order in which they came."""

    kind: ClassVar = "consumer"
    """As Kafka's answers call it."""
    protocol_type: ClassVar = "consumer"
    id: str
    epoch: int = 1
    """The group's; brokers before 4.3 begin with 0."""
    assignment_epoch: int = 1
    """The group's epoch that `targets` are for."""
    shared_at: float = -math.inf
    """When they were found, in the coordinator's seconds."""
    members: dict[str, ConsumerMember] = attrs.field(factory=dict)
    statics: dict[str, str] = attrs.field(factory=dict)
    """``group.instance.id`` → member id."""
    targets: Mapping[str, tuple[Place, ...]] = attrs.field(factory=dict)
    """What each member is to have in the end."""
    topics: Mapping[str, TopicView] = attrs.field(factory=dict)
    """What it is subscribed to, as it was when the group's epoch began."""
    patterns: dict[str, Matched] = attrs.field(factory=dict)
    """The members' regular expressions, as far as they were looked at."""
    offsets: dict[tuple[str, int], Committed] = attrs.field(factory=dict)
    """By topic and partition, as in a classic group."""
    is_outdated: bool = True
    """Topics may have changed since it looked; a new coordinator always looks."""
    has_new_topics: bool = True
    """Topics have come into being since it looked at its regular expressions."""
    is_deleted: bool = False

    @property
    def state(self) -> ConsumerState:
        """It follows from the epochs."""
        if self.is_deleted:
            return ConsumerState.DEAD
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        done = all(each.is_reconciled(self.assignment_epoch) for each in self.members.values())
        return ConsumerState.STABLE if done else ConsumerState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def generation(self) -> int:
        """What a generation is in a classic group."""
        return self.epoch

    def end(self) -> None:
        """An admin deleted it."""
        self.is_deleted = True

    @property
    def assignor(self) -> str:
        """The one most members ask for; the broker's own when none does."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor is not None)
        return max(votes, key=votes.__getitem__, default=DEFAULT)

    def owners(self) -> dict[Place, str]:
        """Who may be using what: the partition is nobody else's before its owner has said that it gave it up."""
        return {place: each.id for each in self.members.values() for place in each.holds}

    def restored(self) -> Self:
        """The group as another coordinator finds it: everything but timers is written before it is answered."""
        return attrs.evolve(self, members=dict(self.members), statics=dict(self.statics), patterns=dict(self.patterns), is_outdated=True, has_new_topics=True)

    def take_over(self, members: Iterable[ConsumerMember], catalog: Catalog) -> None:
        """Begin with members of a classic group, who have what they are to have in this epoch."""
        for each in members:
            self._enter(each)
        self.targets = {each.id: tuple(each.assigned) for each in self.members.values()}
        self.topics = self._seen(catalog)

    # ---- a heartbeat ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, moment: Moment) -> HeartbeatResponse:
        """A member joins, comes back, or stays; it is told what it may use when that is new to it, or when it asks for all.

        Raises:
            Refused: nothing has changed then.
        """
        self.check_size(request.member_id, moment)
        old = self._sender(request)
        member = _updated(old, request)
        if member.pattern != old.pattern and member.pattern and not self._subscribers(member.pattern):
            check_pattern(member.pattern)
        bumps = self.epoch == 0 or set(member.topics) != set(old.topics) or self._pattern_matters(old, member)
        after = self._go_on(old, member, request.owned, moment, bumps=bumps)
        tells = request.epoch == JOINS or request.is_full or after.assigned != old.assigned
        return HeartbeatResponse(after, tuple(after.assigned) if tells else None)

    def let_in(self, old: ConsumerMember, member: ConsumerMember, owned: tuple[Place, ...], moment: Moment) -> ConsumerMember:
        """A classic member joins, or joins again; *old* is what it was before. Raises nothing."""
        bumps = self.epoch == 0 or set(member.topics) != set(old.topics) or member.pattern != old.pattern
        return self._go_on(old, member, owned, moment, bumps=bumps)

    def check_size(self, member_id: str, moment: Moment) -> None:
        """Raises Refused when there is no room for whoever this is."""
        if len(self.members) >= moment.most and member_id not in self.members:
            raise RefusalError(ErrorCode.group_max_size_reached, f"The consumer group has reached its maximum capacity of {moment.most} members.")

    def _go_on(self, old: ConsumerMember, member: ConsumerMember, owned: tuple[Place, ...] | None, moment: Moment, *,
               bumps: bool) -> ConsumerMember:
        """What follows from a member's being as it is now; the epochs, what it is to have, and what it may use."""
        self._enter(member)
        self._forget_pattern(old.pattern)
        if bumps or self.is_outdated:
            self._look(moment.topics, bumps=bumps)
        if self.epoch > self.assignment_epoch and moment.now >= self.shared_at + moment.interval_s:
            self._share(moment)
        resubscribed = set(member.topics) != set(old.topics) or member.pattern != old.pattern
        return self._reconcile(member, owned, moment.topics, resubscribed=resubscribed)

    def _sender(self, request: HeartbeatRequest) -> ConsumerMember:
        """Who sent it, as it was before; a new member, or a static one's new self, is not in the group yet."""
        if request.instance is None:
            return self.newcomer(request.member_id) if request.epoch == JOINS else _in_epoch(self.member(request.member_id), request)
        if request.epoch != JOINS:
            return _in_epoch(self.static_member(request.member_id, request.instance), request)
        before = self.static_of(request.instance)
        if before is not None and before.epoch != LEAVES_FOR_NOW and before.classic is None:
            raise RefusalError(ErrorCode.unreleased_instance_id, f"Static member {request.member_id} with instance id {request.instance} cannot join the group "
                                                  f"because the instance id is owned by {before.id} member.")
        return self.newcomer(request.member_id, before)

    def newcomer(self, member_id: str, instead_of: ConsumerMember | None = None) -> ConsumerMember:
        """Who joins with this id: somebody known, a static member's new self with all it had, or somebody new."""
        if instead_of is not None:
            return attrs.evolve(instead_of, id=member_id, epoch=0, previous_epoch=0)
        return self.members.get(member_id) or ConsumerMember(id=member_id)

    def static_of(self, instance: str | None) -> ConsumerMember | None:
        """The member with this instance id, if there is one."""
        return self.members.get(self.statics.get(instance or "", ""))

    def member(self, member_id: str) -> ConsumerMember:
        """Raises Refused when there is no such member."""
        if member_id not in self.members:
            raise RefusalError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.id}.")
        return self.members[member_id]

    def static_member(self, member_id: str, instance: str) -> ConsumerMember:
        """Raises Refused when nobody has this instance id, or another member."""
        if instance not in self.statics:
            raise RefusalError(ErrorCode.unknown_member_id, f"Instance id {instance} is unknown.")
        if self.statics[instance] != member_id:
            raise RefusalError(ErrorCode.fenced_instance_id, f"Static member {member_id} with instance id {instance} was fenced by member "
                                              f"{self.statics[instance]}.")
        return self.members[member_id]

    def _enter(self, member: ConsumerMember) -> None:
        """Let a member in, or have its new self take the place of the old one."""
        before = self.statics.get(member.instance or "", member.id)
        if before != member.id:
            self.members = {member.id if key == before else key: each for key, each in self.members.items()}
            self.targets = {member.id if key == before else key: places for key, places in self.targets.items()}
        self.members[member.id] = member
        if member.instance is not None:
            self.statics[member.instance] = member.id

    def _reconcile(self, member: ConsumerMember, owned: tuple[Place, ...] | None, catalog: Catalog, *, resubscribed: bool) -> ConsumerMember:
        held = self.owners()
        aim = Aim(epoch=self.assignment_epoch, places=self.targets.get(member.id, ()), topics=self._topic_ids(member, catalog),
                  owned=owned, is_held=held.__contains__)
        self.members[member.id] = after = reconciled(member, aim, resubscribed=resubscribed)
        return after

    def has_for(self, member: ConsumerMember) -> bool:
        """Whether what it waits for is free now, all of it."""
        held = self.owners()
        return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
            place in held for place in self.targets.get(member.id, ()) if place not in member.assigned)

    # ---- topics -----------------------------------------------------------------------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member names the topic, or a regular expression has matched it."""
        return any(topic in each.topics for each in self.members.values()) or any(topic in each.topics for each in self.patterns.values())

    def hear_of(self, topic: str, *, is_new: bool) -> None:
        """A topic has come, gone or changed: a reason to look, if it matters to this group."""
        self.is_outdated |= self.is_subscribed_to(topic)
        self.has_new_topics |= is_new

    def _topic_names(self, member: ConsumerMember) -> Iterable[str]:
        matched = self.patterns.get(member.pattern)
        return dict.fromkeys([*member.topics, *(matched.topics if matched is not None else ())])

    def _topic_ids(self, member: ConsumerMember, catalog: Catalog) -> tuple[UUID, ...]:
        return tuple(catalog[name].id for name in self._topic_names(member) if name in catalog)

    def _look(self, catalog: Catalog, *, bumps: bool) -> None:
        """See what the topics are like now; the group's epoch grows when they changed, too."""
        seen = self._seen(catalog)
        if bumps or seen != self.topics:
            self.epoch += 1
        self.topics = seen
        self.is_outdated = False

    def _seen(self, catalog: Catalog) -> dict[str, TopicView]:
        names = {name for each in self.members.values() for name in self._topic_names(each)}
        return {name: catalog[name] for name in sorted(names) if name in catalog}

    def _share(self, moment: Moment) -> None:
        """Find out who is to have what in this epoch of the group."""
        asking = {each.id: Subscriber(self._topic_ids(each, moment.topics), self.targets.get(each.id, ()), each.instance)
                  for each in self.members.values()}
        self.targets = ASSIGNORS[self.assignor](asking, {each.id: each.partitions for each in moment.topics.values()})
        self.assignment_epoch, self.shared_at = self.epoch, moment.now

    # ---- regular expressions ----------------------------------------------------------------------------------------

    def _subscribers(self, pattern: str) -> int:
        return sum(each.pattern == pattern for each in self.members.values())

    def _pattern_matters(self, old: ConsumerMember, member: ConsumerMember) -> bool:
        """Whether it is known already what another regular expression means; else its epoch comes when it is looked at."""
        return member.pattern != old.pattern and (not member.pattern or member.pattern in self.patterns)

    def _forget_pattern(self, pattern: str) -> None:
        if not self._subscribers(pattern):
            self.patterns.pop(pattern, None)

    def wants_match(self, now: float, least_s: float, most_s: float) -> bool:
        """Whether its regular expressions should be looked at: not too often, and for a reason, which age is one of."""
        wanted = {each.pattern for each in self.members.values() if each.pattern}
        last = max((each.at for each in self.patterns.values()), default=-math.inf)
        return bool(wanted) and now > last + least_s and (not wanted <= self.patterns.keys() or self.has_new_topics or now > last + most_s)

    def match(self, catalog: Catalog, now: float) -> None:
        """Look at every regular expression anew; the group's epoch grows when one matches other topics than before."""
        changed, self.has_new_topics = False, False
        for pattern in dict.fromkeys(each.pattern for each in self.members.values() if each.pattern):
            known = self.patterns.get(pattern, Matched((), now))
            fits = matcher(pattern)
            self.patterns[pattern] = found = Matched(tuple(sorted(name for name in catalog if fits(name))), now)
            changed |= found.topics != known.topics
        self._look(catalog, bumps=changed)

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def leave_for_now(self, member: ConsumerMember) -> None:
        """A static member goes, and will be back: what it has stays its own, as if it had had it always."""
        self.members[member.id] = attrs.evolve(member, epoch=LEAVES_FOR_NOW, assigned=dict.fromkeys(member.assigned, 0), revoking={})

    def remove(self, gone: Iterable[ConsumerMember], catalog: Catalog) -> None:
        """Members are gone for good; what they had is free. Who gets it is found out with the next heartbeat of another one."""
        for member in gone:
            del self.members[member.id]
            if member.instance is not None and self.statics.get(member.instance) == member.id:
                del self.statics[member.instance]
            self._forget_pattern(member.pattern)
        self.targets = {key: places for key, places in self.targets.items() if key in self.members}
        self._look(catalog, bumps=True)

    # ---- offsets ----------------------------------------------------------------------------------------------------

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Who asks for offsets as a member has to be in its epoch.

        Raises:
            Refused: it is not, or is nobody.
        """
        member = self.member(member_id)
        if member.epoch != epoch:
            raise _stale(member)

    def check_commit(self, member_id: str, epoch: int, places: Iterable[Place]) -> None:
        """Who commits may be in an epoch before its own, but not before it got the partitions (KIP-1251, since 4.3).

        Raises:
            Refused: it is not, or is nobody; then none of the partitions is committed.
        """
        member = self.member(member_id)
        late = epoch < member.epoch and any(epoch < member.holds.get(each, member.epoch) for each in places)
        if epoch > member.epoch or late:
            raise _stale(member)


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what it says of itself; what it does not say stays."""
    said: dict[str, Any] = {name: getattr(request, name) for name in ("instance", "rack", "topics", "pattern", "assignor")}
    if request.rebalance_timeout_ms != -1:
        said["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    return attrs.evolve(member, client_id=request.client_id, host=request.host, classic=None, **{name: value for name, value in said.items() if value is not None})


def _in_epoch(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The epoch before is good enough for who has nothing that it may not have: the answer with the new one may have been lost."""
    late = request.epoch == member.previous_epoch and request.owned is not None and all(each in member.assigned for each in request.owned)
    if request.epoch == member.epoch or (request.epoch < member.epoch and late):
        return member
    than = "greater" if request.epoch > member.epoch else "smaller"
    raise RefusalError(ErrorCode.fenced_member_epoch, f"The consumer group member has a {than} member epoch ({request.epoch}) than the one known by the group "
                                       f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.")


def _stale(member: ConsumerMember) -> RefusalError:
    return RefusalError(ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation)


def check_pattern(pattern: str) -> None:
    """Raises Refused when RE2 does not take it."""
    try:
        matcher(pattern)
    except InvalidPatternError as invalid:
        raise RefusalError(ErrorCode.invalid_regular_expression,
                      f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {invalid}.") from None
