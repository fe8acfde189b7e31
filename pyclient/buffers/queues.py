# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The topics of a producer: a batch queue per partition, and the sticky partition of keyless records (KIP-794).

Independent of records and buffers.
Every call is made under the Accumulator's lock, except reads of a topic's queues and of the available ones.
"""
import cython

from bisect import bisect_right

from pyclient.records import TopicPartition


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition: the open one takes records, the others wait in order.

    The fields are declared in queues.pxd.
    """

    def __init__(self, home: object, topic: str, partition: cython.int):
        self._home = home
        self.topic = topic
        self.partition = partition
        self.waiting = []

    @property
    def topic_partition(self):
        return TopicPartition(self.topic, self.partition)

    def __repr__(self):
        return f"<PartitionQueue {self.topic}-{self.partition} {len(self.waiting)} waiting>"


@cython.final
@cython.cclass
class TopicQueues:
    """The partitions of a topic, and which of them is sticky now. The fields are declared in queues.pxd."""

    def __init__(self, topic: str):
        self.topic = topic
        self.queues = []
        self._available = ()
        self._sticky = -1
        self._busy = {}

    def update(self, count, available):
        """The topic has *count* partitions now, those of *available* with a leader, sorted because `pick` bisects.

        There are fewer than before when the topic was created again: the queues of the others take no more records,
        but keep theirs.
        """
        for number in range(len(self.queues), count):
            self.queues.append(PartitionQueue(self, self.topic, number))
        self._count = count
        self.shares = None
        led: tuple = tuple(sorted(available)) or tuple(range(count))
        with cython.critical_section(self):
            self._available = led
        if self._sticky not in led:
            self._sticky = -1

    @property
    def available(self):
        with cython.critical_section(self):  # without a GIL the reactor could free it between the read and its use
            return self._available

    def pick(self, draw: cython.double):
        """The partition of *draw*, 0 <= draw < 1: a binary search in the sums of the shares (P32)."""
        if self.shares is None:
            return self._available[int(draw * len(self._available))]
        total, whole, ends, positions = self.shares
        point: cython.longlong = int(draw * total)
        behind: cython.Py_ssize_t = bisect_right(ends, point)  # busy partitions whose share ends before the point
        at: cython.longlong = point // whole
        if behind > 0:
            at = positions[behind - 1] + 1 + (point - ends[behind - 1]) // whole
        return self._available[at if behind == len(ends) else min(at, positions[behind])]

    def __len__(self):
        return self._count

    @cython.cfunc
    def backlogs(self) -> list:
        """(partition, number of batches that are closed and not done), by partition, for partitions that have any."""
        queue: PartitionQueue
        busy: dict = {queue.partition: len(queue.waiting) for queue in self._busy if queue.partition < self._count}
        return [(partition, busy[partition]) for partition in sorted(busy)]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def turn(self, rejected: cython.Py_ssize_t, full: cython.Py_ssize_t, random: object) -> cython.bint:
        """Draw another sticky partition if there is none or its turn is over; True if it drew.

        *rejected* are the bytes of a record that did not fit into the open batch, *full* the bytes that a batch holds.
        """
        if self._sticky >= 0 and not self._turn_is_over(rejected, full):
            return False
        # Not choice(): interpreted code runs signal handlers, here under the lock, and a handler may call send().
        self._sticky = self.pick(random.random())
        self._sticky_bytes = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _turn_is_over(self, rejected: cython.Py_ssize_t, full: cython.Py_ssize_t) -> cython.bint:
        """A batch's worth of bytes was written and no batch is open (P31). The gap at a full batch's end counts, or
        the turn would open another batch.
        """
        queue: PartitionQueue = self.queues[self._sticky]
        return queue._open is None and self._sticky_bytes + rejected >= full


@cython.final
@cython.cclass
class TopicTable:
    """The topics with known partitions, and which of them changed since the reactor read them.

    The fields are declared in queues.pxd.
    """

    def __init__(self, batch_limit: cython.Py_ssize_t, random: object):
        self.by_name = {}
        self._batch_limit = batch_limit
        self._random = random
        self._changed = {}

    @cython.cfunc
    def queue_for(self, topic: TopicQueues, partition: cython.Py_ssize_t, rejected: cython.Py_ssize_t) -> PartitionQueue:
        """The queue of *partition*, -1 for the sticky one.

        *rejected* are the bytes of a record that did not fit into the open batch.
        """
        if partition < 0:
            if topic.turn(rejected, self._batch_limit, self._random):
                self._changed[topic] = None
            partition = topic._sticky
        if partition >= topic._count:
            raise IndexError(f"topic {topic.topic} has {topic._count} partitions, numbered from 0; there is no {partition}")
        return topic.queues[partition]

    @cython.cfunc
    def update(self, name: str, count: cython.Py_ssize_t, available: object) -> TopicQueues:
        """Publish a topic's partitions, those of *available* with a leader."""
        topic: TopicQueues = self.by_name.get(name)
        if topic is None:
            topic = TopicQueues(name)
        topic.update(count, available)
        self.by_name[name] = topic
        if topic._sticky >= 0:
            self._changed[topic] = None
        return topic

    @cython.cfunc
    def take_changed(self, all_topics: cython.bint) -> list:
        """Topics with another sticky partition or other leaders since the last call, or all of them."""
        if not self._changed and not all_topics:
            return []
        changed, self._changed = self._changed, {}
        return list(self.by_name.values() if all_topics else changed)
