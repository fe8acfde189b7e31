"""Operations of Admin while brokers restart, hang and lose coordinators and leaders: success is so, and none hangs.

Each operation has subjects of its own, so that an earlier one that timed out, and may still be carried out, cannot
change them. PYCLIENT_SIMULATION_ADMIN_SEEDS=1000 runs as many seeds.
"""
from __future__ import annotations

import asyncio
import functools
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from pyclient import AsyncAdmin, NewTopic, TopicPartition
from pyclient.admin import ConfigResource, OffsetSpec
from pyclient.codec.apis import Api
from pyclient.errors import InvalidPartitionsError, KafkaError, PartialFailureError, RetriableError, TopicExistsError, UnknownTopicOrPartitionError
from pyclient.testing.fake.control import Fail
from pyclient.testing.simulation.faults import FOR_SERVICES, HANGS
from pyclient.testing.simulation.world import World

SEEDS: Final = range(1, int(os.environ.get("PYCLIENT_SIMULATION_ADMIN_SEEDS", "6")) + 1)
OPERATIONS: Final = 30
FAULTS: Final = 25
SPAN_S: Final = 60.0
LATE_S: Final = 0.5
"""Virtual seconds that a call may end after its timeout."""
RECORDS: Final = 5
NOT_CONTROLLER, NOT_COORDINATOR, LOADING, NOT_LEADER = 41, 16, 14, 6
MOVES: Final = (
    (Api.CREATE_TOPICS, NOT_CONTROLLER), (Api.DELETE_TOPICS, NOT_CONTROLLER), (Api.CREATE_PARTITIONS, NOT_CONTROLLER),
    (Api.INCREMENTAL_ALTER_CONFIGS, NOT_CONTROLLER), (Api.OFFSET_COMMIT, NOT_COORDINATOR), (Api.OFFSET_COMMIT, LOADING),
    (Api.DELETE_RECORDS, NOT_LEADER), (Api.LIST_OFFSETS, NOT_LEADER),
)
"""What brokers answer while a role moves, beside the moves that faults make."""
ALREADY: Final = (TopicExistsError, UnknownTopicOrPartitionError, InvalidPartitionsError)
"""Of an operation whose response was lost, and that was repeated: it is done."""


class Step(NamedTuple):
    """An operation, and what must be so for each subject that it reports as done."""

    call: Callable[[float], Awaitable[Any]]
    """Does it, with a timeout."""
    is_so: Callable[[Any, Any], bool]
    """Of a subject and its result."""
    subjects: tuple[Any, ...]


