"""Views of the cluster: how an answer, a hint or forgetting makes the next one (M02, C12)."""
from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import Api
from pyclient.core.cluster import Cluster
from pyclient.records import Node, TopicPartition
from tests.unit.core.world import answer, partition, topic, view

A0 = TopicPartition("a", 0)
OTHER_ID = UUID(int=77)


def response(*topics: Any, version: int = 13, **more: Any) -> Any:
    return answer(Api.METADATA, version, **view(*topics, **more))


def test_M02_an_older_answer_keeps_the_known_epoch_and_leader() -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5)))
    after = cluster.updated(response(topic("a", 2, epoch=4)))
    assert (after.leader(A0), after.topics["a"].partitions[0].epoch) == (1, 5)


@given(tellings=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), min_size=1, max_size=12))
def test_M02_the_epoch_never_goes_back_and_the_leader_is_that_of_the_highest_epoch(tellings: list[tuple[int, int]]) -> None:
    cluster, highest, newest = Cluster(), -1, 0
    for leader, epoch in tellings:
        cluster = cluster.updated(response(topic("a", leader, epoch=epoch)))
        newest = leader if epoch >= highest else newest  # of one epoch the last response counts
        highest = max(highest, epoch)
        assert (cluster.leader(A0), cluster.topics["a"].partitions[0].epoch) == (newest, highest)


def test_M02_a_topic_created_again_begins_with_its_own_epochs() -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5)))
    after = cluster.updated(response(topic("a", 2, 3, epoch=0, id=OTHER_ID)))
    assert (after.leader(A0), after.topics["a"].id, len(after.topics["a"].partitions)) == (2, OTHER_ID, 2)
    assert dict(after.names) == {OTHER_ID: "a"}


def test_M02_an_answer_without_ids_does_not_make_a_topic_a_new_one() -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5)))
    after = cluster.updated(response(topic("a", 2, epoch=4), version=9))
    assert (after.leader(A0), after.topics["a"].partitions[0].epoch) == (1, 5)
    assert after.topics["a"].id == cluster.topics["a"].id
    assert after.updated(response(topic("a", 3, epoch=6), version=9)).leader(A0) == 3


def test_an_answer_without_epochs_is_believed() -> None:
    cluster = Cluster().updated(response(topic("a", 1), version=6))
    assert cluster.updated(response(topic("a", 2), version=6)).leader(A0) == 2


def test_M02_a_partition_that_lost_its_leader_keeps_its_epoch_and_has_none() -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5))).updated(response(topic("a", -1, epoch=5)))
    assert cluster.leader(A0) is None
    assert cluster.topics["a"].available == ()
    assert cluster.topics["a"].partitions[0].epoch == 5


def test_M03_an_error_of_a_topic_keeps_what_was_known_of_it() -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5), topic("b", 1)))
    failed = {**topic("a", error=3), "topic_id": None}
    after = cluster.updated(response(failed, topic("b", 2, epoch=1)), everything=True)
    assert (after.topics["a"].error, after.leader(A0), after.topics["a"].id) == (3, 1, cluster.topics["a"].id)
    assert (after.topics["b"].error, after.leader(TopicPartition("b", 0))) == (0, 2)


def test_M02_no_view_changes() -> None:
    first = Cluster().updated(response(topic("a", 1)))
    second = first.updated(response(topic("a", 2, epoch=1), nodes=(2,)))
    assert (first.leader(A0), second.leader(A0), set(first.nodes)) == (1, 2, {1, 2, 3})
    with pytest.raises(TypeError):
        first.topics["b"] = first.topics["a"]  # type: ignore[index]
    assert (first.version, second.version) == (1, 2)


def test_a_partial_answer_keeps_other_topics_and_a_full_one_drops_them() -> None:
    cluster = Cluster().updated(response(topic("a", 1), topic("b", 1)))
    assert set(cluster.updated(response(topic("a", 2, epoch=1))).topics) == {"a", "b"}
    assert set(cluster.updated(response(topic("a", 2, epoch=1)), everything=True).topics) == {"a"}


