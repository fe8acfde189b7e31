"""A partitioner's choices: accepted, refused, STICKY; and the memory limit of partitions without a leader."""
from __future__ import annotations

import pytest

from pyclient.buffers.queues import TopicQueues
from pyclient.config import ProducerConfig
from pyclient.core.cluster import Cluster
from pyclient.plugins import STICKY, Partitions
from pyclient.producer.callbacks import LoopObserver
from pyclient.producer.core import ProducerCore
from pyclient.producer.routing import Router
from tests.unit.core.world import answer, topic, view
from pyclient.codec.apis import Api
from tests.reactors import idle_portal

UNKNOWN_TOPIC_OR_PARTITION = 3


class Constant:
    """A partitioner that always returns *number*."""

    def __init__(self, number: object) -> None:
        self.number = number

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return self.number  # type: ignore[return-value]


def route(partitioner: object, key: bytes | None = b"key") -> int:
    queues = TopicQueues("orders")
    queues.update(3, [0, 1, 2])
    router = Router(ProducerConfig.parse(None, {"bootstrap_servers": "host:1", "partitioner": partitioner}))
    return router.partition(queues, key, None, None)


def test_STICKY_leaves_the_choice_to_the_client() -> None:
    assert route(Constant(2)) == 2
    assert route(Constant(STICKY)) == STICKY
    assert route("murmur3", None) == STICKY


@pytest.mark.parametrize("number", [-1, 3, None, 1.0, "1"])
def test_a_number_out_of_range_is_refused_also_a_minus_one_that_is_not_STICKY(number: object) -> None:
    with pytest.raises(ValueError, match=r"Constant chose partition .* of topic 'orders', which has 3"):
        route(Constant(number))


def test_partitions_of_a_deleted_topic_hold_at_most_half_of_the_memory() -> None:
    """Otherwise their batches could fill the buffer until they expire."""
    core = ProducerCore(ProducerConfig.parse(None, {"bootstrap_servers": "host:1", "buffer_memory": 8192, "batch_size": 1024}), idle_portal(), LoopObserver())

    def update_metadata(error: int) -> None:
        metadata = topic("t", error=error) if error else topic("t", 1)
        clusters.append(clusters[-1].updated(answer(Api.METADATA, 13, **view(metadata))))
        core.on_cluster(clusters[-1])

    clusters = [Cluster()]
    update_metadata(0)
    queues = core.accumulator.topic("t")
    assert queues is not None

    def fill() -> int:
        while core.accumulator.append(queues, 0, -1, None, b"x" * 900, None):
            pass
        return core.accumulator.pool.used

    update_metadata(UNKNOWN_TOPIC_OR_PARTITION)
    assert fill() <= 8192 // 2
    update_metadata(0)
    assert fill() > 8192 // 2
