# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The fetches of a consumer: what the user wants to read, and one request per node at a time (C01–C04, C09–C14).

A partition is fetched ahead while the user works, at most two responses deep and within ``fetch_buffer_memory``. A
session of each node (`sources.py`) knows what its broker was sent: the cost of a turn depends on what has changed.

`AssignedPositions` owns the positions, `PositionLookups` finds them, `Placement` chooses the node of each partition,
and `FetchResponses` handles responses.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.codec.fetch import PartitionRequest
from pyclient.core.backoff import Backoff
from pyclient.core.fetching.assigned_positions import AssignedPositions
from pyclient.core.fetching.empty_responses import EmptyResponses
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.lookups import OffsetLookups
from pyclient.core.fetching.placement import Placement
from pyclient.core.fetching.position_lookups import FindCommitted, PositionLookups
from pyclient.core.fetching.positions import Event, Position
from pyclient.core.fetching.preferred_replicas import PreferredReplicas
from pyclient.core.fetching.fetch_request import FetchRequest
from pyclient.core.fetching.responses import FetchResponses
from pyclient.core.fetching.session_close import SessionClose
from pyclient.core.fetching.sources import Sources
from pyclient.core.fetching.fetches_in_flight import FetchesInFlight, FetchWait
from pyclient.core.manager import Manager, Outcome, Ready, Use, earlier
from pyclient.core.metadata import Metadata
from pyclient.core.topic_interest import check_topic_name
from pyclient.errors import KafkaError
from pyclient.records import NO_LEADER_EPOCH, TopicPartition


FETCH_USE: Final = Use.FETCH


