"""Operations of Admin while brokers restart, hang and lose coordinators and leaders: success is so, and none hangs.

Each operation has subjects of its own, so that an earlier one that timed out, and may still be carried out, cannot
change them. PYCLIENT_SIMULATION_ADMIN_SEEDS=1000 runs as many seeds.
"""
from __future__ import annotations

import asyncio
import functools
import importlib
import os
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import routing
from pyclient.codec.apis import Api
from pyclient.core.calls import Call, Done
from pyclient.errors import (
    GroupIdNotFoundError, InvalidPartitionsError, KafkaError, PartialFailureError, RetriableError, TopicExistsError, UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from pyclient.testing.fake.control import Fail
from pyclient.testing.fake.model.homes import MOVES as MOVES_OF_COORDINATORS
from pyclient.testing.simulation.faults import FOR_SERVICES, HANGS
from pyclient.testing.simulation.world import World
from tests.simulation.admin_steps import KINDS, Step

SEEDS: Final = range(1, int(os.environ.get("PYCLIENT_SIMULATION_ADMIN_SEEDS", "6")) + 1)
OPERATIONS: Final = 30
FAULTS: Final = 25
SPAN_S: Final = 60.0
LATE_S: Final = 0.5
"""Virtual seconds that a call may end after its timeout."""
NOT_CONTROLLER, NOT_COORDINATOR, LOADING, NOT_LEADER, UNAVAILABLE, CONCURRENT = 41, 16, 14, 6, 15, 51
MOVES: Final = (
    (Api.CREATE_TOPICS, NOT_CONTROLLER), (Api.DELETE_TOPICS, NOT_CONTROLLER), (Api.CREATE_PARTITIONS, NOT_CONTROLLER),
    (Api.INCREMENTAL_ALTER_CONFIGS, NOT_CONTROLLER), (Api.OFFSET_COMMIT, NOT_COORDINATOR), (Api.OFFSET_COMMIT, LOADING),
    (Api.DELETE_RECORDS, NOT_LEADER), (Api.LIST_OFFSETS, NOT_LEADER), (Api.FIND_COORDINATOR, UNAVAILABLE),
    *((api, code) for api in (Api.DELETE_GROUPS, Api.LEAVE_GROUP, Api.OFFSET_DELETE, Api.OFFSET_FETCH, Api.DESCRIBE_GROUPS) for code in (NOT_COORDINATOR, LOADING)),
    *((api, code) for api in (Api.INIT_PRODUCER_ID, Api.DESCRIBE_TRANSACTIONS) for code in (NOT_COORDINATOR, LOADING)),
    (Api.LIST_GROUPS, LOADING), (Api.LIST_GROUPS, UNAVAILABLE), (Api.LIST_TRANSACTIONS, LOADING), (Api.LIST_TRANSACTIONS, UNAVAILABLE),
    (Api.INIT_PRODUCER_ID, CONCURRENT), (Api.WRITE_TXN_MARKERS, NOT_LEADER), (Api.DESCRIBE_PRODUCERS, NOT_LEADER),
)
"""What brokers answer while a role moves, beside the moves that faults make."""
ALREADY: Final = (TopicExistsError, UnknownTopicOrPartitionError, InvalidPartitionsError, GroupIdNotFoundError, UnknownMemberIdError)
"""Of an operation whose response was lost, and that was repeated: it is done."""


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
        self.moves = 0
        """How often coordinators may have moved."""
        self.world.kafka.listeners.append(self._on_event)
        self._made = 0

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        self.moves += event in MOVES_OF_COORDINATORS

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


IGNORANT: Final[dict[str, Callable[..., Any]]] = {
    "groups.delete_group_call": lambda *_, **__: None,
    "groups.remove_members_call": lambda group, members, *_, **__: dict.fromkeys(members),
    "transactions.init_call": lambda *_, **__: (1, 1),
    "transactions.abort_marker_call": lambda tp, *_, **__: {tp: None},
}
"""Calls, and what each would return if it took every answer for success."""


@pytest.mark.parametrize("call", IGNORANT)
def test_the_sweep_sees_a_call_that_takes_every_answer_for_success(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    module, name = call.split(".")
    make = getattr(importlib.import_module(f"pyclient.admin.{module}"), name)

    def ignorant(*arguments: Any, **options: Any) -> Call:
        made: Call = make(*arguments, **options)
        made.classify = lambda message: Done(IGNORANT[call](*arguments))
        return made

    monkeypatch.setattr(f"pyclient.admin.{module}.{name}", ignorant)
    with pytest.raises(AssertionError, match="success is reported for"):
        for seed in SEEDS:
            Scene(seed).go()


def test_the_sweep_sees_a_call_that_outlasts_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    each = routing.each
    monkeypatch.setattr("pyclient.admin.groups.each", lambda core, calls, timeout: each(core, calls, None))
    with pytest.raises(AssertionError, match=r"ended after"):
        for seed in SEEDS:
            Scene(seed).go()
