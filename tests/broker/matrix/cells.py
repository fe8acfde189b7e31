"""The cells of the matrix: where the scenario runs, with which clients, and with which codec."""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer
from pyclient.runtime.environment import environment, using
from pyclient.testing import LocalCluster, World
from pyclient.testing.simulation.world import EPOCH_MS
from tests.broker.matrix.outcome import Outcome, listening
from tests.broker.matrix.scenario import MOST_BYTES, PARTITIONS, Names, Seen, play
from tests.kafka import make_topic
from tests.secured_clients import reaching
from tests.simulated_threads import inside

Run: TypeAlias = Callable[[Coroutine[Any, Any, Seen]], Seen]
LISTENERS: Final = {"plain": "PLAINTEXT", "TLS": "SSL"}
KINDS: Final[Mapping[str, tuple[Any, Any]]] = {"sync": (Producer, Consumer), "async": (AsyncProducer, AsyncConsumer)}
CODECS: Final = ("none", "lz4")
SEED: Final = 7


class Cell(NamedTuple):
    """One combination."""

    transport: str
    kind: str
    codec: str

    def __str__(self) -> str:
        return "-".join(self)


CELLS: Final = [Cell(*each) for each in itertools.product([*LISTENERS, "simulated"], KINDS, CODECS)]


def outcome_of(cell: Cell, cluster: LocalCluster) -> Outcome:
    """Run the scenario in this cell, with topics of its own."""
    names = Names(uuid.uuid4().hex[:8])
    place = in_world(cell, names) if cell.transport == "simulated" else on_broker(cell, cluster, names)
    with place as (options, run), using(attrs.evolve(environment(), random=Midway)), listening() as lines:
        seen = run(play(ClientsOf(cell, options), names))
    return Outcome.of(seen, lines, names)


class ClientsOf:
    """Makes a cell's clients; *options* say how they connect."""

    def __init__(self, cell: Cell, options: Mapping[str, Any]) -> None:
        self._producer, self._consumer = KINDS[cell.kind]
        self._codec = cell.codec
        self._options = options

    def producer(self, **options: Any) -> Any:
        """As `scenario.Clients.producer`."""
        return self._producer(compression_type=self._codec, **self._options, **options)

    def consumer(self, **options: Any) -> Any:
        """As `scenario.Clients.consumer`."""
        return self._consumer(**self._options, **options)


class Midway(Random):
    """The clients' chance: each cell chooses the same partition for records without a key."""

    def random(self) -> float:
        """The middle."""
        return 0.5


@contextlib.contextmanager
def on_broker(cell: Cell, cluster: LocalCluster, names: Names) -> Iterator[tuple[Mapping[str, Any], Run]]:
    """A real broker's listener, in real time."""
    make_topic(cluster, names.topic, PARTITIONS)
    make_topic(cluster, names.strict, max_message_bytes=str(MOST_BYTES))
    yield reaching(cluster, LISTENERS[cell.transport]), run_without_loop if cell.kind == "sync" else asyncio.run


@contextlib.contextmanager
def in_world(cell: Cell, names: Names) -> Iterator[tuple[Mapping[str, Any], Run]]:
    """A simulated cluster and network in virtual time, which begins now: brokers refuse records of another time."""
    with World(SEED, brokers=1) as world:
        world.wall_skew_ms = int(time.time() * 1000) - EPOCH_MS
        world.cluster.create_topic(names.topic, PARTITIONS)
        world.cluster.create_topic(names.strict, config={"max.message.bytes": str(MOST_BYTES)})
        with inside(world, "matrix") if cell.kind == "sync" else world.inside("matrix"):
            yield {"bootstrap_servers": world.bootstrap_servers}, run_without_loop if cell.kind == "sync" else world.run
        assert world.loop.defects == []


def run_without_loop(steps: Coroutine[Any, Any, Seen]) -> Seen:
    """Run a coroutine that never waits, as the scenario with sync clients."""
    try:
        steps.send(None)
    except StopIteration as ended:
        seen: Seen = ended.value
        return seen
    raise AssertionError("a sync client's call was awaited")
