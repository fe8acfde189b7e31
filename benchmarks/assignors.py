"""Group assignors in memory: seconds of CPU that a leader needs to assign the partitions of large groups.

Each group is assigned once, and again after one member has left (sticky assignors then read what each member owned).
No other client is measured: a group waits for its leader, so the time must stay below what a rebalance takes anyway.
"""
from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from pyclient.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView, SeesAssignment, SendsUserData
from pyclient.records import Node

ASSIGNORS: Final[tuple[type[Assignor], ...]] = (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
BUDGET_S: Final = 2.0
"""For equal subscriptions, without racks."""
RACKS: Final = ("east", "west", "north")
TOPICS: Final = 20

Members = dict[str, MemberView]


class Group(NamedTuple):
    """What is shared out."""

    title: str
    cluster: ClusterView
    members: Members


class Figure(NamedTuple):
    """Seconds of CPU: median and best of the rounds."""

    group: str
    work: str
    assignor: str
    median: float
    best: float


def group(members: int, partitions: int, *, alike: bool, racks: bool, topics: int = TOPICS) -> Group:
    """A group with *partitions* over *topics*. Its members subscribe to all topics (*alike*) or each to another half.

    With *racks*, brokers and members are in three racks.
    """
    names = [f"topic-{number}" for number in range(topics)]
    nodes = {number: Node(number, "host", 9092, RACKS[number % 3] if racks else None) for number in range(9)}
    cluster = ClusterView({name: [described(number) for number in range(partitions // topics)] for name in names}, nodes)
    wishes = [tuple(names) if alike else tuple(names[(place + each) % topics] for each in range(topics // 2)) for place in range(members)]
    views = {
        f"consumer-group-{place}-{place * 2654435761 % 2**32:08x}-7a3c-4d52-9f1e": MemberView(wish, rack=RACKS[place * 7 % 3] if racks else None)
        for place, wish in enumerate(wishes)
    }
    title = f"{'equal' if alike else 'unequal'} subscriptions, {topics:,} topics, {'racks' if racks else 'no racks'}"
    return Group(title, cluster, views)


def described(number: int) -> PartitionDescription:
    """A partition with two replicas, in two of the racks."""
    return PartitionDescription(number, number % 9, 0, (number % 9, (number + 1) % 9), (number % 9,))


def rejoined(kind: type[Assignor], members: Members, given: Mapping[str, Assignment]) -> Members:
    """The members as they join after one has left."""
    found = {}
    for member, view in list(members.items())[1:]:
        own = kind()
        if isinstance(own, SeesAssignment):
            own.on_assignment(given[member], 1)
        user_data = own.subscription_user_data(view.topics) if isinstance(own, SendsUserData) else None
        owned = given[member].partitions if "cooperative" in own.protocols else ()
        found[member] = view._replace(owned=owned, generation=1, user_data=user_data)
    return found


def measured(kind: type[Assignor], shared: Group, rounds: int) -> Iterator[Figure]:
    """Both times of one assignor."""
    given = kind().assign(shared.cluster, shared.members)
    later = rejoined(kind, shared.members, given)
    for work, members in (("first", shared.members), ("one left", later)):
        times = [seconds(lambda members=members: kind().assign(shared.cluster, members)) for _ in range(rounds)]  # type: ignore[misc]  # bound now
        yield Figure(shared.title, work, kind().name, statistics.median(times), min(times))


def seconds(call: Callable[[], object]) -> float:
    """CPU of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Size of the run."""
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure all, print the table."""
    groups = [
        group(arguments.members, arguments.partitions, alike=alike, racks=racks) for alike in (True, False) for racks in (False, True)
    ]
    groups.append(group(arguments.members, arguments.partitions, alike=False, racks=True, topics=arguments.partitions))
    figures = [figure for shared in groups for kind in ASSIGNORS for figure in measured(kind, shared, arguments.rounds)]
    print_table(figures)
    missed = [figure for figure in figures if figure.group == groups[0].title and figure.median > BUDGET_S]
    return {
        "members": arguments.members,
        "partitions": arguments.partitions,
        "seconds": [figure._asdict() for figure in figures],
        "budget_s": BUDGET_S,
        "missed": [f"{figure.assignor}, {figure.work}" for figure in missed],
    }


def print_table(figures: list[Figure]) -> None:
    """A Markdown table."""
    names = [kind().name for kind in ASSIGNORS]
    print("| Group | Shared out | " + " | ".join(names) + " |")
    print("| --- " * (len(names) + 2) + "|")
    for title, work in dict.fromkeys((figure.group, figure.work) for figure in figures):
        row = {figure.assignor: figure for figure in figures if (figure.group, figure.work) == (title, work)}
        print(f"| {title} | {work} | " + " | ".join(f"{row[name].median:.3f} ({row[name].best:.3f})" for name in names) + " |")
