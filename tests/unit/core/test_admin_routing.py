"""Partitions are asked at their leaders, round by round, until each has a value or a final error."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api
from pyclient.core.admin.routing import MOST_ROUNDS, LeaderRounds
from pyclient.core.cluster import Cluster
from pyclient.errors import InvalidRequestError, KafkaError, KafkaTimeoutError, LeaderNotAvailableError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from pyclient.records import TopicPartition
from tests.unit.core.world import answer, topic, view

ONE, TWO, NOWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 9)


def cluster(*topics: dict[str, object]) -> Cluster:
    return Cluster().updated(answer(Api.METADATA, 12, **view(*topics)))


def test_each_leader_is_asked_about_its_partitions() -> None:
    rounds = LeaderRounds([ONE, TWO])
    assert rounds.by_leader(cluster(topic("t", 1, 2))) == {1: [ONE], 2: [TWO]}
    rounds.take({ONE: 10, TWO: 20})
    assert rounds.finished
    assert rounds.answers == {ONE: 10, TWO: 20}


def test_only_partitions_without_an_answer_are_asked_again_at_their_new_leader() -> None:
    rounds = LeaderRounds([ONE, TWO])
    rounds.by_leader(cluster(topic("t", 1, 1)))
    rounds.take({ONE: 10, TWO: NotLeaderOrFollowerError()})
    assert rounds.by_leader(cluster(topic("t", 1, 2))) == {2: [TWO]}


def test_a_node_that_leads_none_of_the_partitions_it_was_asked_about_is_not_waited_for() -> None:
    rounds = LeaderRounds([ONE, TWO])
    asked = rounds.by_leader(cluster(topic("t", 1, 2)))
    assert rounds.former_leaders(asked, cluster(topic("t", 1, 2))) == []
    assert rounds.former_leaders(asked, cluster(topic("t", 2, 2))) == [1]
    assert rounds.former_leaders({1: [ONE, TWO]}, cluster(topic("t", 2, 1))) == []


def test_an_error_that_is_not_retriable_is_the_answer() -> None:
    rounds = LeaderRounds([ONE])
    rounds.by_leader(cluster(topic("t", 1)))
    rounds.take({ONE: (error := InvalidRequestError())})
    assert rounds.answers == {ONE: error}


@pytest.mark.parametrize(("tp", "leader", "error"), [(NOWHERE, 1, UnknownTopicOrPartitionError), (ONE, -1, LeaderNotAvailableError)])
def test_without_time_left_a_partition_has_the_last_error_of_its_own(tp: TopicPartition, leader: int, error: type[KafkaError]) -> None:
    rounds = LeaderRounds([tp])
    assert rounds.by_leader(cluster(topic("t", leader))) == {}
    assert not rounds.finished
    rounds.give_up(KafkaTimeoutError("late"))
    assert isinstance(rounds.answers[tp], error)


def test_a_partition_that_stays_unknown_is_given_up_before_the_timeout() -> None:
    rounds = LeaderRounds([NOWHERE])
    for _ in range(MOST_ROUNDS):
        assert not rounds.finished
        rounds.by_leader(cluster(topic("t", 1)))
    assert isinstance(rounds.answers[NOWHERE], UnknownTopicOrPartitionError)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    rounds = LeaderRounds([ONE])
    for _ in range(MOST_ROUNDS * 2):
        rounds.by_leader(cluster(topic("t", -1)))
    assert not rounds.finished