def test_a_leader_that_is_not_among_the_brokers_is_none_until_it_is() -> None:
    cluster = Cluster().updated(response(topic("a", 3), nodes=(1, 2)))
    assert cluster.leader(A0) is None
    assert cluster.updated(response(nodes=(1, 2, 3))).leader(A0) == 3


def test_partitions_are_ordered_by_number_in_whatever_order_a_response_has_them() -> None:
    fields = topic("a")
    fields["partitions"] = [partition(2, 3), partition(0, 1), partition(1, 2)]
    cluster = Cluster().updated(response(fields))
    assert [cluster.leader(TopicPartition("a", number)) for number in range(3)] == [1, 2, 3]


def test_a_response_that_skips_a_partition_is_not_usable() -> None:
    fields = topic("a")
    fields["partitions"] = [partition(0, 1), partition(2, 3)]
    assert Cluster().updated(response(fields)).topics["a"].partitions == ()


@pytest.mark.parametrize("number", [-1, 1, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_not_known(number: int) -> None:
    assert Cluster().updated(response(topic("a", 1))).partition(TopicPartition("a", number)) is None


def test_a_topic_with_only_an_id_in_the_response_keeps_its_known_name() -> None:
    cluster = Cluster().updated(response(topic("a", 1)))
    nameless = {**topic("a", 2, epoch=1), "name": None}
    assert cluster.updated(response(nameless)).leader(A0) == 2
    assert Cluster().updated(response(nameless)).topics == {}


def test_C12_a_hint_of_a_newer_leader_makes_a_new_view() -> None:
    cluster = Cluster().updated(response(topic("a", 1, 1, epoch=5), nodes=(1, 2)))
    after = cluster.moved(A0, 4, 6, Node(4, "new", 9092))
    moved = after.partition(A0)
    assert moved is not None
    assert (after.leader(A0), moved.epoch) == (4, 6)
    assert after.leader(TopicPartition("a", 1)) == 1
    assert after.version == cluster.version + 1
    assert cluster.leader(A0) == 1
    assert cluster.moved(A0, 2, 6).leader(A0) == 2  # a broker that is known needs no address


@pytest.mark.parametrize(("where", "leader", "epoch", "node"), [
    pytest.param(A0, 2, 5, None, id="not newer"),
    pytest.param(A0, 2, 4, None, id="older"),
    pytest.param(A0, -1, -1, None, id="no hint"),
    pytest.param(A0, 9, 6, None, id="no address"),
    pytest.param(A0, 9, 6, Node(8, "other", 9092), id="another's address"),
    pytest.param(TopicPartition("a", 7), 2, 6, None, id="unknown partition"),
    pytest.param(TopicPartition("b", 0), 2, 6, None, id="unknown topic"),
])
def test_C12_a_hint_that_is_not_newer_or_not_complete_is_ignored(
        where: TopicPartition, leader: int, epoch: int, node: Node | None) -> None:
    cluster = Cluster().updated(response(topic("a", 1, epoch=5)))
    assert cluster.moved(where, leader, epoch, node) is cluster


def test_the_controller_is_one_of_the_brokers_or_none() -> None:
    assert Cluster().updated(response(controller=2)).controller == 2
    assert Cluster().updated(response(controller=9)).controller is None
    assert Cluster().updated(response(controller=-1)).controller is None


def test_the_cluster_id_is_kept_when_a_response_has_none() -> None:
    cluster = Cluster().updated(response())
    assert cluster.updated(response(version=1)).id == cluster.id == "cluster"


def test_a_description_holds_what_the_response_said() -> None:
    cluster = Cluster().updated(response(topic("a", 1, -1, epoch=3, is_internal=True)))
    described = cluster.topics["a"].describe()
    assert (described.name, described.internal) == ("a", True)
    assert [(part.partition, part.leader, part.leader_epoch) for part in described.partitions] == [(0, 1, 3), (1, None, 3)]


def test_topics_that_an_answer_about_everything_leaves_out_are_known_neither_by_name_nor_by_id() -> None:
    before = Cluster().updated(response(topic("a", 1), topic("b", 1)))
    after = before.updated(response(topic("b", 1)), everything=True)
    assert (set(after.topics), list(after.names.values())) == ({"b"}, ["b"])
