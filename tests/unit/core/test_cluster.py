"""Views of the cluster: how an answer, a hint or forgetting makes the next one (M02, C12)."""
from __future__ import annotations

from typing import Any

from pyclient.codec.apis import Api
from pyclient.core.cluster import Cluster
from pyclient.records import TopicPartition
from tests.unit.core.world import answer, topic, view

A0 = TopicPartition("a", 0)


def told(*topics: Any, version: int = 13, **more: Any) -> Any:
    return answer(Api.METADATA, version, **view(*topics, **more))


def test_M02_an_older_answer_keeps_the_known_epoch_and_leader() -> None:
    cluster = Cluster().updated(told(topic("a", 1, epoch=5)))
    after = cluster.updated(told(topic("a", 2, epoch=4)))
    assert (after.leader(A0), after.topics["a"].partitions[0].epoch) == (1, 5)
