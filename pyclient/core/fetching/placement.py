# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Which node each partition is fetched from, or why it is not fetched now (C02, C09).

Independent of requests and data. A partition is in the fetch session of one node, unless it has no position or no
leader, is paused or held, rests after an error, or has enough data buffered.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.codec.fetch import PartitionRequest
from pyclient.core.backoff import Backoff
from pyclient.core.cluster import Cluster, Partition
from pyclient.core.fetching.assigned_positions import AssignedPositions
from pyclient.core.fetching.positions import Position
from pyclient.core.fetching.preferred_replicas import PreferredReplicas
from pyclient.core.fetching.sources import Sources
from pyclient.core.fetching.unconfirmed import Unconfirmed
from pyclient.core.metadata import Metadata
from pyclient.errors import KafkaError, error_for
from pyclient.records import TopicPartition

AHEAD: Final = 2
"""Responses buffered per partition before it is left out of fetches."""
_AHEAD: Final = AHEAD


class Placement:
    """Moves partitions between the sessions of nodes as positions, leaders, pauses and errors change."""

    def __init__(self, positions: AssignedPositions, buffer: FetchBuffer, metadata: Metadata, sources: Sources,
                 preferred: PreferredReplicas, *, backoff: Backoff) -> None:
        self._positions = positions
        self._buffer = buffer
        self._metadata = metadata
        self._view = metadata.view
        self._known: dict[TopicPartition, Partition | None] = {}  # of this view:
        self._known_of: Cluster | None = None
        self._sources = sources
        self._preferred = preferred
        self._backoff = backoff
        self._paused: set[TopicPartition] = set()
        self._held: set[TopicPartition] = set()  # assigned, but not yet or no longer for the user's thread to read
        self._resting: dict[TopicPartition, float] = {}  # until when, after an error
        self._leaderless: dict[TopicPartition, None] = {}  # in order, so that a run can be repeated exactly
        self._unconfirmed = Unconfirmed(metadata)
        self.on_rest: Callable[[Position, float], object] | None = None
        """Called with a position and the time until which it rests."""
        self._followed: Cluster = metadata.view.cluster

    # ---- the node of a partition ------------------------------------------------------------------------------------

    def place(self, tp: TopicPartition) -> None:
        """Put the partition into the session of its node if it may be fetched now, else remove it from its session."""
        position = self._positions.by_partition.get(tp)
        if position is None or not self.is_fetchable(position):
            self._sources.remove(tp)
            return
        node = self._node(tp)
        if node is None:
            self._sources.remove(tp)
            self._leaderless[tp] = None
            self._metadata.request_update()
        else:
            self._sources.add(tp, node)

    def remove(self, tp: TopicPartition) -> None:
        """Remove the partition from its session, and end its rest: its position is set or looked up next."""
        self._leaderless.pop(tp, None)
        self._resting.pop(tp, None)
        self._sources.remove(tp)

    def expect(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The user has named these, so polls raise an error if they do not exist."""
        self._unconfirmed.expect(partitions, now)

    def missing(self, tp: TopicPartition) -> KafkaError | None:
        """As `Unconfirmed.error`."""
        return self._unconfirmed.error(tp)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not assigned any more."""
        self._unconfirmed.forget(tp)
        self._paused.discard(tp)
        self._held.discard(tp)
        self._preferred.end(tp)
        self._preferred.settle(tp)
        self.remove(tp)

    def is_fetchable(self, position: Position) -> bool:
        """Whether a request may name the partition now."""
        tp = position.tp
        return (position.known and tp not in self._paused and tp not in self._held and tp not in self._resting
                and not self._buffer.is_full(tp, _AHEAD))

    def _node(self, tp: TopicPartition) -> int | None:
        """The node to read from: the preferred replica, else the leader."""
        replica = self._preferred.of(tp)
        if replica is not None:
            return replica
        known = self.known(tp)
        return known.leader if known is not None and known.leader in self._view.cluster.nodes else None

    def known(self, tp: TopicPartition) -> Partition | None:
        """The partition as metadata has it now. Looked up once for each view."""
        if self._view.cluster is not self._known_of:
            self._known_of = self._view.cluster
            self._known = {}
        if tp not in self._known:
            self._known[tp] = self._view.cluster.partition(tp)
        return self._known[tp]

    # ---- what the user wants ----------------------------------------------------------------------------------------

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self._paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return and fetch nothing of these until `resume`."""
        paused = list(partitions)
        self._paused.update(paused)
        self.apply_pauses()
        for tp in paused:
            self.place(tp)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End `pause` for these."""
        resumed = list(partitions)
        self._paused.difference_update(resumed)
        self.apply_pauses()
        for tp in resumed:
            self.place(tp)

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is returned: they are paused or held."""
        return frozenset(self._paused | self._held)

    def apply_pauses(self) -> None:
        """Let the buffer return nothing of the paused and the held partitions."""
        self._buffer.pause(self.withheld)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return and fetch nothing of these until `release`."""
        held = list(partitions)
        self._held.update(held)
        self.apply_pauses()
        for tp in held:
            self.place(tp)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """End `hold`; to be placed once its position is looked up, if it has none."""
        self._held.difference_update(partitions)
        self.apply_pauses()

    # ---- rests after errors -----------------------------------------------------------------------------------------

    def rest(self, position: Position, now: float) -> None:
        """After a failure, do not fetch or look up the partition for a while: longer after each failure in a row."""
        position.failures += 1
        until = self._resting[position.tp] = now + self._backoff.after(position.failures)
        if self.on_rest is not None:
            self.on_rest(position, until)

    def rests(self, tp: TopicPartition) -> bool:
        """Whether the partition waits after an error."""
        return tp in self._resting

    def end_rests(self, now: float) -> list[TopicPartition]:
        """Place the partitions whose rest is over, and return them."""
        if not self._resting:
            return []
        rested = [tp for tp, until in self._resting.items() if now >= until]
        for tp in rested:
            del self._resting[tp]
            self.place(tp)
        return rested

    def next_deadline(self) -> float | None:
        """When the next rest ends."""
        return min(self._resting.values()) if self._resting else None

    # ---- leaders and replicas ----------------------------------------------------------------------------------

    def follow_metadata(self) -> None:
        """Move partitions after a change of the metadata."""
        if self._followed is self._view.cluster:
            return
        cluster = self._followed = self._view.cluster
        waiting = [*self._leaderless, *self._sources.pending()]
        self._leaderless.clear()
        for tp in waiting:
            self._surface_topic_error(tp)
        self._surface_missing()
        for tp in (*waiting, *self._preferred.follow(cluster), *self._sources.outdated(self._is_up_to_date)):
            self.place(tp)
        self._sources.forget_nodes(cluster.nodes.__contains__)

    def _is_up_to_date(self, tp: TopicPartition, node: int, requested: PartitionRequest) -> bool:
        """Whether metadata still agrees with what the broker was sent."""
        known = self.known(tp)
        return (known is not None and node == self._node(tp) and requested.leader_epoch == known.epoch
                and requested.topic_id == self._view.cluster.topics[tp.topic].id_bytes)

    def _surface_topic_error(self, tp: TopicPartition) -> None:
        """M03: polls raise a topic's error that waiting cannot cure, once for each metadata response that has it."""
        topic, position = self._view.cluster.topics.get(tp.topic), self._positions.by_partition.get(tp)
        if topic is not None and position is not None and topic.error and not error_for(topic.error).retriable:
            self._positions.fail(position, error_of(Api.METADATA, topic.error, tp=tp), lasting=False)

    def _surface_missing(self) -> None:
        """C13: polls raise it, once for each assignment."""
        for tp, error in self._unconfirmed.newly_missing():
            self._positions.fail(self._positions.by_partition[tp], error, lasting=False)
