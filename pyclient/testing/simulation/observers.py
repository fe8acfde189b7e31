"""What the judge of a run watches inside a client: its views of the cluster, its batches, its pauses, its memory."""
from __future__ import annotations

from typing import Any

from pyclient.buffers.pool import Pool
from pyclient.consumer.core import ConsumerCore
from pyclient.records import TopicPartition
from pyclient.testing.simulation.invariants import Judge


def poison_returned_buffers(pool: Pool) -> None:
    """Overwrite memory when it is returned: a late reader gets no valid record (P07)."""
    give = pool.give

    def poison(buffer: bytearray) -> None:
        buffer[:] = b"\xdd" * len(buffer)
        give(buffer)

    pool.give = poison  # type: ignore[method-assign] # of this pool only


def observe_metadata(name: str, metadata: Any, judge: Judge) -> None:
    """Evaluate the invariants of each view of the cluster that a client adopts."""
    adopt = metadata._on_update
    judge.facts.wanted[name] = metadata.interest.used
    views = [metadata.cluster]

    def adopted(cluster: Any) -> None:
        judge.after("view", name, views[-1], cluster)
        views[:] = [cluster]
        adopt(cluster)

    metadata._on_update = adopted


def observe_consumer(name: str, core: ConsumerCore, judge: Judge) -> None:
    """Evaluate the invariants of a consumer's views of the cluster and of its fetches."""
    observe_metadata(name, core.metadata, judge)
    _observe_rests(core.fetcher._placement, judge.facts.rests[name])
    judge.facts.max_age[name] = core.config.metadata_max_age_ms / 1000
    judge.facts.fetchers[name] = core.fetcher
    judge.facts.views[name] = 0
    judge.facts.second.starts[name] += 1


def _observe_rests(placement: Any, rests: dict[TopicPartition, tuple[int, float]]) -> None:
    """Remember until when each failed partition is not to be fetched."""
    rest = placement.rest
    rests.clear()

    def rested(position: Any, now: float) -> None:
        rest(position, now)
        rests[position.tp] = position.generation, placement._resting.get(position.tp, now)

    placement.rest = rested


def observe_batches(name: str, sender: Any, judge: Judge) -> None:
    """Evaluate the invariants of each batch that is sent, with its partition's batches in flight."""
    start = sender._start
    nodes: dict[Any, int] = {}

    def started(batch: Any, node: int, now: float) -> Any:
        sequence = sender._sequence(batch.queue)
        judge.after("leaves", name, batch, node, [nodes[each] for each in sequence.in_flight], sequence.state.name)
        nodes[batch] = node
        return start(batch, node, now)

    sender._start = started
