# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""What a fetch response means for the positions it names (C03–C06, C09–C13).

Knows positions, leaders and errors; decodes nothing but batch headers. Each partition of a response is handled alone:
data go to the buffer, a new leader or replica is followed, an error is retried after a rest, and polls raise it if the
user can help.
"""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyclient.buffers.fetch_buffer import Chunk, FetchBuffer
from pyclient.codec.apis import Api
from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.fetch import NO_REPLICA, FetchedPartition, FetchResponse, PartitionRequest
from pyclient.core.acl_errors import error_of
from pyclient.core.cluster import nodes_of
from pyclient.core.fetching.assigned_positions import AssignedPositions
from pyclient.core.fetching.fetch_errors import damaged, is_for_the_user, too_large
from pyclient.core.fetching.isolation import committed_only
from pyclient.core.fetching.limits import READ_COMMITTED, FetchLimits
from pyclient.core.fetching.placement import Placement
from pyclient.core.fetching.position_lookups import PositionLookups
from pyclient.core.fetching.positions import Event, Position
from pyclient.core.fetching.preferred_replicas import PreferredReplicas
from pyclient.core.fetching.sessions import FULL, Session, SessionRequest
from pyclient.core.fetching.fetches_in_flight import FetchWait
from pyclient.core.manager import Outcome, Reply
from pyclient.core.metadata import Metadata
from pyclient.errors import CorruptRecordError, KafkaError, LogTruncationError, OffsetOutOfRangeError
from pyclient.records import Node, TopicPartition

_log = logging.getLogger(__name__)
_NO_REPLICA: Final = NO_REPLICA
_NO_NODES: Final[Mapping[int, Node]] = {}


class FetchResponses:
    """Handles the outcome of each fetch."""

    def __init__(self, positions: AssignedPositions, lookups: PositionLookups, placement: Placement, preferred: PreferredReplicas,
                 buffer: FetchBuffer, metadata: Metadata, limits: FetchLimits, fetch_wait: FetchWait) -> None:
        self._positions = positions
        self._lookups = lookups
        self._placement = placement
        self._preferred = preferred
        self._buffer = buffer
        self._metadata = metadata
        self._limits = limits
        self._fetch_wait = fetch_wait

    def on_outcome(self, now: float, node: int, session: Session, session_request: SessionRequest, outcome: Outcome) -> None:
        """The fetch *session_request* of *session* ended."""
        if not isinstance(outcome, Reply):
            self._metadata.request_update()
            self._on_failure(now, session, outcome.cause)
        elif outcome.message.error_code:
            self._on_session_error(now, node, session, session_request, error_of(Api.FETCH, outcome.message.error_code))
        else:
            self._on_response(now, node, session, outcome.message)

    def _on_session_error(self, now: float, node: int, session: Session, session_request: SessionRequest, error: KafkaError) -> None:
        """C07: an error of the session is no error of its partitions.

        They are requested again, at once if the next request can differ.
        """
        _log.debug("node %d refused a fetch of session %d in its epoch %d: %s", node, session_request.id, session_request.epoch, error)
        if not session.on_error(error) or session_request.epoch == FULL:
            self._on_failure(now, session, error)

    def _on_failure(self, now: float, session: Session, cause: KafkaError) -> None:
        """The fetch failed for all its partitions: they are fetched again later, perhaps from another node."""
        session.renew()
        for tp in list(session.partitions):
            position = self._positions.by_partition.get(tp)
            if position is not None:
                self._preferred.end(tp)
                self._placement.rest(position, now)
                if is_for_the_user(cause):
                    self._positions.fail(position, cause, lasting=False)
                self._placement.place(tp)

    def _on_response(self, now: float, node: int, session: Session, message: FetchResponse) -> None:
        nodes = nodes_of(message.node_endpoints) if message.node_endpoints else _NO_NODES
        for tp, requested, fetched in session.on_response(message):
            position = self._positions.by_partition.get(tp)
            if position is None or not _is_asked_for(position, requested):
                continue
            leads = self._leads(node, tp, requested)
            if fetched.error_code:
                self._on_partition_error(now, position, fetched, nodes, leads)
            else:
                self._on_data(now, position, fetched, leads)
            self._placement.place(tp)

    def _leads(self, node: int, tp: TopicPartition, requested: PartitionRequest) -> bool:
        """Whether *node* answered as the leader, of the epoch that the request named: it may be a new one by now."""
        known = self._placement.known(tp)
        return known is not None and known.leader == node and known.epoch == requested.leader_epoch

    # ---- data -------------------------------------------------------------------------------------------------------

    def _on_data(self, now: float, position: Position, fetched: FetchedPartition, leads: bool) -> None:
        if leads:
            self._preferred.settle(position.tp)
        diverging = fetched.diverging_epoch  # without a divergence it is None, or both are -1
        if diverging is not None and diverging.epoch >= 0 and diverging.end_offset >= 0:
            if leads:
                self._on_divergence(now, position, diverging.epoch, diverging.end_offset)
            else:
                self._doubt(now, position)
            return
        position.high_watermark = fetched.high_watermark
        if fetched.preferred_read_replica != _NO_REPLICA:
            self._follow_preferred_replica(now, position, fetched.preferred_read_replica)
        elif not fetched.records:
            position.failures = 0
        if fetched.records:
            self._on_records(now, position, fetched, fetched.records)

    def _on_records(self, now: float, position: Position, fetched: FetchedPartition, records: memoryview) -> None:
        try:
            batches = read_batches(records, self._limits.decompression_limit, self._limits.check_crcs)
            fresh = [batch for batch in batches if batch.next_offset > position.offset]
            data = self._readable(fresh, fetched)
        except CorruptRecordError as error:
            self._positions.fail(position, damaged(position, error), lasting=True)
            position.advance(Event.SOUGHT)  # waits for a seek: what follows cannot be parsed
            position.advance(Event.NO_POLICY)
            return
        if fresh:
            self._take(now, position, fresh, data)
            return
        self._placement.rest(position, now)  # no record at or after the position: a fetch at once would get the same
        if not batches:
            self._positions.fail(position, too_large(position, self._limits.max_partition_bytes), lasting=False)

    def _readable(self, batches: list[RecordBatch], fetched: FetchedPartition) -> list[RecordBatch]:
        """Without control batches, which only move the position (C04), and without what the isolation level hides."""
        if self._limits.isolation == READ_COMMITTED:
            return committed_only(batches, fetched.aborted_transactions or ())
        return [batch for batch in batches if not batch.is_control]

    def _take(self, now: float, position: Position, batches: list[RecordBatch], data: list[RecordBatch]) -> None:
        """Put *data* of *batches* into the buffer; the position is behind them."""
        position.failures = 0
        self._fetch_wait.came(now)
        start = position.offset
        epoch = position.read(batches, batches[-1].next_offset)
        size = 0
        for batch in batches:
            size += batch.size
        self._buffer.put(Chunk(position.tp, position.generation, start, data, position.offset, size, epoch))

    def _follow_preferred_replica(self, now: float, position: Position, replica: int) -> None:
        """C09: the leader wants us to read from a nearer replica."""
        if not self._preferred.begin(position.tp, replica, self._metadata.cluster, now):
            self._metadata.request_update()
            self._placement.rest(position, now)

    def _doubt(self, now: float, position: Position) -> None:
        """C09: only the leader knows what the log holds. A follower may be behind, or have lost what it had."""
        self._preferred.doubt(position.tp, now)
        self._placement.rest(position, now)

    # ---- errors -----------------------------------------------------------------------------------------------------

    def _on_partition_error(self, now: float, position: Position, fetched: FetchedPartition, nodes: Mapping[int, Node], leads: bool) -> None:
        error = error_of(Api.FETCH, fetched.error_code, tp=position.tp)
        hint = fetched.current_leader
        self._preferred.end(position.tp)
        if isinstance(error, OffsetOutOfRangeError):
            self._on_out_of_range(now, position, leads)
            return
        if error.refresh or error.retriable:
            self._metadata.request_update()
        if hint is not None and self._follow_hint(position.tp, hint, nodes):
            return
        if is_for_the_user(error):
            self._positions.fail(position, error, lasting=False)
        self._placement.rest(position, now)

    def _on_out_of_range(self, now: float, position: Position, leads: bool) -> None:
        if not leads:
            self._doubt(now, position)
        elif position.history:
            # C11: brokers also return it for an offset in the log if they do not know the epoch: fetch without one.
            position.history.clear()
        else:
            self._lookups.on_out_of_range(now, position, "is not in the log")

    def _follow_hint(self, tp: TopicPartition, hint: Any, nodes: Mapping[int, Node]) -> bool:
        """C12: whether the response names a newer leader; then the partition is fetched from that one at once."""
        before = self._metadata.cluster
        self._metadata.hint(before.moved(tp, hint.leader_id, hint.leader_epoch, nodes.get(hint.leader_id)))
        return self._metadata.cluster is not before

    # ---- truncated logs (KIP-320) -----------------------------------------------------------------------------------

    def _on_divergence(self, now: float, position: Position, epoch: int, end: int) -> None:
        """C11: records fetched last are not in the log any more.

        Continue where the logs diverge, or at the first record the user has not got if that is before.
        If no truncated record was returned to the user, nothing is reported.
        """
        cut = position.divergence(epoch, end)
        if cut >= position.offset:
            self._placement.rest(position, now)  # no divergence at all: not again at once
            return
        tp = position.tp
        unread = self._buffer.unread(tp)
        reached = position.offset if unread is None else unread
        self._lookups.renew(tp)
        position.advance(Event.DIVERGED)
        if reached > cut and not self._lookups.resets:
            self._on_truncation(position, reached, cut, epoch)
            return
        position.back_to(min(cut, reached))
        if reached > cut:
            _log.warning("the log of %s was cut back to offset %d (leader epoch %d): what was read from there on, up to offset %d, "
                         "is not in it any more; reading goes on at %d", tp, cut, epoch, reached, position.offset)
        self._positions.show(position)

    def _on_truncation(self, position: Position, reached: int, cut: int, epoch: int) -> None:
        position.advance(Event.NO_POLICY)
        error = LogTruncationError(position.tp, offset=reached, divergent_offset=cut, leader_epoch=epoch)
        self._positions.fail(position, error, lasting=True)


def _is_asked_for(position: Position, requested: PartitionRequest) -> bool:
    """False if a seek or a new assignment overtook the response (C03), or if that names the partition twice, and the
    first time ended it."""
    return position.known and position.offset == requested.offset and position.generation == requested.generation
