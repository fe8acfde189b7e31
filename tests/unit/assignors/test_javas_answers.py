"""The same groups get what Java's own assignors give them, partition for partition; where not, Java's answer is the wrong one.

Sixteen hundred scenarios of two to six rebalances (tests/data/assignor_questions.py). After each, the group goes on with Java's answer, so that
a difference is seen where it arises.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from pyclient.assignors.user_data import decode_previous
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView, SeesAssignment, SendsUserData
from pyclient.records import Node, PartitionDescription, TopicPartition
from tests.data.assignor_questions import ASSIGNORS, Member, Rebalance, Scenario, answers, scenarios
from tests.unit.assignors.groups import ASSIGNORS as CLASSES
from tests.unit.assignors.groups import Group

Javas = dict[str, list[TopicPartition]]


class Round(NamedTuple):
    """One rebalance: what an assignor is given, and what Java's gave."""

    name: str
    group: Group
    java: Javas | str


def rounds() -> Iterator[Round]:
    """Every rebalance, with what Java's answers before it have left the members with."""
    given = answers()
    for scenario in scenarios():
        yield from played(scenario, given)


def played(scenario: Scenario, given: Iterator[Javas | str]) -> Iterator[Round]:
    had: dict[str, tuple[list[TopicPartition], int]] = {}
    for generation, rebalance in enumerate(scenario.rebalances, 1):
        members = {each.id: seen(scenario.assignor, each, had) for each in rebalance.members}
        java = next(given)
        yield Round(scenario.assignor, Group(view(scenario, rebalance), members), java)
        if isinstance(java, str):
            return
        had.update({member: (partitions, generation) for member, partitions in java.items()})


def view(scenario: Scenario, rebalance: Rebalance) -> ClusterView:
    nodes = {number: Node(number, "host", 9092, rack) for number, rack in scenario.racks.items()}
    topics = {
        topic: [PartitionDescription(number, replicas[0], 0, replicas, replicas) for number, replicas in enumerate(partitions)]
        for topic, partitions in rebalance.topics.items()
    }
    return ClusterView(topics, nodes)


def seen(name: str, member: Member, had: dict[str, tuple[list[TopicPartition], int]]) -> MemberView:
    """A member as the leader sees it; its own assignor has been told what it was given."""
    partitions, generation = had.get(member.id, ([], -1)) if member.claims is None else (list(member.claims), member.generation)
    own: Assignor = CLASSES[name]()
    if isinstance(own, SeesAssignment) and (member.claims is not None or member.id in had):
        own.on_assignment(Assignment(tuple(partitions)), generation)
    user_data = own.subscription_user_data(member.topics) if isinstance(own, SendsUserData) else None
    owned = tuple(partitions) if "cooperative" in own.protocols else ()
    return MemberView(member.topics, owned, generation if member.tells else -1, member.instance, member.rack, user_data)


def valid(group: Group, answer: Javas) -> bool:
    """Every partition that somebody wants has one owner who wants it; cooperatively, or somebody still owns it."""
    given = Counter(each for partitions in answer.values() for each in partitions)
    owned = {each for view in group.members.values() for each in view.owned}
    return (
        all(times == 1 for times in given.values()) and group.wanted - owned <= set(given)
        and all(set(partitions) <= group.wanted_by(member) for member, partitions in answer.items())
    )


def claims(each: Round) -> dict[TopicPartition, list[MemberView]]:
    """Who says it had what."""
    found: dict[TopicPartition, list[MemberView]] = {}
    for member in each.group.members.values():
        had = member.owned if each.name == "cooperative-sticky" else decode_previous(member.user_data).partitions
        for partition in had:
            found.setdefault(partition, []).append(member)
    return found


def of_untold_generations(each: Round) -> bool:
    """Two claim one partition, and one of them does not tell its generation in the subscription, but in the user data only."""
    return any(len(several) > 1 and any(view.generation < 0 for view in several) for several in claims(each).values())


def given_while_owned(group: Group, java: Javas) -> dict[str, set[TopicPartition]]:
    """What Java gives to one member while another one still says it owns it."""
    return {
        member: {each for each in partitions if any(other != member and each in view.owned for other, view in group.members.items())}
        for member, partitions in java.items()
    }


# --- the comparison --------------------------------------------------------------------------------------------------

SAME: Final = "the same"
RAISED: Final = "Java raises"
INVALID: Final = "Java gives a member what it does not want"
AT_ONCE: Final = "Java gives a partition at once to one of two who say they own it"
UNTOLD: Final = "Java does not see the generation of one of two claims"

EXPECTED: Final = {
    "range": {SAME: 1379},
    "roundrobin": {SAME: 1453},
    "sticky": {SAME: 1387, INVALID: 14, RAISED: 2, UNTOLD: 3},
    "cooperative-sticky": {SAME: 1392, INVALID: 13, RAISED: 2, UNTOLD: 19, AT_ONCE: 14},
}
"""What became of all rebalances. docs/assignors.md tells users of each kind."""


def verdict(each: Round) -> str:
    """How our answer and Java's compare; fails where ours is not valid, or differs without a reason."""
    answer = CLASSES[each.name]().assign(each.group.cluster, each.group.members)
    ours = {member: list(assignment.partitions) for member, assignment in answer.items()}
    assert valid(each.group, ours), each
    if isinstance(each.java, str):
        return RAISED
    if ours == each.java:
        return SAME
    if not valid(each.group, each.java):
        return INVALID
    if of_untold_generations(each):
        return UNTOLD
    owned = given_while_owned(each.group, each.java)
    for member, partitions in each.java.items():
        assert set(ours[member]) <= set(partitions), each
        assert set(partitions) - set(ours[member]) <= owned[member] & set(each.group.members[member].owned), each
    return AT_ONCE


@pytest.mark.parametrize("name", ASSIGNORS)
def test_A06_members_get_what_java_gives_them(name: str, found: dict[str, Counter[str]]) -> None:
    assert found[name] == EXPECTED[name]


@pytest.fixture(scope="module")
def found() -> dict[str, Counter[str]]:
    """The verdicts on all rebalances by assignor."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ASSIGNORS}
    for each in rounds():
        counts[each.name][verdict(each)] += 1
    return counts
