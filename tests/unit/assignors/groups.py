"""Groups for assignors: written by hand in one line, or drawn by Hypothesis with arbitrary claims of the members."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Final, NamedTuple, TypeVar

from hypothesis import strategies as st

from pyclient.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from pyclient.assignors.user_data import encode_previous
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView
from pyclient.records import Node, TopicPartition

ASSIGNORS: Final[Mapping[str, type[Assignor]]] = {
    "range": RangeAssignor, "roundrobin": RoundRobinAssignor, "sticky": StickyAssignor, "cooperative-sticky": CooperativeStickyAssignor,
}
EVEN: Final = ("roundrobin", "sticky", "cooperative-sticky")
STICKY: Final = ("sticky", "cooperative-sticky")
RACKS: Final = ("east", "west", "north")
MOST_REBALANCES: Final = 10
Answer = Mapping[str, Assignment]
K = TypeVar("K")
V = TypeVar("V")


class Group(NamedTuple):
    """The input of an assignor."""

    cluster: ClusterView
    members: dict[str, MemberView]

    @property
    def existing(self) -> set[TopicPartition]:
        return {TopicPartition(topic, each.partition) for topic, several in self.cluster.topics.items() for each in several}

    def wanted_by(self, member: str) -> set[TopicPartition]:
        return {each for each in self.existing if each.topic in self.members[member].topics}

    @property
    def wanted(self) -> set[TopicPartition]:
        return set[TopicPartition]().union(*map(self.wanted_by, self.members))

    def shuffled(self, seed: int) -> Group:
        random = Random(seed)
        return Group(ClusterView(mixed(self.cluster.topics, random), mixed(self.cluster.nodes, random)), mixed(self.members, random))

    def after(self, answer: Answer, generation: int) -> Group:
        """The members as they join again after *answer*: each assignor sends the assigned partitions in its own way."""
        return self._replace(members={
            member: owning(view, answer[member].partitions, generation) for member, view in self.members.items() if member in answer
        } | {member: view for member, view in self.members.items() if member not in answer})


def mixed(mapping: Mapping[K, V], random: Random) -> dict[K, V]:
    """The same items in another order."""
    return dict(sorted(mapping.items(), key=lambda _item: random.random()))


def owning(view: MemberView, partitions: Sequence[TopicPartition], generation: int) -> MemberView:
    """A member that claims these partitions: in the subscription for cooperative assignors, in the user data for eager
    ones.
    """
    return view._replace(owned=tuple(partitions), generation=generation, user_data=encode_previous(partitions, generation))


def cluster(topics: Mapping[str, int], racks: Mapping[TopicPartition, Collection[str]] | None = None) -> ClusterView:
    """Topics with so many partitions; there is a broker in each rack, and one without."""
    nodes = {1 + place: Node(1 + place, "host", 9092, rack) for place, rack in enumerate(RACKS)} | {0: Node(0, "host", 9092)}
    where = {node.rack: number for number, node in nodes.items()}

    def replicas(topic: str, number: int) -> tuple[int, ...]:
        return tuple(where[rack] for rack in sorted((racks or {}).get(TopicPartition(topic, number), ()))) or (0,)

    return ClusterView({
        topic: [PartitionDescription(number, 0, 0, replicas(topic, number), (0,)) for number in range(count)] for topic, count in topics.items()
    }, nodes)


def partitions(*words: str) -> tuple[TopicPartition, ...]:
    """``"t-0 t-3"`` and so on."""
    pairs = (word.rpartition("-") for word in " ".join(words).split())
    return tuple(TopicPartition(topic, int(number)) for topic, _, number in pairs)


def wanting(*topics: str, had: str = "", generation: int = -1, rack: str | None = None, instance_id: str | None = None) -> MemberView:
    """A member with these subscribed topics and claims."""
    return owning(MemberView(topics, instance_id=instance_id, rack=rack), partitions(had), generation)


def assign(name: str, group: Group) -> Answer:
    """The assignments of a new assignor of this name."""
    return ASSIGNORS[name]().assign(group.cluster, group.members)


def final_assignment(name: str, group: Group, generation: int) -> Answer:
    """The assignments after as many rebalances as it takes until every partition is assigned."""
    for later in range(MOST_REBALANCES):
        answer = assign(name, group)
        if set(times_assigned(answer)) == group.wanted:
            return answer
        group = group.after(answer, generation + later)
    raise AssertionError(f"after {MOST_REBALANCES} rebalances there are partitions without an owner: {group}")


def shared(name: str, topics: Mapping[str, int], members: Mapping[str, MemberView],
           racks: Mapping[TopicPartition, Collection[str]] | None = None) -> dict[str, str]:
    """The assignments, as in ``{"c1": "t-0 t-1"}``."""
    answer = assign(name, Group(cluster(topics, racks), dict(members)))
    return {member: " ".join(map(str, assignment.partitions)) for member, assignment in answer.items()}


def numbers(name: str, topics: Mapping[str, int], *members: str) -> dict[str, set[int]]:
    """The partition numbers of each member, all of which subscribe to all *topics*."""
    answer = assign(name, Group(cluster(topics), {member: wanting(*topics) for member in members}))
    return {member: {each.partition for each in assignment.partitions} for member, assignment in answer.items()}


def loads(answer: Answer) -> dict[str, int]:
    """The number of partitions of each member."""
    return {member: len(assignment.partitions) for member, assignment in answer.items()}


def times_assigned(answer: Answer) -> Counter[TopicPartition]:
    """How often each partition is assigned."""
    return Counter(chain.from_iterable(assignment.partitions for assignment in answer.values()))


# --- drawn -----------------------------------------------------------------------------------------------------------

TOPIC_NAMES: Final = ("a", "b", "c", "topic-9", "topic-10")
MEMBER_NAMES: Final = [f"{name}-{number}" for name in ("consumer", "c", "\uff5e", "😀") for number in range(4)]
topics: Final = st.dictionaries(st.sampled_from(TOPIC_NAMES), st.integers(0, 9), min_size=1, max_size=4)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False, racks: bool = True) -> Group:
    """A group whose members claim nothing yet."""
    counts = draw(topics)
    placed = {
        TopicPartition(topic, number): draw(st.sets(st.sampled_from(RACKS), max_size=2)) for topic, count in counts.items() for number in range(count)
    } if racks and draw(st.booleans()) else {}
    wishes = st.lists(st.sampled_from(list(counts)), unique=True, max_size=4).map(tuple)
    same = draw(wishes)
    names = draw(st.lists(st.sampled_from(MEMBER_NAMES), unique=True, min_size=1, max_size=7))
    members = {
        name: MemberView(
            same if alike else draw(wishes), instance_id=draw(st.sampled_from([None, None, f"i{-place}"])),
            rack=draw(st.sampled_from([*RACKS, None])) if racks else None)
        for place, name in enumerate(names)
    }
    return Group(cluster(counts, placed), members)


claimed: Final = st.builds(TopicPartition, st.sampled_from([*TOPIC_NAMES, "gone"]), st.one_of(st.integers(0, 9), st.integers(-2**31, 2**31 - 1)))


@st.composite
def odd_groups(draw: st.DrawFn, *, alike: bool = False) -> Group:
    """A group whose members claim arbitrary partitions."""
    group = draw(groups(alike=alike))
    members = {}
    for name, view in group.members.items():
        had = draw(st.lists(claimed, max_size=8))
        generation = draw(st.one_of(st.integers(-1, 3), st.integers(-2**31, 2**31 - 1)))
        user_data = draw(st.one_of(st.none(), st.binary(max_size=40), st.just(encode_previous(had, generation))))
        odd = draw(st.lists(st.sampled_from(["gone", "a", "a"]), max_size=2)) if not alike else []
        members[name] = view._replace(topics=(*view.topics, *odd), owned=tuple(had), generation=generation, user_data=user_data)
    return Group(group.cluster, members)