class Fetcher(Manager):
    """The manager of a consumer's positions and fetches. ``reset_time()`` is as in `PositionLookups`."""

    def __init__(self, buffer: FetchBuffer, metadata: Metadata, lookups: OffsetLookups, limits: FetchLimits, *,
                 backoff: Backoff, reset_time: Callable[[], int | None],
                 find_committed: FindCommitted | None) -> None:
        self.needs_poll = True
        self._buffer = buffer
        self._metadata = metadata
        self._view = metadata.view
        self._sources = Sources()
        self._preferred = PreferredReplicas(limits.rack, limits.replica_lease)
        self._fetch_wait = FetchWait()
        self._empty = EmptyResponses(backoff)
        self._assigned = AssignedPositions(buffer)
        self._placement = Placement(self._assigned, buffer, metadata, self._sources, self._preferred, backoff=backoff)
        self._lookups = PositionLookups(self._assigned, self._placement, metadata, lookups,
                                        reset_time=reset_time, find_committed=find_committed)
        self._responses = FetchResponses(self._assigned, self._lookups, self._placement, self._preferred, buffer, metadata, limits,
                                         self._fetch_wait)
        self.fetches = FetchesInFlight(buffer, limits, self._fetch_wait, on_end=self._ended)
        """Those under way."""
        self.session_close = SessionClose(self._sources, limits)

    # ---- what the user wants ----------------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[TopicPartition, Position]:
        """The position of each assigned partition."""
        return self._assigned.by_partition

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._placement.paused

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is returned: they are paused or held."""
        return self._placement.withheld

    def assign(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Read exactly these partitions; those kept go on where they are."""
        wanted = dict.fromkeys(partitions)
        for tp in wanted:
            check_topic_name(tp.topic)
        self.remove([tp for tp in self.positions if tp not in wanted])
        new = [tp for tp in wanted if tp not in self.positions]
        self.add(new, now)
        self._placement.expect(new, now)

    def add(self, partitions: Sequence[TopicPartition], now: float, *, held: bool = False) -> None:
        """Read these too. *held*: only from `release` on; until then their positions are looked up only on request."""
        for tp in partitions:
            self._assigned.add(tp)
        self._metadata.pin(tp.topic for tp in self.positions)
        if held:
            self._placement.hold(partitions)
        else:
            self._lookups.begin([self.positions[tp] for tp in partitions], now)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these, and forget their positions."""
        for tp in partitions:
            self._assigned.remove(tp)
            self._placement.forget(tp)
            self._lookups.cancel(tp)
        self._placement.apply_pauses()
        self._metadata.pin(tp.topic for tp in self.positions)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return and fetch nothing of these until `release`."""
        self._placement.hold([tp for tp in partitions if tp in self.positions])

    def release(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """End `hold`: read these from their positions on."""
        released = [tp for tp in partitions if tp in self.positions]
        self._placement.release(released)
        self._lookups.locate(released, now)
        for tp in released:
            self._placement.place(tp)

    def why_unknown(self, tp: TopicPartition) -> KafkaError | None:
        """Why a position cannot be found: its look-up failed, or the partition does not exist."""
        return self._assigned.lookup_errors.get(tp) or self._placement.missing(tp)

    def locate(self, tp: TopicPartition, now: float) -> None:
        """Look up the position, unless a look-up runs already."""
        self._lookups.locate([tp], now)

    def seek(self, tp: TopicPartition, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        """Continue at *offset*; data fetched before is dropped. *epoch* is that of the record before, if known."""
        position = self._lookups.renew(tp)
        position.found(offset, epoch)
        self._placement.place(tp)

    def reset(self, tp: TopicPartition, timestamp: int, now: float) -> None:
        """Continue at the offset of *timestamp* (or at the start or end of the log)."""
        position = self._lookups.renew(tp)
        position.advance(Event.SOUGHT)
        position.reset_to = timestamp
        self._lookups.reset(position, now)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return and fetch nothing of these until `resume`."""
        self._placement.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End `pause` for these."""
        self._placement.resume(partitions)

    def is_lost(self, tp: TopicPartition) -> bool:
        """As `AssignedPositions.is_lost`."""
        return self._assigned.is_lost(tp)

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """As `AssignedPositions.high_watermark`."""
        return self._assigned.high_watermark(tp)

    def largest_lag(self) -> int | None:
        """As `AssignedPositions.largest_lag`."""
        return self._assigned.largest_lag()

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> NextFetches:
        """One fetch per node that has partitions to fetch and none under way."""
        if self.session_close.begun:
            return _next_fetches(self, [], now, ready)
        self._prepare(now)
        return _next_fetches(self, self._sources.idle(), now, ready)

    def _prepare(self, now: float) -> None:
        """Place what may be fetched since the last poll, or from another node."""
        rested = self._placement.end_rests(now)
        if rested:
            self._lookups.repeat(rested, now)
        self._placement.follow_metadata()
        self._empty.end_pauses(now)
        drained = self._buffer.take_drained()
        if drained:
            self._fetch_wait.drained(now)
        for tp in drained:
            self._placement.place(tp)
        for tp in self._preferred.expire(now) + self._preferred.give_up(now):
            self._placement.place(tp)

    def fetch(self, node: int, now: float, ready: Ready) -> FetchRequest | None:
        """The next fetch from an idle node; None if it is not to be written now, or would read nothing."""
        room = 0 if self._empty.pauses(node) else self.fetches.room()
        if not room or not self._is_reachable(node, now, ready):
            return None
        request = self._sources.next_request(node, functools.partial(self._request_of, now))
        return None if request is None else self.fetches.begin(node, self._sources.session(node), request, room, now, self._preferred.rack(now))

    def next_deadline(self) -> float | None:
        """When the next rest or pause ends, or the next near replica that cannot be reached is given up."""
        if self.session_close.begun:
            return None
        return earlier(earlier(self._placement.next_deadline(), self._preferred.next_deadline()), self._empty.next_deadline())

    @property
    def in_flight(self) -> list[TopicPartition]:
        """The partitions of the fetches under way."""
        return self._sources.in_flight()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _is_reachable(self, node: int, now: float, ready: Ready) -> bool:
        is_ready = bool(ready.slots(node, FETCH_USE))
        self._preferred.reached(node, is_ready, now)
        return is_ready

    def _request_of(self, now: float, tp: TopicPartition) -> PartitionRequest | None:
        """What to request of a partition now; None if it is not to be fetched any more."""
        position, known = self._assigned.by_partition.get(tp), self._placement.known(tp)
        if position is None or known is None or not (
                self._placement.is_fetchable(position) and self._lookups.is_of_current_topic(position, now)):
            return None
        return PartitionRequest(position.offset, position.generation, known.epoch, position.epoch, self._view.cluster.topics[tp.topic].id_bytes)

    def _ended(self, fetch: FetchRequest, now: float, outcome: Outcome) -> None:
        node = fetch.node
        self.fetches.end(fetch)
        moving = self._sources.ended(node)
        self._responses.on_outcome(now, node, fetch.session, fetch.session_request, outcome)
        self._empty.answered(node, now, outcome, now - fetch.began, fetch.wait)
        for tp in moving:
            self._placement.place(tp)


class NextFetches:
    """Makes each fetch when the one before it is written."""

    def __iter__(self) -> NextFetches:
        return self

    def __next__(self) -> FetchRequest:
        while self._nodes:
            found = self._fetcher.fetch(self._nodes.pop(), self._now, self._ready)
            if found is not None:
                return found
        raise StopIteration

    if TYPE_CHECKING:
        _fetcher: Fetcher
        _nodes: list[int]
        _now: float
        _ready: Ready


def _next_fetches(fetcher: Fetcher, nodes: list[int], now: float, ready: Ready) -> NextFetches:
    """From *nodes*, in their order."""
    made: NextFetches = NextFetches.__new__(NextFetches)
    nodes.reverse()
    made._fetcher, made._nodes, made._now, made._ready = fetcher, nodes, now, ready
    return made
