"""What to fetch from whom, and where what came belongs (C01–C04, C09–C14).

Knows positions, leaders and how much is buffered; decodes nothing but batch headers. One fetch per node at a time;
a partition is fetched ahead while the user works, at most two answers deep and within ``fetch_buffer_memory``. A session
of each node (`sources.py`) knows what its broker was told: what a turn costs follows what has changed since.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyclient.buffers.fetch_buffer import Chunk, Failure, FetchBuffer
from pyclient.codec.apis import Api
from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.core.backoff import WaitPolicy
from pyclient.core.fetching.isolation import committed_only
from pyclient.core.fetching.limits import READ_COMMITTED, FetchLimits
from pyclient.core.fetching.lookups import LATEST, OffsetLookups
from pyclient.core.fetching.fetch_wait import FetchWait
from pyclient.core.fetching.session_close import SessionClose
from pyclient.core.fetching.positions import Event, Phase, Position
from pyclient.core.fetching.replicas import NearReplicas
from pyclient.core.fetching.requests import BY_NAME, fetch_fields
from pyclient.core.fetching.sessions import FULL, Asking, Wish
from pyclient.core.fetching.sources import Sources
from pyclient.core.fetching.fetch_errors import damaged, is_for_the_user, no_offset, not_in_log, too_large
from pyclient.core.manager import Outcome, Ready, Reply, Request, Use, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.topic_interest import check_topic_name
from pyclient.core.acl_errors import error_of
from pyclient.errors import CorruptRecordError, KafkaError, LogTruncationError, OffsetOutOfRangeError, error_for
from pyclient.records import NO_LEADER_EPOCH, Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

_log = logging.getLogger(__name__)
FindCommitted: TypeAlias = Callable[
    [Sequence[TopicPartition], Callable[[TopicPartition, OffsetAndMetadata | None, KafkaError | None, float], None]],
    Callable[[TopicPartition], None]]
"""Looks up what is committed of partitions, and tells each (partition, position or None, error or None, now).

