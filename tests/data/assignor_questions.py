"""The groups for which Java's assignors were run, over several rebalances each, and the file with their assignments.

`SCENARIOS` are drawn from their numbers at each run. As a program (``python -m tests.data.assignor_questions``) it
writes them for ``java/AssignorVectors.java``, which runs an assignor for every member and writes each assignment.
"""
from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeVar

from pyclient.records import TopicPartition

T = TypeVar("T")
ANSWERS: Final = Path(__file__).parent / "assignors-java.txt.gz"
ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
COUNT: Final = 1_600
RACKS: Final = ("east", "west", "north", "south")
MOST_BROKERS: Final = 6
NAMES: Final = ("consumer", "c", "billing-service", "\uff5e", "😀", "grüße")
"""Client ids; in UTF-16, and so in Java, the smiley comes before the wave."""


class Member(NamedTuple):
    """A member in one rebalance. ``claims`` None: its last assignment, in the generation of that assignment."""

    id: str
    instance: str | None
    rack: str | None
    topics: tuple[str, ...]
    claims: tuple[TopicPartition, ...] | None = None
    generation: int = -1
    sends_generation: bool = True
    """Its subscription has the generation, as from version 2 on."""


class Rebalance(NamedTuple):
    """The replicas of each partition by topic, and the members."""

    topics: dict[str, tuple[tuple[int, ...], ...]]
    members: tuple[Member, ...]


class Scenario(NamedTuple):
    """Rebalances of one group, the first is generation 1; the racks of the brokers by node id."""

    assignor: str
    racks: dict[int, str | None]
    rebalances: tuple[Rebalance, ...]


class Draw:
    """Choices that every release of Python makes alike: of `random`, only what it promises to keep."""

    def __init__(self, seed: int) -> None:
        self._bits = Random(seed).getrandbits

    def below(self, count: int) -> int:
        """From 0 to *count* - 1."""
        return self._bits(32) % count

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.below(100) < percent

    def pick(self, several: Sequence[T]) -> T:
        """One of them."""
        return several[self.below(len(several))]

    def some(self, several: Sequence[T], percent: int) -> tuple[T, ...]:
        """Each of them with this chance."""
        return tuple(each for each in several if self.chance(percent))


