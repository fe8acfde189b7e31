# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The partitions of a topic as senders see them: where each one's batches stand in line, whose turn it is, what they hold of the memory.

Knows partitions, their leaders and the turns of what has no key; knows neither records nor buffers.
Rule: partitions without a leader hold at most half the memory together, so that they stop no other. Everything is done under the
Accumulator's lock, save looking at what is published: a topic's queues and which of them are available.
"""
import cython

from bisect import bisect_right
from collections import deque

from pyclient.records import TopicPartition


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition: the open one takes records, the others wait in order. The fields are declared in queues.pxd."""

    def __init__(self, home: object, topic: str, partition: cython.int):
        self._home = home
        self.topic = topic
        self.partition = partition
        self.waiting = deque()

    @property
    def topic_partition(self):
        return TopicPartition(self.topic, self.partition)

    def __repr__(self):
        return f"<PartitionQueue {self.topic}-{self.partition} {len(self.waiting)} waiting>"


@cython.final
@cython.cclass
class TopicQueues:
    """A topic's partitions as senders see them, and the partition keyless records stick to for now (KIP-794).

    The fields are declared in queues.pxd.
    """

    def __init__(self, topic: str):
        self.topic = topic
        self.queues = []
        self.available = ()
        self._sticky = -1
        self._busy = {}

    def update(self, count, available):
        """The topic has *count* partitions now, those of *available* with a leader; they stand in order, as shares are found by bisection.

        Fewer than before when it was created anew: the queues of the others take no more records, but keep what they hold.
        """
        for number in range(len(self.queues), count):
            self.queues.append(PartitionQueue(self, self.topic, number))
        self._count = count
        self.shares = None
        self.available = tuple(sorted(available)) or tuple(range(count))
        if self._sticky not in self.available:
            self._sticky = -1

    def pick(self, draw: cython.double):
        """The partition that *draw*, from 0 up to but not 1, falls on: a binary search in the sums of the shares (P32)."""
        if self.shares is None:
            return self.available[int(draw * len(self.available))]
        total, whole, ends, positions = self.shares
        point: cython.longlong = int(draw * total)
        behind: cython.Py_ssize_t = bisect_right(ends, point)  # so many busy ones lie wholly before the point
        at: cython.longlong = point // whole
        if behind > 0:
            at = positions[behind - 1] + 1 + (point - ends[behind - 1]) // whole
        return self.available[at if behind == len(ends) else min(at, positions[behind])]

    def __len__(self):
        return self._count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def turn(self, homeless: cython.Py_ssize_t, full: cython.Py_ssize_t, random: object) -> cython.bint:
        """Draw another sticky partition, if there is none or its turn is over; whether that was so.

        *homeless* are the bytes of a record that found no room in its batch, *full* those that a batch holds.
        """
        if self._sticky >= 0 and not self._turn_is_over(homeless, full):
            return False
        # Not choice(): interpreted code under the lock would run the handlers of signals there, and theirs may send.
        self._sticky = self.pick(random.random())
        self._sticky_bytes = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _turn_is_over(self, homeless: cython.Py_ssize_t, full: cython.Py_ssize_t) -> cython.bint:
        """A batch's worth of bytes, and no batch to be filled (P31). The gap at a full batch's end counts, or a turn would begin another."""
        queue: PartitionQueue = self.queues[self._sticky]
        return queue._open is None and self._sticky_bytes + homeless >= full


@cython.final
@cython.cclass
class PartitionMemory:
    """The bytes that partitions hold of *memory*: each one's, and together those of partitions without a leader."""

    def __init__(self, memory: cython.Py_ssize_t):
        self._half = memory // 2

    @cython.cfunc
    def account(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> object:
        """The queue's batches take *size* bytes more."""
        queue._held += size
        if queue._leaderless:
            self._stranded += size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def strands(self, queue: PartitionQueue, size: cython.Py_ssize_t) -> cython.bint:
        """Whether *size* bytes more would give partitions without a leader above half the memory. They may always have one batch."""
        return queue._leaderless and self._stranded > 0 and self._stranded + size > self._half

    @cython.cfunc
    def lead(self, queue: PartitionQueue, led: cython.bint) -> object:
        """The queue's partition has a leader, or has none."""
        if queue._leaderless == led:
            queue._leaderless = not led
            self._stranded += -queue._held if led else queue._held

    def __str__(self):
        """What there is to say of it, behind how much all hold."""
        return f", {self._stranded} B of them for partitions without a leader, which may take half" if self._stranded else ""
