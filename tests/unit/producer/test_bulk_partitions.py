"""Bulks choose the partitions that single records would get: every partitioner, keys or none, sticky turns included."""
from __future__ import annotations

from importlib.metadata import entry_points
from random import Random
from typing import Any

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyclient.buffers.queues import TopicQueues
from pyclient.codec.arrow_input import Names
from pyclient.config import ProducerConfig
from pyclient.partitioners import Murmur2Partitioner, RandomPartitioner
from pyclient.plugin_loading import KINDS
from pyclient.plugins import Partitions
from pyclient.producer.bulk import BulkSend, BulkSteps
from pyclient.producer.callbacks import LoopObserver
from pyclient.producer.core import ProducerCore
from pyclient.runtime.steps import run_steps
from tests.unit.buffers.accumulators import fast_append
from tests.reactors import idle_portal

REFUSED = -1
OURS = sorted(point.name for point in entry_points(group=KINDS["partitioner"].group) if point.value.startswith("pyclient.partitioners:"))
IGNORING = "murmur2, which ignores keys"
records = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.integers(0, 400)), max_size=60)


def core_of(partitioner: object, partitions: int, **options: Any) -> ProducerCore:
    """A producer without a network, with the same random seed as the others here."""
    core = ProducerCore(ProducerConfig.parse(None, {
        "bootstrap_servers": "host:1", "batch_size": 1_000, "partitioner": partitioner, **options}), idle_portal(), LoopObserver())
    core.random.seed(7)
    core.accumulator.set_topic("orders", partitions, range(partitions))
    return core


def made(name: str | None, partitions: int) -> ProducerCore:
    if name == IGNORING:
        return core_of(None, partitions, partitioner_ignore_keys=True)
    return core_of(RandomPartitioner(Random(5)) if name == "random" else name, partitions)


def queues_of(core: ProducerCore) -> TopicQueues:
    queues = core.accumulator.topic("orders")
    assert queues is not None
    return queues


def by_fast_path(core: ProducerCore, keys: list[bytes | None], values: list[bytes]) -> list[int]:
    """As `Producer.send` does: the fast path for simple records."""
    found: list[int] = []
    assert core.send_path is not None
    for key, value in zip(keys, values, strict=True):
        delivery = fast_append(core.send_path, topic="orders", value=value, key=key, timestamp=5)
        found += [delivery.partition] if delivery is not None else one_by_one(core, [key], [value])
    return found


def one_by_one(core: ProducerCore, keys: list[bytes | None], values: list[bytes]) -> list[int]:
    queues, found = queues_of(core), []
    for key, value in zip(keys, values, strict=True):
        try:
            delivery = core.accumulator.append(queues, core.router.partition(queues, key, value, None), 5, key, value, None)
        except ValueError:
            found.append(REFUSED)
            continue
        assert delivery is not None
        found.append(delivery.partition)
    return found


def partitions_of(steps: BulkSteps) -> list[int]:
    """The partitions that a bulk chose; it waits for nothing."""
    return [delivery.partition for delivery in run_steps(steps, lambda step: pytest.fail(f"waits for {step}"))]


@pytest.mark.parametrize("name", [None, IGNORING, *OURS])
@given(sent=records, partitions=st.integers(1, 12))
@example(sent=[(b"key-36123D\xb6", 1)], partitions=7)  # whose FNV-1a is 2^31, the one hash of more than 31 bits
@settings(max_examples=15)
def test_P30_P31_a_bulk_chooses_the_partitions_that_send_chooses(name: str | None, sent: list[tuple[bytes | None, int]], partitions: int) -> None:
    keys, values = [key for key, _ in sent], [b"x" * size for _, size in sent]
    single, fast, lists, columns = (made(name, partitions) for _ in range(4))
    expected = one_by_one(single, keys, values)
    assert by_fast_path(fast, keys, values) == expected
    assert partitions_of(BulkSend(lists).values("orders", values, keys, None, None, None)) == expected
    table = pyarrow.table({"value": pyarrow.array(values, pyarrow.binary()), "key": pyarrow.array(keys, pyarrow.binary())})
    names = Names("value", "key", "headers", "timestamp", None)
    assert partitions_of(BulkSend(columns).arrow("orders", table, names, {})) == expected


def test_there_are_ten_partitioners() -> None:
    assert len(OURS) == 10


class First(Murmur2Partitioner):
    """Murmur2 for all keys but one."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> Any:
        return 0 if key == b"first" else super().partition(topic, key, value, partitions)


def test_P30_an_inherited_hash_does_not_overrule_a_users_partition_method() -> None:
    keys: list[bytes | None] = [b"first", b"second", b"third"]
    values = [b"x"] * 3
    expected = one_by_one(core_of(First(), 7), keys, values)
    core = core_of(First(), 7)
    assert expected[0] == 0
    assert partitions_of(BulkSend(core).values("orders", values, keys, None, None, None)) == expected


class NotedBatches:
    """Spreads by value, and remembers each new batch."""

    def __init__(self) -> None:
        self.new_batches: list[tuple[str, int]] = []

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return (value or b"\0")[0]

    def on_new_batch(self, topic: str, partition: int) -> None:
        self.new_batches.append((topic, partition))


def test_a_bulk_calls_on_new_batch_for_each_batch_that_it_begins() -> None:
    values = [bytes([number % 3]) * (number % 90) for number in range(1, 100)]
    single, bulk = NotedBatches(), NotedBatches()
    one_by_one(core_of(single, 3), [None] * 99, values)
    core = core_of(bulk, 3)
    partitions_of(BulkSend(core).values("orders", values, None, None, None, None))
    assert bulk.new_batches == single.new_batches
    assert len(bulk.new_batches) > 3
