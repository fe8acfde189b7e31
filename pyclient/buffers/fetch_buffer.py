# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Fetched data between the reactor, which puts it, and one user thread, which takes it; bounded in bytes, undecoded.

Independent of brokers and records. Rule: what was fetched for an older generation of a partition (before a seek or a
new assignment) is never returned (C03). Only the entry that was taken last has open batches (B06).

Compiled also for the sake of its lock: where the interpreter may raise Ctrl-C behind any call (since 3.12), also
between a lock's ``__enter__`` and the block, a lock that Python code holds may stay held. Compiled code is not
interrupted there.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pyclient.buffers.flag_lock import FlagLock
from pyclient.codec.batches import RecordBatch
from pyclient.errors import KafkaError
from pyclient.records import NO_LEADER_EPOCH, TopicPartition


class Buffered:
    """What the buffer holds: something of one *generation* of a partition, of so many bytes."""

    tp: TopicPartition
    generation: int
    size: int

    def close(self) -> None:
        """Free what its open batches take, if it has any."""


class Chunk(Buffered):
    """What one response held for one partition: batches to return, and the position after them.

    ``epoch`` is the leader epoch of the last record before ``next_offset``. ``refused`` is how many records were wanted
    of a first batch that is too large to be opened there and then, else 0; ``fault`` why it could not be opened since.
    """

    def __init__(self, tp: TopicPartition, generation: int, position: int, batches: Iterable[RecordBatch], next_offset: int,
                 size: int, epoch: int = NO_LEADER_EPOCH) -> None:
        self.tp = tp
        self.generation = generation
        self.epoch = epoch
        self.position = position
        self.batches = deque(batches)
        self.next_offset = next_offset
        self.size = size
        self.refused = 0
        self.fault: BaseException | None = None

    def close(self) -> None:
        """As `Buffered.close`; they are opened again when they are taken."""
        self.batches = deque([batch.closed() for batch in self.batches])

    def __repr__(self) -> str:
        return f"<Chunk {self.tp} {self.position}..{self.next_offset} {self.size} B>"


class Failure(Buffered):
    """An error at its place in a partition's data. A *lasting* one is raised again until a seek."""

    def __init__(self, tp: TopicPartition, generation: int, error: KafkaError, lasting: bool) -> None:
        self.tp = tp
        self.generation = generation
        self.error = error
        self.lasting = lasting
        self.size = 0

    def __repr__(self) -> str:
        return f"<Failure {self.tp} {self.error!r}>"


Entry: TypeAlias = Chunk | Failure