class Scene:
    """A cluster, and an Admin that does one operation after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(seed, config={"offsets_topic_num_partitions": 5})
        self.cluster = self.world.cluster
        with self.world.inside("admin"):
            self.admin = AsyncAdmin(bootstrap_servers=self.world.bootstrap_servers, client_id="admin", request_timeout_ms=3_000)
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._made = 0

    def go(self) -> None:
        with self.world:
            self.world.strike(self.world.plan(FAULTS, begin=0.5, end=SPAN_S, kinds=(*FOR_SERVICES, *HANGS)))
            self.world.run(self._all())

    async def _all(self) -> None:
        async with self.admin:
            for _ in range(OPERATIONS):
                await asyncio.sleep(self.random.uniform(0, 2 * SPAN_S / OPERATIONS))
                api, code = self.random.choice(MOVES)
                self.cluster.intercept(Fail(code), api, times=self.random.randint(1, 3))
                kind = self.random.choice(KINDS)
                await self._one(kind.__name__, kind(self), self.random.choice((0.3, 2.0, 8.0, 20.0)))

    async def _one(self, kind: str, step: Step, timeout: float) -> None:
        began = self.world.loop.time()
        results, error = await outcome(step, timeout)
        spent = self.world.loop.time() - began
        assert spent <= timeout + LATE_S, f"{kind} with timeout={timeout} ended after {spent:.2f} s"
        for subject, result in results.items():
            assert step.is_so(subject, result), f"{kind}: success is reported for {subject}, and it is not so"
        self.done[kind] += len(results)
        self.failed[kind] += error is not None
        assert error is None or isinstance(error, (RetriableError, *ALREADY)), f"{kind} failed with {error!r}, which no fault causes"

    def name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def topic(self) -> str:
        name = self.name("topic")
        self.cluster.create_topic(name, 2, replication_factor=3)
        return name


async def outcome(step: Step, timeout: float) -> tuple[dict[Any, Any], KafkaError | None]:
    """The results of the subjects that are reported as done, and the first error."""
    try:
        found = await step.call(timeout)
    except PartialFailureError as partly:
        return dict(partly.results), next(iter(partly.errors.values()))
    except KafkaError as error:
        return {}, error
    return (found if isinstance(found, dict) else dict.fromkeys(step.subjects)), None


def create_topics(scene: Scene) -> Step:
    names = (scene.name("new"), scene.name("new"))
    return Step(lambda limit: scene.admin.create_topics([NewTopic(name, 3, 2) for name in names], timeout=limit),
                lambda name, _: scene.cluster.topics().get(name) == 3, names)


def delete_topics(scene: Scene) -> Step:
    names = (scene.topic(), scene.topic())
    return Step(lambda limit: scene.admin.delete_topics(names, timeout=limit), lambda name, _: name not in scene.cluster.topics(), names)


def create_partitions(scene: Scene) -> Step:
    names = (scene.topic(), scene.topic())
    return Step(lambda limit: scene.admin.create_partitions(dict.fromkeys(names, 4), timeout=limit), lambda name, _: scene.cluster.topics()[name] == 4, names)


def alter_configs(scene: Scene) -> Step:
    name = scene.topic()
    return Step(lambda limit: scene.admin.alter_configs({ConfigResource.topic(name): {"retention.ms": 12345}}, timeout=limit),
                lambda name, _: scene.world.kafka.topics[name].config["retention.ms"] == "12345", (name,))


def delete_records(scene: Scene) -> Step:
    topic = scene.topic()
    partitions = tuple(TopicPartition(topic, number) for number in (0, 1))
    for tp in partitions:
        for _ in range(RECORDS):
            scene.cluster.produce(topic, b"x", partition=tp.partition)
    return Step(lambda limit: scene.admin.delete_records(dict.fromkeys(partitions, -1), timeout=limit),
                lambda tp, low: low == RECORDS and not scene.cluster.records(tp.topic, tp.partition), partitions)


def list_offsets(scene: Scene) -> Step:
    topic = scene.topic()
    partitions = tuple(TopicPartition(topic, number) for number in (0, 1))
    for tp in partitions:
        scene.cluster.produce(topic, b"x", partition=tp.partition)
    return Step(lambda limit: scene.admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), timeout=limit), lambda _, found: found.offset == 1, partitions)


def alter_group_offsets(scene: Scene) -> Step:
    group, tp = scene.name("group"), TopicPartition(scene.topic(), 0)
    return Step(lambda limit: scene.admin.alter_group_offsets(group, {tp: 7}, timeout=limit), lambda tp, _: scene.cluster.committed(group)[tp].offset == 7, (tp,))


KINDS: Final[tuple[Callable[[Scene], Step], ...]] = (
    create_topics, delete_topics, create_partitions, alter_configs, delete_records, list_offsets, alter_group_offsets)


@functools.cache
def gone(seed: int) -> Scene:
    """The run of a seed."""
    scene = Scene(seed)
    scene.go()
    return scene


@pytest.mark.parametrize("seed", SEEDS)
def test_success_is_so_and_no_call_outlasts_its_timeout(seed: int) -> None:
    assert sum(gone(seed).done.values()) > OPERATIONS / 2


def test_operations_of_each_kind_succeed_and_some_fail() -> None:
    done, failed = Counter[str](), Counter[str]()
    for seed in SEEDS:
        done += gone(seed).done
        failed += gone(seed).failed
    assert all(done[kind.__name__] > len(SEEDS) / 2 for kind in KINDS)
    assert sum(failed.values()) > len(SEEDS) / 2


def test_the_sweep_sees_a_client_that_takes_a_refused_item_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.core.admin.items._item_error", lambda *_: None)
    with pytest.raises(AssertionError, match="success is reported for"):
        for seed in SEEDS:
            Scene(seed).go()