class Story:
    """A group that changes from rebalance to rebalance."""

    def __init__(self, number: int) -> None:
        self.draw = Draw(number)
        self.assignor = ASSIGNORS[number % len(ASSIGNORS)]
        self.scale = 8 if number % 50 < len(ASSIGNORS) else 1
        rack_count = self.draw.pick((0, 0, 1, 2, 3, 4))
        self.rack_choices: tuple[str | None, ...] = (*RACKS[:rack_count], None) if self.draw.chance(20) else RACKS[:rack_count] or (None,)
        self.racks = {node: self.draw.pick(self.rack_choices) for node in range(1, MOST_BROKERS + 1)}
        self.replicas = 1 + self.draw.below(3)
        self.alike = self.draw.chance(50)
        self.all_send_generation = self.draw.chance(85)
        self.topics: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.members: dict[str, Member] = {}
        self.away: dict[str, Member] = {}
        for _ in range(1 + self.draw.below(5 if self.scale == 1 else 3)):
            self.create_topic()
        self.wish = self.wished()
        for _ in range(1 + self.draw.below(7 * self.scale)):
            self.join()

    def create_topic(self) -> None:
        """Names say nothing of the order they come in; numbers of partitions are often the same."""
        name = f"{self.draw.pick('qwertz')}{len(self.topics)}"
        count = self.draw.pick((1, 2, 3, 4, 4, 6, 6, 12, 24)) * (self.scale if self.draw.chance(70) else 1)
        self.topics[name] = tuple(self.placed() for _ in range(count))

    def placed(self) -> tuple[int, ...]:
        """The nodes of a partition's replicas."""
        first = self.draw.below(MOST_BROKERS)
        return tuple(1 + (first + each) % MOST_BROKERS for each in range(self.replicas))

    def wished(self) -> tuple[str, ...]:
        """What a member wants: seldom nothing, or a topic that is not there."""
        if self.draw.chance(3):
            return ()
        several = self.draw.some(list(self.topics), 60) or (self.draw.pick(list(self.topics)),)
        return (*several, "absent") if self.draw.chance(4) else several

    def join(self) -> None:
        """A new member."""
        number = self.draw.below(10**6)
        name = f"{self.draw.pick(NAMES)}-{number:x}-{self.draw.below(2**31):08x}"
        instance = f"i{self.draw.below(10**6)}" if self.draw.chance(20) else None
        rack = self.draw.pick((*self.rack_choices, *self.rack_choices, None)) if self.rack_choices != (None,) else None
        wants = self.wish if self.alike else self.wished()
        self.members[name] = Member(name, instance, rack, wants, sends_generation=self.all_send_generation or self.draw.chance(50))

    def change(self) -> None:
        """What happens between two rebalances."""
        for name, member in list(self.away.items()):
            self.members[name] = member
            del self.away[name]
        happening = self.draw.below(9)
        if happening in (0, 1) and len(self.members) > 1:
            self.members.pop(self.draw.pick(list(self.members)))
        if happening in (1, 2):
            self.join()
        if happening == 3 and len(self.members) > 1:
            name = self.draw.pick(list(self.members))
            self.away[name] = self.members.pop(name)
        if happening == 4:
            self.create_topic()
            self.wish = tuple(self.topics) if self.draw.chance(50) else self.wish
            for name, member in self.members.items():
                self.members[name] = member._replace(topics=self.wish if self.alike else member.topics + self.draw.some(list(self.topics)[-1:], 50))
        if happening == 5:
            topic = self.draw.pick(list(self.topics))
            self.topics[topic] += tuple(self.placed() for _ in range(1 + self.draw.below(4)))
        if happening == 6:
            topic = self.draw.pick(list(self.topics))
            self.topics[topic] = tuple(self.placed() for _ in self.topics[topic])
        if happening == 7 and not self.alike:
            name = self.draw.pick(list(self.members))
            self.members[name] = self.members[name]._replace(topics=self.wished())

    def rebalance(self, number: int) -> Rebalance:
        """As the group is now; sometimes members claim what they like."""
        members = dict(self.members)
        several = [TopicPartition(topic, each) for topic, replicas in self.topics.items() for each in range(len(replicas))]
        if self.draw.chance(12):
            for name in self.draw.some(list(members), 60):
                members[name] = members[name]._replace(claims=self.draw.some(several, 30), generation=self.draw.below(number + 1) - 1)
        elif self.draw.chance(12):
            for name, claims in self.heaped(several, list(members)).items():
                members[name] = members[name]._replace(claims=tuple(claims), generation=self.draw.below(4) - 1)
        return Rebalance(dict(self.topics), tuple(members.values()))

    def heaped(self, several: Sequence[TopicPartition], names: Sequence[str]) -> dict[str, dict[TopicPartition, None]]:
        """Claims of few members to nearly everything, and of any to half of it: much has to move."""
        claims: dict[str, dict[TopicPartition, None]] = {name: {} for name in names}
        few = self.draw.some(names, 30) or names[:1]
        for each in several:
            if self.draw.chance(90):
                claims[self.draw.pick(few)][each] = None
            if self.draw.chance(50):
                claims[self.draw.pick(names)][each] = None
        return claims

    def scenario(self) -> Scenario:
        """All of it."""
        rebalances = [self.rebalance(1)]
        for number in range(2, 3 + self.draw.below(4)):
            self.change()
            rebalances.append(self.rebalance(number))
        return Scenario(self.assignor, self.racks, tuple(rebalances))


def scenarios() -> Iterator[Scenario]:
    """All of them, each from its number."""
    return (Story(number).scenario() for number in range(COUNT))


def written(scenario: Scenario) -> Iterator[str]:
    """Lines of words parted by tabs; ``-`` is nothing, ``=`` what it was given last."""
    yield f"scenario\t{scenario.assignor}"
    for node, rack in scenario.racks.items():
        yield f"broker\t{node}\t{rack or '-'}"
    for rebalance in scenario.rebalances:
        yield "rebalance"
        for topic, partitions in rebalance.topics.items():
            yield f"topic\t{topic}\t{','.join('.'.join(map(str, nodes)) for nodes in partitions)}"
        for each in rebalance.members:
            claims = "=" if each.claims is None else ",".join(f"{topic}:{number}" for topic, number in each.claims) or "-"
            yield "\t".join((
                "member", each.id, each.instance or "-", each.rack or "-", ",".join(each.topics) or "-", claims, str(each.generation), str(int(each.sends_generation))))
        yield "share"


def questions() -> bytes:
    """All that the program reads."""
    return "".join(f"{line}\n" for scenario in scenarios() for line in written(scenario)).encode()


def answers() -> Iterator[dict[str, list[TopicPartition]] | str]:
    """What Java gave in each rebalance, or the name of the exception that it raised; a scenario ends with one."""
    digest, *lines = gzip.decompress(ANSWERS.read_bytes()).decode().splitlines()
    if digest != hashlib.sha256(questions()).hexdigest():
        raise AssertionError(f"{ANSWERS.name} answers other questions: generate it again, as README.md says")
    for line in lines:
        yield line[1:] if line.startswith("!") else dict(_share(each) for each in line.split("|"))


def _share(text: str) -> tuple[str, list[TopicPartition]]:
    member, _, partitions = text.partition("=")
    pairs = (each.split(":") for each in partitions.split(",") if each)
    return member, [TopicPartition(topic, int(number)) for topic, number in pairs]


if __name__ == "__main__":
    sys.stdout.buffer.write(questions())
