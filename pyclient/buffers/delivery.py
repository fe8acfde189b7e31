# cython: language_level=3, freethreading_compatible=True
"""What became of a record: one `BatchResult` per batch, completed once; one small `Delivery` per record looking at it.

Knows outcomes and who waits for them; knows no sockets, loops or buffers (a delivery never keeps a buffer alive).
"""
import cython

import logging
import threading

from pyclient.errors import KafkaTimeoutError, raisable
from pyclient.records import RecordMetadata, TopicPartition

_log = logging.getLogger(__name__)


class Observer:
    """Who runs callbacks, lets coroutines wait and counts failures nobody looked at. One per producer.

    The runtime overrides `dispatch` and `awaiting`; this base runs callbacks where a batch completes.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._unobserved = {}
        self._causes = {}
        self.round = 0  # counts take_failures: what was reported then is no longer unseen

    def dispatch(self, work):
        """Run *work* where this producer's callbacks run."""
        work()

    def awaiting(self, result):
        """An awaitable that ends when *result* is done."""
        raise NotImplementedError("this producer's deliveries cannot be awaited")

    def check_wait(self):
        """Raise when the calling thread must not block."""

    def failed(self, where, count, error):
        """*count* records of partition *where* failed with *error*, not seen by anybody yet; what `seen` is to be told."""
        with self._lock:
            self._unobserved[where] = self._unobserved.get(where, 0) + count
            self._causes.setdefault(where, error)
            return self.round

    def seen(self, where, count, told_in):
        """The failure of *count* records of *where* was seen; if it was reported before, others that failed since stay unseen."""
        with self._lock:
            if told_in != self.round:
                return
            left = self._unobserved.get(where, 0) - count
            if left > 0:
                self._unobserved[where] = left
            else:
                self._unobserved.pop(where, None)
                self._causes.pop(where, None)

    def take_failures(self):
        """The unseen failures as (count, {TopicPartition: first error}); they count as seen now."""
        with self._lock:
            count, causes = sum(self._unobserved.values()), {where: raisable(error) for where, error in self._causes.items()}
            self._unobserved, self._causes = {}, {}
            self.round += 1
            return count, causes


@cython.cclass
class BatchResult:
    """The fate of one batch: pending, then either a base offset or an error, for good.

    ``base_offset`` is -1 when the broker did not say (acks=0), ``append_time`` -1 when the producer's timestamps hold.
    A batch that was split has parts with a fate each (`of` finds a record's); it is done when all of them are, and its
    ``error`` is the first of theirs. The fields are declared in delivery.pxd.
    """

    def __init__(self, observer: object, topic: str, partition: cython.int):
        self.observer = observer
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.append_time = -1

    @property
    def done(self):
        """Whether the outcome is known."""
        return self._done

    @property
    def topic_partition(self):
        """The partition this batch went to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def whole(self):
        """The result that deliveries look at: of the batch that this is a part of. A part may be split again, and then has no end of its own."""
        return self if self._whole is None else self._whole

    def complete(self, base_offset: cython.longlong, append_time: cython.longlong = -1) -> bool:
        """The broker has the batch. False when the outcome was known already (P23: the first one stands)."""
        return self._finish(base_offset, append_time, None, None)

    def fail(self, error: object, records: object = None) -> bool:
        """The batch is given up, *records* (index → error) for reasons of their own (P24). False when the outcome was known already."""
        return self._finish(-1, -1, error, records)

    def split(self, counts):
        """The batch travels on in parts of *counts* records: their results, each to be completed like a batch's own (P20)."""
        whole: BatchResult = self if self._whole is None else self._whole
        parts, first = [], self.first
        for count in counts:
            part: BatchResult = BatchResult(self.observer, self.topic, self.partition)
            part._whole, part.first, part.count, part.base_timestamp = whole, first, count, self.base_timestamp
            parts.append(part)
            first += count
        with whole._lock:
            others = [] if whole._parts is None else [part for part in whole._parts if part is not self]
            whole._parts = sorted([*others, *parts], key=_first)
            whole._unfinished = sum([not part.done for part in whole._parts])
        return parts

    @cython.cfunc
    def of(self, index: cython.int) -> BatchResult:
        """The part that holds record *index*; the batch itself, if it is whole."""
        found: BatchResult = self
        if self._parts is not None:
            part: BatchResult
            for part in self._parts:
                if part.first > index:
                    break
                found = part
        return found

    @cython.cfunc
    def error_of(self, index: cython.int) -> object:
        """Why record *index* was not delivered; None if it was."""
        part: BatchResult = self.of(index)
        return part.error if part._records is None else part._records.get(index - part.first, part.error)

    @cython.cfunc
    def _finish(self, base_offset: cython.longlong, append_time: cython.longlong, error: object, records: object) -> object:
        with self._lock:
            if self._done:
                return False
            self.base_offset = base_offset
            self.append_time = append_time
            self.error = error
            self._records = records
            if error is not None:  # counted before anybody can see it
                self._round = self.observer.failed(self.topic_partition, self.count, error)
            self._done = True
        if self._whole is None:
            self._tell()
        else:
            self._whole._part_done(error)
        return True

    @cython.cfunc
    def _part_done(self, error: object) -> object:
        with self._lock:
            self._unfinished -= 1
            if self.error is None:
                self.error = error
            if self._unfinished:
                return
            self._done = True
        self._tell()

    @cython.cfunc
    def _tell(self) -> object:
        """Call the gates in their order; one that is added meanwhile gets in line behind those not called yet."""
        while True:
            with self._lock:
                gate, gates = self._gate, self._gates
                self._gate = self._gates = None
                if gate is None:
                    self._told = True
                    return
            self._open(gate)
            if gates is not None:
                for gate in gates:
                    self._open(gate)

    @cython.cfunc
    def _open(self, gate: object) -> object:
        try:
            gate()
        except Exception:  # noqa: BLE001 who waits on a loop that is closed, say, must keep the outcome from nobody
            _log.exception("somebody who waited for %s-%s could not be told its outcome", self.topic, self.partition)

    def when_done(self, gate):
        """Call *gate()* when the outcome is known; at once if all others were called. Internal waiting, not a user's callback."""
        with self._lock:
            if not self._told:
                if self._gate is None:
                    self._gate = gate
                elif self._gates is None:
                    self._gates = [gate]  # most batches have one gate, and need no list
                else:
                    self._gates.append(gate)
                return
        gate()

    def wait(self, timeout=None) -> bool:
        """Block the calling thread until done, at most *timeout* seconds; whether it is done."""
        if self._done:
            return True
        self.observer.check_wait()
        gate = threading.Lock()
        gate.acquire()
        self.when_done(gate.release)
        if gate.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            return True
        self.forget(gate.release)
        return self._done

    def forget(self, gate):
        """Undo `when_done`: whoever waits again and again must leave nothing behind."""
        with self._lock:
            if self._gates is not None and gate in self._gates:
                self._gates.remove(gate)
            elif self._gate == gate:
                self._gate = self._gates.pop(0) if self._gates else None

    def failures(self, index: cython.int, count: cython.int):
        """(first, the one after the last, cause) of those among *count* records from *index* on that failed."""
        found: list = []
        end: cython.int = index + count
        stop: cython.int
        part: BatchResult
        while self.error is not None and index < end:
            part = self.of(index)
            stop = end if self._parts is None else min(end, part.first + part.count)
            if part._records is not None:
                found += [(at, at + 1, self.error_of(at)) for at in range(index, stop)]
            elif part.error is not None:
                found.append((index, stop, part.error))
            index = stop
        return found

    def see(self, index: cython.int, count: cython.int = 1):
        """Somebody looked at the outcome of *count* records from *index* on: failures of them are no longer silent."""
        part: BatchResult
        for first, stop, _ in self.failures(index, count):
            with self._lock:
                self._seen = bytearray(self.count) if self._seen is None else self._seen
                fresh = self._seen.count(0, first, stop)
                self._seen[first:stop] = b"\1" * (stop - first)
            if fresh:
                part = self.of(first)
                self.observer.seen(self.topic_partition, fresh, part._round)