class FetchBuffer:
    """Entries in order of arrival.

    ``on_room`` is called when the reactor waits for room and there is some, ``on_data`` when there is data. *lock* is a
    new one.
    """

    def __init__(self, lock: FlagLock | None = None) -> None:
        self.on_room: Callable[[], object] = _nothing
        self.on_data: Callable[[], object] = _nothing
        self._lock = FlagLock() if lock is None else lock
        self._entries: deque[Entry] = deque()
        self._taken: Entry | None = None  # not among the entries: the user's thread takes records from it
        self._open: Entry | None = None  # the one whose first batches may be open; among the entries, or taken
        self._generations: dict[TopicPartition, int] = {}
        self._counts: dict[TopicPartition, int] = {}
        self._paused: frozenset[TopicPartition] = frozenset()
        self._bytes = 0
        self._drained: dict[TopicPartition, None] = {}  # in order, so that a run can be repeated exactly
        self._awaited: set[TopicPartition] = set()  # whose room the reactor waits for; for any other it need not be woken
        self._bytes_awaited = False
        self._woken = False
        self.poll_requested = False
        """The user's thread has a rebalance to carry out; it clears this first."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Bytes of fetched data held."""
        return self._bytes

    def is_empty(self) -> bool:
        """Whether there is no entry, not even one that an interrupted thread had taken."""
        return self._taken is None and not self._entries

    def __repr__(self) -> str:
        return f"<FetchBuffer {len(self._entries)} entries {self._bytes} B>"

    # ---- the reactor ------------------------------------------------------------------------------------------------

    def count(self, tp: TopicPartition) -> int:
        """How many entries of this partition are buffered."""
        return self._counts.get(tp, 0)

    def is_full(self, tp: TopicPartition, most: int) -> bool:
        """Whether so many entries of this partition are buffered. If so, ``on_room`` is called when one is used up."""
        self._lock.acquire()
        try:
            full = self._counts.get(tp, 0) >= most
            if full:
                self._awaited.add(tp)
        finally:
            self._lock.release()
        return full

    def await_room(self) -> None:
        """Have ``on_room`` called when any entry is used up; check for room then, and right after this call."""
        self._lock.acquire()
        try:
            self._bytes_awaited = True
        finally:
            self._lock.release()

    def put(self, entry: Entry) -> None:
        """Add an entry at the end; dropped if its generation is over."""
        self._lock.acquire()
        try:
            if self._generations.get(entry.tp) != entry.generation:
                return
            self._add(entry)
            self._entries.append(entry)
        finally:
            self._lock.release()
        self.on_data()

    def renew(self, tp: TopicPartition, generation: int | None) -> None:
        """Begin a generation of a partition (None: it is not assigned any more) and drop the data of older ones."""
        self._lock.acquire()
        try:
            if generation is None:
                self._generations.pop(tp, None)
            else:
                self._generations[tp] = generation
            for entry in [entry for entry in self._entries if entry.tp == tp]:
                self._entries.remove(entry)
                self._remove(entry)
            self._drained.pop(tp, None)
        finally:
            self._lock.release()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold back the data of exactly these partitions, keeping it."""
        self._lock.acquire()
        try:
            self._paused = frozenset(partitions)
        finally:
            self._lock.release()
        self.on_data()

    def unread(self, tp: TopicPartition) -> int | None:
        """The first buffered offset that was not returned; None when everything was."""
        self._lock.acquire()
        try:
            generation = self._generations.get(tp)
            entries = (*self._entries, *([self._taken] if self._taken is not None else ()))
            return min((each.position for each in entries
                        if isinstance(each, Chunk) and (each.tp, each.generation) == (tp, generation)), default=None)
        finally:
            self._lock.release()

    def take_drained(self) -> list[TopicPartition]:
        """Partitions whose data was taken since the last call."""
        self._lock.acquire()
        try:
            drained, self._drained = list(self._drained), {}
            return drained
        finally:
            self._lock.release()

    # ---- the user's thread ------------------------------------------------------------------------------------------

    def take(self) -> Entry | None:
        """The next entry that is not paused, or None. It counts as held until `use_up`, or goes back by `give_back`.

        If Ctrl-C interrupted the thread before either call, the entry goes back first.
        """
        if self._taken is not None:
            self.give_back(self._taken)
        self._lock.acquire()
        try:
            entry = self._next()
            if entry is not None:
                self._taken = entry
                self._entries.remove(entry)
                if self._open is not entry:
                    self._leave_open(entry)
        finally:
            self._lock.release()
        return entry

    def next(self) -> Entry | None:
        """What `take` would return; it stays among the entries."""
        self._lock.acquire()
        try:
            return self._next()
        finally:
            self._lock.release()

    def is_open(self, entry: Entry) -> bool:
        """Whether *entry* was taken last, so that its batches may stay open."""
        return self._open is entry

    def use_up(self, entry: Entry) -> None:
        """Every record of the entry was taken: there is room for more."""
        self._lock.acquire()
        try:
            self._taken = self._open = None  # and no call up to here below: Ctrl-C could raise behind it
            self._counts[entry.tp] -= 1
            self._bytes -= entry.size
            self._drained[entry.tp] = None
            awaited = self._bytes_awaited or entry.tp in self._awaited
            self._awaited.discard(entry.tp)
            self._bytes_awaited = False
        finally:
            self._lock.release()
        if awaited:
            self.on_room()

    def give_back(self, entry: Entry, last: bool = False) -> None:
        """Put an entry back: first if partly taken; *last*, with its partition's data, to raise its error again."""
        self._lock.acquire()
        try:
            over = self._generations.get(entry.tp) != entry.generation
            if not over:
                self._put_back(entry, last)
        finally:
            self._lock.release()
        if over:
            self.use_up(entry)

    def ready(self) -> bool:
        """Whether `take` would return an entry."""
        return self.next() is not None

    def wake(self) -> None:
        """End a poll's wait, now or the next one. Takes no lock: the handler of a signal may call it anywhere."""
        self._woken = True
        self.on_data()

    @property
    def woken(self) -> bool:
        """Whether `wake` was called and not taken yet."""
        return self._woken

    def request_poll(self) -> None:
        """End a poll's wait: there is a rebalance to carry out."""
        self.poll_requested = True
        self.on_data()

    def take_wake(self) -> bool:
        """Whether `wake` was called since the last time."""
        if not self._woken:
            return False
        self._woken = False  # only `wake` sets it: a call between these two lines counts as this one
        return True

    # ---- under the lock ---------------------------------------------------------------------------------------------

    def _next(self) -> Entry | None:
        for entry in self._entries:
            if entry.tp not in self._paused:
                return entry
        return None

    def _leave_open(self, entry: Entry) -> None:
        """Only this one's batches may be open from now on."""
        before, self._open = self._open, entry
        if before is not None:
            before.close()

    def _put_back(self, entry: Entry, last: bool) -> None:
        if last:
            behind = [each for each in self._entries if each.tp == entry.tp]
            others = [each for each in self._entries if each.tp != entry.tp]
            self._entries = deque([*others, entry, *behind])
        elif entry not in self._entries:
            self._entries.appendleft(entry)
        self._taken = None

    def _add(self, entry: Entry) -> None:
        self._counts[entry.tp] = self._counts.get(entry.tp, 0) + 1
        self._bytes += entry.size

    def _remove(self, entry: Entry) -> None:
        if self._open is entry:
            self._open = None
        self._counts[entry.tp] -= 1
        self._bytes -= entry.size


def _nothing() -> None:
    """The callback while the facade has set none."""
