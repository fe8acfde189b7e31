"""Answers that tell less than is known: what is kept, and what a newer telling replaces (M02, C12)."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api
from pyclient.core.cluster import Cluster
from pyclient.records import Node, TopicPartition
from tests.unit.core.world import answer, topic, topic_id, view

UNKNOWN_TOPIC = 3
T0 = TopicPartition("t", 0)


def error(name: str, code: int) -> dict[str, object]:
    """A topic that is told with an error, as brokers do: without id and partitions."""
    return {**topic(name, error=code), "topic_id": None}


def test_an_error_that_will_pass_keeps_what_was_known_of_the_topic() -> None:
    known = Cluster().updated(answer(Api.METADATA, 13, **view(topic("t", 1, epoch=4))))
    after = known.updated(answer(Api.METADATA, 13, **view(error("t", UNKNOWN_TOPIC))))
    assert after.leader(T0) == 1
    assert (after.topics["t"].id, after.topics["t"].error) == (topic_id("t"), UNKNOWN_TOPIC)


def test_M02_an_answer_without_ids_is_no_proof_that_the_topic_was_created_anew() -> None:
    known = Cluster().updated(answer(Api.METADATA, 13, **view(topic("t", 1, epoch=4))))
    stale = known.updated(answer(Api.METADATA, 9, **view(topic("t", 2, epoch=3))))
    assert stale.leader(T0) == 1
    assert stale.topics["t"].id == topic_id("t")


def test_M02_a_topic_created_anew_begins_its_epochs_again() -> None:
    known = Cluster().updated(answer(Api.METADATA, 13, **view(topic("t", 1, epoch=4))))
    anew = known.updated(answer(Api.METADATA, 13, **view(topic("t", 2, epoch=0, id=topic_id("other")))))
    assert anew.leader(T0) == 2
    assert dict(anew.names) == {topic_id("other"): "t"}


@pytest.mark.parametrize(("leader", "epoch", "node", "moves"), [
    (2, 5, None, True), (9, 5, Node(9, "new", 1), True), (2, 4, None, False), (2, 3, None, False), (9, 5, None, False)])
def test_C12_a_hint_is_believed_when_it_is_newer_and_complete(leader: int, epoch: int, node: Node | None, moves: bool) -> None:
    known = Cluster().updated(answer(Api.METADATA, 13, **view(topic("t", 1, epoch=4))))
    after = known.moved(T0, leader, epoch, node)
    assert after.leader(T0) == (leader if moves else 1)
    assert (after is known) == (not moves)
    assert known.moved(TopicPartition("t", 7), leader, epoch, node) is known
    assert known.moved(TopicPartition("u", 0), leader, epoch, node) is known