@cython.freelist(512)  # who looks at none of them makes and drops one for each record
@cython.no_gc
@cython.cclass
class Delivery:
    """The fate of one record: wait with ``result()``, ``await`` it, or add a callback. 32 bytes; pins no buffer."""

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition chosen for the record."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._batch._done

    def result(self, timeout=None):
        """Wait for the acknowledgement.

        ``timeout`` is in seconds; None waits until ``delivery_timeout_ms`` has settled it. Returns `RecordMetadata`.

        Raises:
            KafkaError: why the record was not delivered.
            KafkaTimeoutError: not known yet; the record is still on its way.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return _metadata(self)

    def exception(self, timeout=None):
        """Wait as `result` does; the error, or None when the record was delivered."""
        if not self._batch.wait(timeout):
            raise KafkaTimeoutError(
                f"the record for {self.topic}-{self.partition} is not acknowledged after {timeout} s; it is still being "
                "sent. Wait longer, or look at flush() and delivery_timeout_ms.")
        self._batch.see(self._index)
        error = self._batch.error_of(self._index)
        return None if error is None else raisable(error)

    def add_done_callback(self, callback):
        """Call ``callback(self)`` when done: in partition order, on the producer's callback thread (async: its loop)."""
        batch: BatchResult = self._batch
        delivery = self

        def observed():
            batch.see(delivery._index)  # before it runs: a flush() that ends meanwhile must not report it
            batch.observer.dispatch(lambda: callback(delivery))

        batch.when_done(observed)

    def tell(self, listener):
        """Call ``listener(metadata, error)`` when done, as callbacks are, one of them None. It is not the user who looks: a failure stays unseen."""
        batch: BatchResult = self._batch
        delivery = self

        def told():
            error = batch.error_of(delivery._index)
            metadata = _metadata(delivery) if error is None else None
            batch.observer.dispatch(lambda: listener(metadata, None if error is None else raisable(error)))

        batch.when_done(told)

    def __await__(self):
        if not self._batch._done:
            yield from self._batch.observer.awaiting(self._batch).__await__()
        return self.result(0)

    def __repr__(self):
        state = "pending" if not self._batch._done else repr(self._batch.error_of(self._index) or _metadata(self))
        return f"<Delivery {self._batch.topic}-{self._batch.partition} {state}>"


def _first(part):
    return part.first


@cython.cfunc
def _metadata(delivery: Delivery) -> object:
    """Not a method: C methods would put a pointer to their table into each of millions of deliveries."""
    batch: BatchResult = delivery._batch.of(delivery._index)
    offset = batch.base_offset + delivery._index - batch.first if batch.base_offset >= 0 else None
    timestamp = batch.append_time if batch.append_time >= 0 else batch.base_timestamp + delivery._delta
    return RecordMetadata(batch.topic, batch.partition, offset, timestamp)


@cython.cfunc
def new_delivery(batch: BatchResult, index: cython.int, delta: cython.int) -> Delivery:
    made: Delivery = Delivery.__new__(Delivery)
    made._batch = batch
    made._index = index
    made._delta = delta
    return made