Gives a function to call with a partition whose answer nobody wants any more."""
AHEAD: Final = 2
"""Answers buffered per partition before it rests."""
NOBODY: Final = -1


class Fetcher:
    """The manager of a consumer's positions and fetches. ``reset_time()`` says what auto_offset_reset means; None: raise."""

    def __init__(self, buffer: FetchBuffer, metadata: Metadata, lookups: OffsetLookups, limits: FetchLimits, *,
                 backoff: WaitPolicy, reset_time: Callable[[], int | None],
                 find_committed: FindCommitted | None) -> None:
        self._buffer = buffer
        self._metadata = metadata
        self._lookups = lookups
        self._limits = limits
        self._backoff = backoff
        self._reset_time = reset_time
        self._find_committed = find_committed
        self.positions: dict[TopicPartition, Position] = {}
        self._generation = 0
        self.lookup_errors: dict[TopicPartition, KafkaError] = {}
        """Why a partition has no position; others are found, or still looked for."""
        self._searches: dict[TopicPartition, Callable[[], None]] = {}  # under way; a call ends it
        self._topic_ids: dict[TopicPartition, Any] = {}  # of the topics that positions stand in
        self._paused: set[TopicPartition] = set()
        self._held: set[TopicPartition] = set()  # assigned, but the user's thread is not ready for them, or done with them
        self._sources = Sources()
        self._near = NearReplicas(limits.rack, limits.replica_lease)
        self._leaderless: dict[TopicPartition, None] = {}  # in order, so that a run can be repeated exactly
        self._resting: dict[TopicPartition, float] = {}
        self._reserved = 0
        self._pace = FetchWait()
        self._view = 0
        self.session_close = SessionClose(self._sources, limits)

    # ---- what the user wants ----------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Read exactly these partitions; those kept go on where they are."""
        wanted = dict.fromkeys(partitions)
        for tp in wanted:
            check_topic_name(tp.topic)
        self.remove([tp for tp in self.positions if tp not in wanted])
        self.add([tp for tp in wanted if tp not in self.positions], now)

    def add(self, partitions: Sequence[TopicPartition], now: float, *, held: bool = False) -> None:
        """Read these too. *held*: only from `release` on; nothing is looked up for them before, unless somebody asks where they stand."""
        for tp in partitions:
            self._generation += 1
            self.positions[tp] = Position(tp, self._generation)
            self._buffer.renew(tp, self._generation)
        self._metadata.pin(tp.topic for tp in self.positions)
        if held:
            self._held.update(partitions)
        else:
            self._initialize([self.positions[tp] for tp in partitions], now)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more, and forget where they stood."""
        for tp in partitions:
            self._forget(tp)
        self._buffer.pause(self._paused)
        self._metadata.pin(tp.topic for tp in self.positions)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these any more."""
        held = [tp for tp in partitions if tp in self.positions]
        self._held.update(held)
        for tp in held:
            self._place(tp)

    def release(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """End `hold`: read these from where they stand."""
        released = [tp for tp in partitions if tp in self.positions]
        self._held.difference_update(released)
        for tp in released:
            self.locate(tp, now)
            self._place(tp)

    def locate(self, tp: TopicPartition, now: float) -> None:
        """Begin to look for the position, if nobody does."""
        position = self.positions[tp]
        if position.phase is Phase.INITIALIZING and tp not in self._searches and tp not in self._resting:
            self._initialize([position], now)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on at *offset*; whatever was fetched before is dropped."""
        position = self._renew(tp)
        position.found(offset)
        self._place(tp)

    def reset(self, tp: TopicPartition, timestamp: int, now: float) -> None:
        """Read on at the offset of *timestamp* (or of the start or end of the log)."""
        position = self._renew(tp)
        position.advance(Event.SOUGHT)
        position.reset_to = timestamp
        self._look_up(position, now)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out and fetch nothing of these until `resume`."""
        paused = list(partitions)
        self._paused.update(paused)
        self._buffer.pause(self._paused)
        for tp in paused:
            self._place(tp)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End `pause` for these."""
        resumed = list(partitions)
        self._paused.difference_update(resumed)
        self._buffer.pause(self._paused)
        for tp in resumed:
            self._place(tp)

    def largest_lag(self) -> int | None:
        """Offsets between what was fetched and the end of the log, where that is most; None while no end is known. For any thread."""
        return max((each.high_watermark - each.offset for each in list(self.positions.values()) if each.known and each.high_watermark is not None),
                   default=None)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self._paused)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """One fetch per node that has partitions to fetch and none under way."""
        if self.session_close.begun:
            return
        self._wake(now)
        self._follow_leaders()
        drained = self._buffer.take_drained()
        if drained:
            self._pace.drained(now)
        for tp in (*drained, *self._near.expire(now), *self._near.give_up(now)):
            self._place(tp)
        for node in self._sources.idle():
            room = self._room()
            if room and self._reaches(node, now, ready):
                asking = self._sources.ask(node, functools.partial(self._wish, now))
                if asking is not None:
                    yield self._request(node, asking, room, now)

    def next_deadline(self) -> float | None:
        """The end of the next pause after an error, or of the patience with a replica that cannot be reached."""
        if self.session_close.begun:
            return None
        return earliest(min(self._resting.values()) if self._resting else None, self._near.next_deadline())

    @property
    def under_way(self) -> list[TopicPartition]:
        """What brokers are being asked for now."""
        return self._sources.under_way()

    # ---- positions --------------------------------------------------------------------------------------------------

    def _initialize(self, positions: list[Position], now: float) -> None:
        """C20: at the committed offset if there is a group, else where auto_offset_reset says."""
        if self._find_committed is None:
            for position in positions:
                self._committed(position, None, None, now)
        elif positions:
            begun = {position.tp: position for position in positions}
            unwanted = self._find_committed(
                list(begun), lambda tp, found, error, now: self._committed(begun[tp], found, error, now))
            self._searches.update((tp, functools.partial(unwanted, tp)) for tp in begun)

    def _committed(self, position: Position, found: OffsetAndMetadata | None, error: KafkaError | None, now: float) -> None:
        if not self._is_current(position) or position.phase is not Phase.INITIALIZING:
            return
        self._searches.pop(position.tp, None)
        if error is not None:
            self._refuse(position, error, now)
        elif found is None:
            position.advance(Event.NOT_FOUND)
            self._look_up(position, now)
        else:
            self._found(position, found.offset, NO_LEADER_EPOCH if found.leader_epoch is None else found.leader_epoch)

    def _look_up(self, position: Position, now: float) -> None:
        """Find the offset that a seek or auto_offset_reset asks for."""
        timestamp = position.reset_to if position.reset_to is not None else self._reset_time()
        if timestamp is None:
            position.advance(Event.NO_POLICY)
            self._fail(position, no_offset(position), lasting=True)
            return
        generation = position.generation

        def found(tp: TopicPartition, answer: OffsetAndTimestamp | None, error: KafkaError | None, now: float) -> None:
            if self._is_current(position) and position.generation == generation and position.phase is Phase.AWAIT_RESET:
                self._looked_up(position, timestamp, answer, error, now)

        (search,) = self._lookups.submit({position.tp: timestamp}, found, deadline=None, now=now)
        self._searches[position.tp] = functools.partial(self._lookups.cancel, search)

    def _looked_up(self, position: Position, timestamp: int, answer: OffsetAndTimestamp | None, error: KafkaError | None,
                   now: float) -> None:
        self._searches.pop(position.tp, None)
        if error is not None:
            self._refuse(position, error, now)
        elif answer is None and timestamp != LATEST:
            position.reset_to = LATEST  # every record is older: what is read next is the next one that comes
            self._look_up(position, now)
        else:
            self._found(position, answer.offset if answer is not None else 0)
            self._show(position)

    def _show(self, position: Position) -> None:
        """No record may come for long: the user's position must not stay where the log does not reach any more."""
        self._buffer.put(Chunk(position.tp, position.generation, position.offset, (), position.offset, 0, position.epoch))

    def _found(self, position: Position, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        position.found(offset, epoch)
        self.lookup_errors.pop(position.tp, None)
        self._place(position.tp)

    def _refuse(self, position: Position, error: KafkaError, now: float) -> None:
        """C20: a look-up that waiting will hardly cure is raised by poll, and yet repeated: it may be granted meanwhile."""
        self._fail(position, error, lasting=False)
        self.lookup_errors[position.tp] = error
        self._pause_after_failure(now, position)

    def _renew(self, tp: TopicPartition) -> Position:
        self._generation += 1
        position = self.positions[tp]
        position.generation = self._generation
        position.failures = 0
        self._buffer.renew(tp, position.generation)
        self._unplace(tp)
        self._end_search(tp)
        return position

    def _forget(self, tp: TopicPartition) -> None:
        del self.positions[tp]
        self._paused.discard(tp)
        self._held.discard(tp)
        self._near.end(tp)
        self._buffer.renew(tp, None)
        self._unplace(tp)
        self._end_search(tp)

    def _end_search(self, tp: TopicPartition) -> None:
        """Nobody wants the answer any more: without this a question that cannot be answered would be asked for good."""
        self.lookup_errors.pop(tp, None)
        self._topic_ids.pop(tp, None)
        end = self._searches.pop(tp, None)
        if end is not None:
            end()

    def _is_current(self, position: Position) -> bool:
        return self.positions.get(position.tp) is position

    def _fail(self, position: Position, error: KafkaError, *, lasting: bool) -> None:
        if lasting:
            self.lookup_errors[position.tp] = error
        if lasting or not self._buffer.count(position.tp):
            self._buffer.put(Failure(position.tp, position.generation, error, lasting))

    # ---- where partitions stand -------------------------------------------------------------------------------------

    def _place(self, tp: TopicPartition) -> None:
        """Queue the partition where it is to be read, if it may be fetched now; if not, it leaves the session it stands in."""
        position = self.positions.get(tp)
        if position is None or not self._fetchable(position):
            self._sources.take(tp)
            return
        node = self._source(tp)
        if node is None:
            self._sources.take(tp)
            self._leaderless[tp] = None
            self._metadata.request_update()
        else:
            self._sources.put(tp, node)

    def _source(self, tp: TopicPartition) -> int | None:
        """The node to read from: a near replica, else the leader."""
        near = self._near.of(tp)
        return self._metadata.cluster.leader(tp) if near is None else near

    def _fetchable(self, position: Position) -> bool:
        tp = position.tp
        return (position.known and tp not in self._paused and tp not in self._held and tp not in self._resting
                and not self._buffer.is_full(tp, AHEAD))

    def _unplace(self, tp: TopicPartition) -> None:
        self._leaderless.pop(tp, None)
        self._resting.pop(tp, None)
        self._sources.take(tp)

    def _follow_leaders(self) -> None:
        if self._view == self._metadata.cluster.version:
            return
        self._view = self._metadata.cluster.version
        waiting = [*self._leaderless, *self._sources.wanted()]
        self._leaderless.clear()
        for tp in waiting:
            self._surface_topic_error(tp)
        for tp in (*waiting, *self._near.follow(self._metadata.cluster), *self._sources.outdated(self._is_true)):
            self._place(tp)
        self._sources.forget_nodes(self._metadata.cluster.nodes.__contains__)

    def _is_true(self, tp: TopicPartition, node: int, wish: Wish) -> bool:
        """Whether the view of the cluster still says what a broker was told."""
        known = self._metadata.cluster.partition(tp)
        return (known is not None and node == self._source(tp) and wish.leader_epoch == known.epoch
                and wish.topic_id == self._metadata.cluster.topics[tp.topic].id)

    def _surface_topic_error(self, tp: TopicPartition) -> None:
        """M03: an error of the topic that waiting cannot cure is raised by poll, once for each time it is told."""
        topic, position = self._metadata.cluster.topics.get(tp.topic), self.positions.get(tp)
        if topic is not None and position is not None and topic.error and not error_for(topic.error).retriable:
            self._fail(position, error_of(Api.METADATA, topic.error, tp=tp), lasting=False)

    def _wake(self, now: float) -> None:
        if not self._resting:
            return
        awake = [tp for tp, until in self._resting.items() if now >= until]
        for tp in awake:
            del self._resting[tp]
            self._place(tp)
        self._search_again([self.positions[tp] for tp in awake if tp not in self._searches], now)

    def _search_again(self, positions: list[Position], now: float) -> None:
        for position in positions:
            if position.phase is Phase.AWAIT_RESET:
                self._look_up(position, now)
        self._initialize([position for position in positions if position.phase is Phase.INITIALIZING], now)

    def _room(self) -> int:
        """Bytes the next answer may have; 0 while the buffer is full, which tells when it is not any more."""
        room = self._free()
        if not room:
            self._buffer.await_room()
            room = self._free()
        return room

    def _free(self) -> int:
        """As `_room`.

        A buffer that has nothing to hand out takes any one answer: what is kept for paused partitions must not starve the others.
        """
        room = self._limits.buffer_memory - self._buffer.bytes - self._reserved
        if not self._reserved and not self._buffer.ready():
            return min(self._limits.max_bytes, self._limits.buffer_memory)  # a broker sends one batch even if it is larger
        return min(room, self._limits.max_bytes) if room >= self._limits.max_partition_bytes else 0

    def _reaches(self, node: int, now: float, ready: Ready) -> bool:
        is_ready = bool(ready.slots(node, Use.FETCH))
        self._near.reached(node, ready=is_ready, now=now)
        return is_ready

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _wish(self, now: float, tp: TopicPartition) -> Wish | None:
        """What to ask for of a partition now; None if it is not to be fetched any more."""
        position, known = self.positions.get(tp), self._metadata.cluster.partition(tp)
        if position is None or known is None or not (self._fetchable(position) and self._stands_in_its_topic(position, now)):
            return None
        return Wish(position.offset, position.generation, known.epoch, position.epoch, self._metadata.cluster.topics[tp.topic].id)

    def _request(self, node: int, asking: Asking, room: int, now: float) -> Request:
        reserved = min(room, len(self._sources.session(node).partitions) * self._limits.max_partition_bytes)
        self._reserved += reserved
        wait = min(self._pace.patience(now), self._limits.max_wait) if self._buffer.ready() else self._limits.max_wait

        def done(now: float, outcome: Outcome) -> None:
            self._reserved -= reserved
            self._ended(now, node, asking, outcome)

        return Request(node=node, use=Use.FETCH, api=Api.FETCH, done=done,
                       fields=fetch_fields(asking, self._limits, rack=self._near.rack(now), max_bytes=room, wait=wait),
                       timeout=self._limits.request_timeout + self._limits.max_wait,
                       versions=BY_NAME if asking.by_name else None)

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _ended(self, now: float, node: int, asking: Asking, outcome: Outcome) -> None:
        moving = self._sources.ended(node)
        if not isinstance(outcome, Reply):
            self._metadata.request_update()
            self._give_up(now, node, outcome.cause)
        elif code := getattr(outcome.message, "error_code", 0):  # since version 7
            self._refused(now, node, asking, error_of(Api.FETCH, code))
        else:
            self._read(now, node, outcome.message)
        for tp in moving:
            self._place(tp)

    def _refused(self, now: float, node: int, asking: Asking, error: KafkaError) -> None:
        """C07: an error of the session is none of its partitions: all are asked for again, at once if that can be another request."""
        _log.debug("node %d refused a fetch of session %d in its epoch %d: %s", node, asking.id, asking.epoch, error)
        if not self._sources.session(node).refused(error) or asking.epoch == FULL:
            self._give_up(now, node, error)

    def _read(self, now: float, node: int, message: Any) -> None:
        nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack)
                 for each in getattr(message, "node_endpoints", ())}
        for tp, wish, part in self._sources.session(node).answered(message):
            position = self.positions.get(tp)
            if position is None or (position.generation, position.offset) != (wish.generation, wish.offset):
                continue  # C03: a seek or a new assignment overtook this answer
            if not position.known:
                continue  # told twice, and the first time ended it
            if part.error_code:
                self._on_error(now, node, position, part, nodes)
            else:
                self._on_data(now, position, part)
            self._place(tp)

    def _on_data(self, now: float, position: Position, part: Any) -> None:
        diverging = getattr(part, "diverging_epoch", None)  # since version 12; without a divergence both are -1
        if diverging is not None and diverging.epoch >= 0 and diverging.end_offset >= 0:
            self._diverged(now, position, diverging.epoch, diverging.end_offset)
            return
        position.high_watermark = part.high_watermark
        if getattr(part, "preferred_read_replica", NOBODY) != NOBODY:  # since version 11
            self._go_near(now, position, part.preferred_read_replica)
        elif not part.records:
            position.failures = 0
        if not part.records:
            return
        try:
            batches = read_batches(part.records, decompression_limit=self._limits.decompression_limit,
                                   check_crcs=self._limits.check_crcs)
            fresh = [batch for batch in batches if batch.next_offset > position.offset]
            data = self._readable(fresh, part)
        except CorruptRecordError as error:
            self._fail(position, damaged(position, error), lasting=True)
            position.advance(Event.SOUGHT)  # waits for a seek: what follows cannot be told apart
            position.advance(Event.NO_POLICY)
            return
        if fresh:
            position.failures = 0
            self._pace.came(now)
            self._buffer_up(position, fresh, data)
            return
        self._pause_after_failure(now, position)  # what came does not help: not again at once
        if not batches:
            self._fail(position, too_large(position, self._limits.max_partition_bytes), lasting=False)

    def _readable(self, batches: list[RecordBatch], part: Any) -> list[RecordBatch]:
        """Without control batches, which only move the position (C04), and without what the isolation level hides."""
        if self._limits.isolation == READ_COMMITTED:
            return committed_only(batches, part.aborted_transactions or ())
        return [batch for batch in batches if not batch.is_control]

    def _buffer_up(self, position: Position, batches: list[RecordBatch], data: list[RecordBatch]) -> None:
        start = position.offset
        position.read(batches, batches[-1].next_offset)
        self._buffer.put(Chunk(position.tp, position.generation, start, data, position.offset,
                               sum(batch.size for batch in batches), position.epoch))

    def _go_near(self, now: float, position: Position, replica: int) -> None:
        """C09: the leader wants us to read from a nearer replica."""
        if not self._near.begin(position.tp, replica, self._metadata.cluster, now):
            self._metadata.request_update()
            self._pause_after_failure(now, position)

    def _on_error(self, now: float, node: int, position: Position, part: Any, nodes: Mapping[int, Node]) -> None:
        error = error_of(Api.FETCH, part.error_code, tp=position.tp)
        hint = getattr(part, "current_leader", None)
        self._near.end(position.tp)
        if isinstance(error, OffsetOutOfRangeError) and node != self._metadata.cluster.leader(position.tp):
            self._pause_after_failure(now, position)  # C09: only the leader knows what the log holds
            return
        if isinstance(error, OffsetOutOfRangeError):
            if position.history:
                # C11: also said of an offset in the log, when the broker knows nothing of the epoch: no reason to report a loss.
                position.history.clear()
            else:
                self._out_of_range(now, position, "is not in the log")
            return
        if error.refresh or error.retriable:
            self._metadata.request_update()
        if hint is not None and self._follow_hint(position.tp, hint, nodes):
            return
        if is_for_the_user(error):
            self._fail(position, error, lasting=False)
        self._pause_after_failure(now, position)

    def _follow_hint(self, tp: TopicPartition, hint: Any, nodes: Mapping[int, Node]) -> bool:
        """C12: whether the answer names a newer leader; then that one is asked at once."""
        before = self._metadata.cluster
        self._metadata.hint(before.moved(tp, hint.leader_id, hint.leader_epoch, nodes.get(hint.leader_id)))
        return self._metadata.cluster is not before

    def _pause_after_failure(self, now: float, position: Position) -> None:
        position.failures += 1
        self._resting[position.tp] = now + self._backoff.after(position.failures)

    def _stands_in_its_topic(self, position: Position, now: float) -> bool:
        """C15: a topic that was deleted and made anew is another one, in which the position means nothing."""
        current = self._metadata.cluster.topics[position.tp.topic].id
        known = self._topic_ids.setdefault(position.tp, current)
        if known == current or known is None or current is None:
            return True
        self._topic_ids[position.tp] = current
        _log.warning("topic %r was deleted and made anew: offset %d of %s means nothing in it, auto_offset_reset decides",
                     position.tp.topic, position.offset, position.tp)
        self._out_of_range(now, position, "is of a topic that was deleted and made anew")
        return False

    def _out_of_range(self, now: float, position: Position, why: str) -> None:
        """C10: the position is not in the log (any more): reset by policy, else raise and wait for a seek."""
        position.advance(Event.OUT_OF_RANGE)
        if self._reset_time() is not None:
            self._pause_after_failure(now, position)  # should the offset found be refused too, not at the network's speed
            self._look_up(position, now)
            return
        position.advance(Event.NO_POLICY)
        self._fail(position, not_in_log(position, why), lasting=True)

    def _diverged(self, now: float, position: Position, epoch: int, end: int) -> None:
        """C11: what was fetched last is not in the log any more. Read on where the logs part, or at what the user has not got if that is before.

        Where the user was handed nothing of what was cut off, nothing happened to him.
        """
        cut = position.divergence(epoch, end)
        if cut >= position.offset:
            self._pause_after_failure(now, position)  # no divergence at all: not again at once
            return
        unread = self._buffer.unread(position.tp)
        reached = position.offset if unread is None else unread
        self._renew(position.tp)
        position.advance(Event.DIVERGED)
        if reached > cut and self._reset_time() is None:
            self._truncated(position, reached, cut, epoch)
            return
        position.back_to(min(cut, reached))
        if reached > cut:
            _log.warning("the log of %s was cut back to offset %d (leader epoch %d): what was read from there on, up to offset %d, "
                         "is not in it any more; reading goes on at %d", position.tp, cut, epoch, reached, position.offset)
        self._show(position)

    def _truncated(self, position: Position, reached: int, cut: int, epoch: int) -> None:
        position.advance(Event.NO_POLICY)
        self._fail(position, LogTruncationError(position.tp, offset=reached, divergent_offset=cut, leader_epoch=epoch), lasting=True)

    def _give_up(self, now: float, node: int, cause: KafkaError) -> None:
        """All that was asked of a node: it is asked again later, or somebody else is."""
        session = self._sources.session(node)
        session.renew()
        for tp in list(session.partitions):
            position = self.positions.get(tp)
            if position is not None:
                self._near.end(tp)
                self._pause_after_failure(now, position)
                if is_for_the_user(cause):
                    self._fail(position, cause, lasting=False)
                self._place(tp)
