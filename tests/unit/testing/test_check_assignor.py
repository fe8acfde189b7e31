"""The laws of assignors: ours obey them, and each law is missed by an assignor that breaks it and nothing else."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from pyclient.assignors import CooperativeStickyAssignor, RoundRobinAssignor, StickyAssignor
from pyclient.errors import ConfigurationError
from pyclient.plugins import Assignment, ClusterView, MemberView
from pyclient.records import TopicPartition
from pyclient.testing import check_assignor

Members = Mapping[str, MemberView]


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(3))
def test_our_assignors_obey_the_laws(name: str, seed: int) -> None:
    check_assignor(name, seed=seed)


def test_a_class_and_an_object_are_tried_too() -> None:
    check_assignor(StickyAssignor, groups=5)
    check_assignor(CooperativeStickyAssignor(), groups=5)
    with pytest.raises(ConfigurationError, match="no assignor is called 'none'"):
        check_assignor("none")


class Bad(RoundRobinAssignor):
    """Round robin, whose answers each of those below spoils in one way."""

    def assign(self, cluster: ClusterView, members: Members, /) -> Mapping[str, Assignment]:
        answer: Mapping[str, Assignment] = self.spoilt({member: list(each.partitions) for member, each in super().assign(cluster, members).items()}, members)
        return answer

    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer(shares)


def as_answer(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(partitions)) for member, partitions in shares.items()}


class LeavesOut(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer({member: each[1:] if len(each) > 3 else each for member, each in shares.items()})


class LeavesAMemberOut(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer({member: each for member, each in shares.items() if each or len(shares) < 3})


class AnswersAStranger(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer(shares | {"stranger": []})


class AnswersWithLists(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return shares


class AnswersWithNothing(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return None


class Doubles(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer({member: each * 2 for member, each in shares.items()})


class Invents(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        return as_answer({member: [*each, TopicPartition(each[0].topic, 99)] if each else each for member, each in shares.items()})


class Imposes(Bad):
    """All of it to the first member, wanted or not."""

    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        everything = [partition for each in shares.values() for partition in each]
        return as_answer({member: everything if member == min(shares) else () for member in shares})


class Broadcasts(Bad):
    """All that a member wants to each member."""

    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        everything = sorted({partition for each in shares.values() for partition in each})
        return as_answer({member: [each for each in everything if each.topic in view.topics] for member, view in members.items()})


class TakesThemAsTheyCome(Bad):
    """Everything of a topic to the member that happens to be first."""

    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        everything = [partition for each in shares.values() for partition in each]
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for partition in everything:
            given[next(member for member, view in members.items() if partition.topic in view.topics)].append(partition)
        return as_answer(given)


class TrustsUserData(Bad):
    def subscription_user_data(self, topics: Sequence[str], /) -> bytes:
        return b"4"

    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Members) -> Any:
        _weights = [int(view.user_data) for view in members.values() if view.user_data is not None]
        return as_answer(shares)


class ChangesItsArguments(Bad):
    def spoilt(self, shares: dict[str, list[TopicPartition]], members: Any) -> Any:
        members.clear()


class MovesAtOnce(Bad):
    protocols = ("cooperative",)


class NeverSettles(CooperativeStickyAssignor):
    """Gives what is free, and takes away what is not: all of it, or when nothing is free the first."""

    def assign(self, cluster: ClusterView, members: Members, /) -> Mapping[str, Assignment]:
        owned = {partition for view in members.values() for partition in view.owned}
        answer = super().assign(cluster, members)
        given = {partition for each in answer.values() for partition in each.partitions}
        taken = owned if given - owned else {min(given, default=None)}
        return as_answer({member: [each for each in assignment.partitions if each not in taken] for member, assignment in answer.items()})


class Nameless(Bad):
    name = ""


class Lazy(Bad):
    protocols = ("lazy",)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (LeavesOut, r"roundrobin: \w+-\d+ is not assigned"), (LeavesAMemberOut, r"there is no answer for m\d+.*; who gets nothing is given Assignment\(\(\)\)"),
        (AnswersAStranger, "there is an answer for stranger, who is no member"), (AnswersWithLists, "the answer is no mapping of member ids to Assignments"),
        (AnswersWithNothing, "the answer is no mapping of member ids to Assignments"), (Doubles, r"m\d+ is given \w+-\d+ 2 times"),
        (Invents, r"m\d+ is given \w+-99, which it does not want or which is not there"), (Imposes, "which it does not want or which is not there"),
        (Broadcasts, r"\w+-\d+ is given to 2 members; if that is meant, check it with broadcast=True"),
        (TakesThemAsTheyCome, "asked again, with the members in another order, it answers m"),
        (TrustsUserData, "roundrobin raises ValueError: invalid literal for int"), (ChangesItsArguments, "raises AttributeError"),
        (MovesAtOnce, r"m\d+ is given \w+-\d+ while m\d+ owns it: in a cooperative rebalance leave it out; the next one finds it free"),
        (NeverSettles, "after 10 rebalances there are partitions without an owner"),
        (Nameless, "Nameless.name is ''; it must be the text that members agree on"), (Lazy, "protocols are .*; they must be 'eager', 'cooperative' or both"),
    ],
)
def test_an_assignor_that_breaks_a_law_gets_an_error_that_names_it(bad: type, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_assignor(bad)


def test_a_broadcast_is_allowed_when_it_is_meant() -> None:
    check_assignor(Broadcasts(), broadcast=True)


def test_the_message_shows_the_group_and_the_answer_and_the_first_groups_are_small() -> None:
    with pytest.raises(AssertionError) as caught:
        check_assignor(Invents())
    lines = str(caught.value).splitlines()
    assert [line for line in lines if line.startswith("  topic '")]
    assert [line for line in lines if line.startswith("  member 'm") and " wants " in line and "; owned nothing in generation -1; rack " in line]
    assert lines[-1].startswith("answer: m")
    assert len(lines) <= 6


def test_the_same_seed_tries_the_same_groups() -> None:
    messages = []
    for seed in (1, 1, 2):
        with pytest.raises(AssertionError) as caught:
            check_assignor(Doubles, seed=seed)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] != messages[2]


def test_members_send_the_user_data_of_their_own_assignors() -> None:
    """Sticky would not keep anything if user data were lost on the way."""
    seen: list[bytes | None] = []

    class Watching(StickyAssignor):
        def assign(self, cluster: ClusterView, members: Members, /) -> Mapping[str, Assignment]:
            seen.extend(view.user_data for view in members.values())
            return super().assign(cluster, members)

    check_assignor(Watching)
    assert any(data and len(data) > 20 for data in seen)
