"""What the judge of a run watches inside a client: its views of the cluster, its batches, its pauses, its memory."""
from __future__ import annotations

from typing import Any

from pyclient.buffers.batch import Batch
from pyclient.buffers.pool import Pool
from pyclient.consumer.core import ConsumerCore
from pyclient.core.sending.sender import BatchListener
from pyclient.core.sending.sequencing import PartitionSequence
from pyclient.records import TopicPartition
from pyclient.testing.simulation.invariants import Judge


def poison_returned_buffers(pool: Pool) -> None:
    """Overwrite memory when it is returned: a late reader gets no valid record (P07)."""
    def poison(buffer: bytearray) -> None:
        buffer[:] = b"\xdd" * len(buffer)

    pool.on_return = poison


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
    rests.clear()

    def rested(position: Any, until: float) -> None:
        rests[position.tp] = position.generation, until

    placement.on_rest = rested


def observe_batches(name: str, sender: Any, judge: Judge) -> None:
    """Evaluate the invariants of each batch that is sent, with its partition's batches in flight."""
    sender._listener = _Watched(sender._listener, name, judge)


class _Watched(BatchListener):
    """What happens to batches, for the judge and for the client's own listener."""

    def __init__(self, own: BatchListener, name: str, judge: Judge) -> None:
        self._own, self._name, self._judge = own, name, judge
        self._nodes: dict[Batch, int] = {}

    def leaves(self, batch: Batch, node: int, sequence: PartitionSequence) -> None:
        """As `BatchListener.leaves`."""
        self._judge.after("leaves", self._name, batch, node, [self._nodes[each] for each in sequence.in_flight], sequence.state.name)
        self._nodes[batch] = node

    def sent(self, batches: list[Batch]) -> None:
        """As `BatchListener.sent`."""
        self._own.sent(batches)

    def stored(self, batch: Batch) -> None:
        """As `BatchListener.stored`."""
        self._own.stored(batch)

    def split(self, batch: Batch) -> None:
        """As `BatchListener.split`."""
        self._own.split(batch)
