"""The same groups get what Java's own assignors give them, partition for partition; where not, Java's answer is the
wrong one.

Sixteen hundred scenarios of two to six rebalances (tests/data/assignor_questions.py). After each, the group goes on
with Java's answer, so that a difference is seen where it arises.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from pyclient.assignors.group import assignments
from pyclient.assignors.ownership import Claim
from pyclient.assignors.sticky import assignable_now
from pyclient.assignors.user_data import decode_generation, decode_previous
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView, SeesAssignment, SendsUserData
from pyclient.records import Node, TopicPartition
from tests.data.assignor_questions import ASSIGNORS, Member, Rebalance, Scenario, answers, scenarios
from tests.unit.assignors.groups import ASSIGNORS as CLASSES
from tests.unit.assignors.groups import Group

Javas = dict[str, list[TopicPartition]]


class Round(NamedTuple):
    """One rebalance: the input of an assignor, and Java's assignments."""

    name: str
    group: Group
    java: Javas | str


def rounds() -> Iterator[Round]:
    """Every rebalance, with the partitions that Java's assignments before it left the members with."""
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
    """A member as the leader sees it; its own assignor knows its last assignment."""
    partitions, generation = had.get(member.id, ([], -1)) if member.claims is None else (list(member.claims), member.generation)
    own: Assignor = CLASSES[name]()
    if isinstance(own, SeesAssignment) and (member.claims is not None or member.id in had):
        own.on_assignment(Assignment(tuple(partitions)), generation)
    user_data = own.subscription_user_data(member.topics) if isinstance(own, SendsUserData) else None
    owned = tuple(partitions) if "cooperative" in own.protocols else ()
    return MemberView(member.topics, owned, generation if member.reports_generation else -1, member.instance, member.rack, user_data)


def valid(group: Group, answer: Javas) -> bool:
    """Whether every partition with subscribers is assigned to one of them or, cooperatively, still has an owner."""
    given = Counter(each for partitions in answer.values() for each in partitions)
    owned = {each for view in group.members.values() for each in view.owned}
    return (
        all(times == 1 for times in given.values()) and group.wanted - owned <= set(given)
        and all(set(partitions) <= group.wanted_by(member) for member, partitions in answer.items())
    )


def claims(each: Round) -> dict[str, Claim]:
    """The claim of each member."""
    if each.name == "sticky":
        return {member: decode_previous(view.user_data) for member, view in each.group.members.items()}
    return {
        member: Claim(view.owned, view.generation if view.generation >= 0 else decode_generation(view.user_data))
        for member, view in each.group.members.items()
    }


def of_generations_in_user_data(each: Round) -> bool:
    """Two members claim one partition, and one of them sends its generation in the user data only."""
    generations: dict[TopicPartition, list[int]] = {}
    for member, claim in claims(each).items():
        for partition in claim.partitions:
            generations.setdefault(partition, []).append(each.group.members[member].generation)
    return any(len(several) > 1 and min(several) < 0 for several in generations.values())


def of_earlier_subscriptions(each: Round) -> bool:
    """A member claims, from an earlier generation, partitions of a topic to which it does not subscribe now."""
    said = claims(each)
    newest = max(claim.generation for claim in said.values())
    return any(
        claim.generation < newest and {partition.topic for partition in claim.partitions} - {*each.group.members[member].topics}
        for member, claim in said.items()
    )


def assigned_at_once(each: Round, java: Javas) -> dict[str, set[TopicPartition]]:
    """The partitions that Java assigns to a member that claims them, while another one claims them too."""
    members = each.group.members
    return {
        member: {
            partition for partition in partitions
            if partition in members[member].owned and any(other != member and partition in view.owned for other, view in members.items())
        }
        for member, partitions in java.items()
    }


def without_convergence_check(each: Round) -> Javas:
    """Our assignments without the check that the following rebalances end."""
    shares, _complete = assignable_now(each.group.cluster, each.group.members)
    return {member: list(assignment.partitions) for member, assignment in assignments(shares).items()}


# --- the comparison --------------------------------------------------------------------------------------------------

SAME: Final = "the same"
RAISED: Final = "Java raises"
INVALID: Final = "Java gives a member what it does not want"
AT_ONCE: Final = "Java gives a partition at once to one of two who say they own it"
BY_WAY: Final = "Java has given a member what it does not want, and taken it back"
UNTOLD: Final = "Java does not see the generation of one of two claims"
CIRCLE: Final = "ours moves nothing, for the moves would go round in a circle"

EXPECTED: Final = {
    "range": {SAME: 1404},
    "roundrobin": {SAME: 1415},
    "sticky": {SAME: 1332, INVALID: 31, RAISED: 8, UNTOLD: 13},
    "cooperative-sticky": {SAME: 1295, INVALID: 28, RAISED: 4, UNTOLD: 39, AT_ONCE: 12, BY_WAY: 1, CIRCLE: 3},
}
"""The expected outcomes of all rebalances. docs/assignors.md describes each kind to users."""


def verdict(each: Round) -> str:
    """How our assignments and Java's compare; fails if ours are invalid, or differ without a known reason."""
    answer = CLASSES[each.name]().assign(each.group.cluster, each.group.members)
    ours = {member: list(assignment.partitions) for member, assignment in answer.items()}
    assert valid(each.group, ours), each
    if isinstance(each.java, str):
        return RAISED
    if ours == each.java:
        return SAME
    if each.name == "cooperative-sticky" and without_convergence_check(each) != ours:
        return CIRCLE
    if not valid(each.group, each.java):
        return INVALID
    if of_generations_in_user_data(each):
        return UNTOLD
    at_once = assigned_at_once(each, each.java)
    if all(set(ours[member]) | at_once[member] == set(partitions) for member, partitions in each.java.items()):
        return AT_ONCE
    assert of_earlier_subscriptions(each), each
    return BY_WAY


@pytest.mark.parametrize("name", ASSIGNORS)
def test_A06_assignments_equal_those_of_java(name: str, found: dict[str, Counter[str]]) -> None:
    assert found[name] == EXPECTED[name]


@pytest.fixture(scope="module")
def found() -> dict[str, Counter[str]]:
    """The outcomes of all rebalances by assignor."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ASSIGNORS}
    for each in rounds():
        counts[each.name][verdict(each)] += 1
    return counts
