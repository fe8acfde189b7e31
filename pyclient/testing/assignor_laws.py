"""The laws of assignors, checked with random groups: for users' assignors and the built-in ones.

Groups start small and change over a few rebalances; the first one that breaks a law is shown. A seed always draws the
same groups.
"""
from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView, SeesAssignment, SendsUserData
from pyclient.records import Node, TopicPartition

PROTOCOLS: Final = frozenset({"eager", "cooperative"})
RACKS: Final = ("east", "west", None)
TOPICS: Final = ("orders", "payments", "returns")
LARGEST: Final = 8
CHANGES: Final = 3
SETTLES_WITHIN: Final = 10
"""Cooperative rebalances that may follow each other until every partition has an owner."""
Answer = Mapping[str, Assignment]


def check_assignor(assignor: object, *, broadcast: bool = False, groups: int = 200, seed: int = 0) -> None:
    """Check *assignor* (an object, a class, a registered name or ``"package.module:Class"``) with many groups.

    Every member gets an assignment of existing partitions of its topics, none twice. Every subscribed partition
    has one owner; with *broadcast*, at least one. The result does not depend on the order of the members, and
    invalid user data does not matter. A cooperative assignor does not move a partition between members in one
    rebalance.

    It needs no broker and little time. Members' own assignors are deep copies of *assignor*.

    Raises:
        AssertionError: a law is broken; the message names it, and the group.
        ConfigurationError: there is no such assignor.
    """
    found: Assignor = load_plugin("assignor", assignor)
    _check_introduction(found)
    for number in range(groups):
        _Trial(found, broadcast, Random(f"{seed} {number}"), 1 + number * LARGEST // groups).run()


def _check_introduction(assignor: Assignor) -> None:
    name, protocols = getattr(assignor, "name", None), getattr(assignor, "protocols", None)
    if not isinstance(name, str) or not name:
        raise AssertionError(f"{type(assignor).__name__}.name is {name!r}; it must be the text that members agree on")
    if not isinstance(protocols, (tuple, list)) or not protocols or not PROTOCOLS.issuperset(protocols):
        raise AssertionError(f"{name}: protocols are {protocols!r}; they must be 'eager', 'cooperative' or both, in a tuple or list")


class _Group(NamedTuple):
    cluster: ClusterView
    members: dict[str, MemberView]

    def has(self, topic: str, partition: TopicPartition) -> bool:
        return partition.topic == topic and any(each.partition == partition.partition for each in self.cluster.topics.get(topic, ()))

    def wants(self, member: str, partition: TopicPartition) -> bool:
        return any(self.has(topic, partition) for topic in self.members[member].topics)

    def wanted(self) -> set[TopicPartition]:
        topics = {topic for view in self.members.values() for topic in view.topics}
        return {TopicPartition(topic, each.partition) for topic in topics for each in self.cluster.topics.get(topic, ())}

    def owners(self, partition: TopicPartition) -> set[str]:
        return {member for member, view in self.members.items() if partition in view.owned}

    def __str__(self) -> str:
        lines = []
        for topic, partitions in sorted(self.cluster.topics.items()):
            racks = " ".join(",".join(sorted(self.cluster.racks(each))) or "-" for each in partitions)
            lines.append(f"  topic {topic!r} with {len(partitions)} partitions, in racks {racks}")
        for member, view in sorted(self.members.items()):
            lines.append(
                f"  member {member!r} wants {', '.join(view.topics) or 'nothing'}; owned {_several(view.owned)} in generation {view.generation}; "
                f"rack {view.rack}, instance {view.instance_id}, user data {view.user_data!r}")
        return "\n".join(lines)


def _several(partitions: Any) -> str:
    return " ".join(map(str, sorted(partitions))) or "nothing"


class _Trial:
    """One group over a few rebalances."""

    def __init__(self, assignor: Assignor, broadcast: bool, random: Random, size: int) -> None:
        self.assignor = assignor
        self.cooperative = "cooperative" in assignor.protocols
        self.broadcast = broadcast
        self.random = random
        self.generation = 0
        self.own: dict[str, Assignor] = {}  # what each member itself has
        nodes = {number: Node(number, "host", 9092, random.choice(RACKS)) for number in range(1, 4)}
        topics = {topic: self._partitions(random.randint(1, 2 * size)) for topic in random.sample(TOPICS, random.randint(1, len(TOPICS)))}
        self.group = _Group(ClusterView(topics, nodes), {})
        for _ in range(random.randint(1, size)):
            self._join()

    def run(self) -> None:
        """Assign, settle, change, and so on; finally with invalid subscriptions."""
        for _ in range(self.random.randint(1, CHANGES)):
            self._settle()
            self._change()
        self._make_subscriptions_invalid()
        self._settle()

    # ── the group ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _partitions(self, count: int) -> list[PartitionDescription]:
        return [PartitionDescription(number, 1, 0, tuple(self.random.sample((1, 2, 3), 2)), (1,)) for number in range(count)]

    def _join(self) -> None:
        number = self.random.randrange(10**4)
        topics = tuple(self.random.sample(list(self.group.cluster.topics), self.random.randint(1, len(self.group.cluster.topics))))
        self.group.members[f"m{number}"] = MemberView(topics, rack=self.random.choice(RACKS), instance_id=self.random.choice((None, f"i{-number}")))

    def _change(self) -> None:
        members = self.group.members
        what = self.random.randrange(4)
        if what == 0 and len(members) > 1:
            members.pop(self.random.choice(sorted(members)))
        elif what == 1:
            self._join()
        elif what == 2:
            topics = {topic: [*each, *self._partitions(len(each) + 1)[len(each):]] for topic, each in self.group.cluster.topics.items()}
            self.group = self.group._replace(cluster=self.group.cluster._replace(topics=topics))
        else:
            member = self.random.choice(sorted(members))
            members[member] = members[member]._replace(topics=self.random.choice([(), ("unknown",), tuple(self.group.cluster.topics)]))

    def _make_subscriptions_invalid(self) -> None:
        """Make subscriptions invalid.

        Deleted, negative, repeated or foreign partitions, unknown or repeated topics, random bytes.
        """
        anything = [*self.group.wanted(), TopicPartition("unknown", 0), TopicPartition("orders", -1), TopicPartition("orders", 2**31 - 1)]
        for member, view in self.group.members.items():
            self.group.members[member] = view._replace(
                topics=(*view.topics, "unknown", *view.topics[:1]), user_data=self.random.choice((None, b"", b"\xff" * 9, self.random.randbytes(20))),
                owned=tuple(self.random.choices(anything, k=5)), generation=self.random.randint(-1, 3))

    def _after(self, answer: Answer) -> None:
        """The members rejoin; eager ones have revoked everything."""
        self.generation += 1
        for member, view in self.group.members.items():
            own = self.own.setdefault(member, copy.deepcopy(self.assignor))
            if isinstance(own, SeesAssignment):
                own.on_assignment(answer[member], self.generation)
            user_data = own.subscription_user_data(view.topics) if isinstance(own, SendsUserData) else None
            owned = answer[member].partitions if self.cooperative else ()
            self.group.members[member] = view._replace(owned=owned, generation=self.generation, user_data=user_data)

    # ── the laws ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Rebalance until no member owns a partition that is assigned to another one."""
        if all(self._rebalance() for _ in range(SETTLES_WITHIN)):
            raise AssertionError(f"{self.assignor.name}: after {SETTLES_WITHIN} rebalances there are partitions without an owner\n{self.group}")

    def _rebalance(self) -> set[TopicPartition]:
        """Assign and rejoin; returns the unassigned partitions."""
        answer = self._answer()
        self._after(answer)
        return self.group.wanted() - set(_given(answer))

    def _answer(self) -> Answer:
        answer: Answer = self._assign(self.group)
        faults = chain(self._faults_of_shape(answer), self._faults(answer))
        if fault := next(faults, None):
            self._broken(answer, fault)
        mixed = list(self.group.members.items())
        self.random.shuffle(mixed)
        again = self._assign(self.group._replace(members=dict(mixed)))
        if again != answer:
            self._broken(answer, f"asked again, with the members in another order, it answers {_shown(again)}")
        return answer

    def _assign(self, group: _Group) -> Any:
        subscribed = {topic for view in group.members.values() for topic in view.topics}
        topics = {topic: tuple(each) for topic, each in group.cluster.topics.items() if topic in subscribed}
        try:
            return self.assignor.assign(ClusterView(MappingProxyType(topics), group.cluster.nodes), MappingProxyType(group.members))
        except Exception as error:
            raise AssertionError(f"{self.assignor.name} raises {type(error).__name__}: {error}\n{group}") from error

    def _faults_of_shape(self, answer: Any) -> Iterator[str]:
        members = self.group.members
        if not isinstance(answer, Mapping) or not all(isinstance(each, Assignment) for each in answer.values()):
            yield "the answer is no mapping of member ids to Assignments"
        elif left_out := sorted(set(members) - set(answer)):
            yield f"there is no answer for {', '.join(left_out)}; who gets nothing is given Assignment(())"
        elif unknown := sorted(set(answer) - set(members)):
            yield f"there is an answer for {', '.join(unknown)}, who is no member"

    def _faults(self, answer: Answer) -> Iterator[str]:
        for member, assignment in answer.items():
            for partition, times in Counter(assignment.partitions).items():
                if times > 1:
                    yield f"{member} is given {partition} {times} times"
                if not self.group.wants(member, partition):
                    yield f"{member} is given {partition}, which it does not want or which is not there"
                others = self.group.owners(partition) - {member}
                if self.cooperative and others and partition not in self.group.members[member].owned:
                    yield (f"{member} is given {partition} while {', '.join(sorted(others))} owns it: in a cooperative rebalance leave it out; "
                           "the next one finds it free")
        yield from self._faults_of_counts(_given(answer))

    def _faults_of_counts(self, given: Counter[TopicPartition]) -> Iterator[str]:
        for partition, times in given.items():
            if times > 1 and not self.broadcast:
                yield f"{partition} is given to {times} members; if that is meant, check it with broadcast=True"
        for partition in sorted(self.group.wanted() - set(given)):
            if not (self.cooperative and self.group.owners(partition)):
                yield f"{partition} is not assigned"

    def _broken(self, answer: Any, fault: str) -> NoReturn:
        raise AssertionError(f"{self.assignor.name}: {fault}\n{self.group}\nanswer: {_shown(answer)}")


def _given(answer: Answer) -> Counter[TopicPartition]:
    return Counter(chain.from_iterable(set(assignment.partitions) for assignment in answer.values()))


def _shown(answer: Any) -> str:
    try:
        return "; ".join(f"{member}: {_several(assignment.partitions)}" for member, assignment in sorted(answer.items()))
    except (AttributeError, TypeError):
        return repr(answer)
