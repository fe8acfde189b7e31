# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Which queues have a batch that may leave, when the next linger ends, and whether the reactor has to be woken for it.

Independent of memory and records. Every call is made under the Accumulator's
lock.
Rule: a queue is listed once. The reactor holds it from `take` until `refresh` returns False: nothing of it may leave.
"""
import cython
from cython.cimports.libc.math import INFINITY
from cython.cimports.pyclient.buffers.batch import IN_FLIGHT, SEALED, Batch, BatchList
from cython.cimports.pyclient.buffers.queues import PartitionQueue


@cython.final
@cython.cclass
class ReadyQueues:
    """Queues that may send, and open batches that *linger* seconds. The fields are declared in ready_queues.pxd."""

    def __init__(self, linger: cython.double):
        self._linger = linger
        self._listed = {}
        self._lingering = BatchList()
        self._wake_at = INFINITY

    @cython.cfunc
    def add(self, queue: PartitionQueue) -> object:
        """List a queue, unless it is listed or the reactor holds it."""
        if not queue._listed:
            queue._listed = self.changed = True
            self._listed[queue] = None

    @cython.cfunc
    def start_linger(self, batch: Batch) -> object:
        batch._linger = self._lingering.append(batch)
        self.changed = self.changed or batch.created + self._linger < self._wake_at

    @cython.cfunc
    def end_linger(self, batch: Batch) -> object:
        """The batch takes no more records."""
        if batch._linger is not None:
            self._lingering.remove(batch._linger)
            batch._linger = None

    @cython.cfunc
    def flush_open(self) -> object:
        """End every linger now."""
        batch: Batch
        while self._lingering.first is not None:
            batch = self._lingering.first.batch
            self.end_linger(batch)
            batch.queue._due = True
            self.add(batch.queue)

    @cython.cfunc
    def take(self, now: cython.double) -> list:
        """The listed queues of which something may leave, for the reactor to hold.

        The first linger that ends ends them all, as in Java's client: then one request takes a node's batches, instead
        of a request for each partition. A partition still sends at most once in the time of a linger.
        """
        if self._lingering.first is not None and now >= self._lingering.first.batch.created + self._linger:
            self.flush_open()
        self.changed, self._wake_at = False, INFINITY
        listed: dict = self._listed
        if listed:
            self._listed = {}
        queue: PartitionQueue
        return [queue for queue in listed if self.refresh(queue)]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refresh(self, queue: PartitionQueue) -> cython.bint:
        """Whether something of the queue may leave.

        If not, the reactor no longer holds it and the next change lists it.
        """
        queue._listed = self._may_leave(queue)
        return queue._listed

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _may_leave(self, queue: PartitionQueue) -> cython.bint:
        """True if the first batch not in flight is sealed, or if there is none and the open batch is due."""
        batch: Batch
        for batch in queue.waiting:
            if batch._state != IN_FLIGHT:
                return batch._state == SEALED
        return queue._due and queue._open is not None

    @cython.cfunc
    def next_linger(self) -> object:
        """When the oldest linger ends, or None.

        The reactor wakes at that time; a linger that ends later does not wake it.
        """
        self._wake_at = INFINITY
        if self._lingering.first is None:
            return None
        self._wake_at = self._lingering.first.batch.created + self._linger
        return self._wake_at

    @cython.cfunc
    def wakes_at(self, at: cython.double) -> object:
        """The reactor looks then, perhaps before the oldest linger ends."""
        self._wake_at = at
