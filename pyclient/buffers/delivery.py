# cython: language_level=3, freethreading_compatible=True
"""Delivery results: one `BatchResult` per batch, completed once, and one small `Delivery` per record that refers to it.

Independent of sockets, loops and buffers (a delivery never keeps a
buffer alive).
"""
import cython
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.pyclient.buffers.delivery import tuple_of
from cython.cimports.pyclient.buffers.delivery_callbacks import UserCallback, add_callback, remove_callback, user_callback
from cython.cimports.pyclient.buffers.type_attributes import set_type_attribute

import logging
import threading

from pyclient.errors import KafkaTimeoutError, raisable
from pyclient.foreign_calls import foreign_attributes, own_names
from pyclient.records import RecordMetadata, TopicPartition

_log = logging.getLogger(__name__)


class Observer:
    """Runs callbacks, lets coroutines wait, and counts failures that the user has not seen. One per producer.

    The producer overrides `dispatch` and `awaiting`; this base runs callbacks in the thread that completes the batch.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._unseen = {}
        self._causes = {}
        self.waiters = {}  # (callback, deliveries): its WaiterCallback
        self.round = 0  # number of take_failures calls: failures of earlier rounds have been reported

    def dispatch(self, work):
        """Run *work* where this producer's callbacks run."""
        work()

    def waker(self, callback):
        """For a *callback* of asyncio's own: what calls it on the running loop. None for a user's."""

    def awaiting(self, result):
        """An awaitable that ends when *result* is done."""
        raise NotImplementedError("this producer's deliveries cannot be awaited")

    def check_wait(self):
        """Raise when the calling thread must not block."""

    def wait(self, result, timeout):
        """Block the calling thread until *result* is done, at most *timeout* seconds. Returns whether it is done.

        Raises as `check_wait`.
        """
        self.check_wait()
        gate = threading.Lock()
        gate.acquire()
        result.when_done(gate.release)
        if gate.acquire(timeout=-1 if timeout is None else timeout):
            return True
        result.forget(gate.release)
        return result.done

    def failed(self, tp, count, error):
        """Count *count* records of partition *tp* that failed with *error*, unseen so far.

        Returns the round, for `seen`.
        """
        with self._lock:
            self._unseen[tp] = self._unseen.get(tp, 0) + count
            self._causes.setdefault(tp, error)
            return self.round

    def seen(self, tp, count, failed_in):
        """The user has seen the failure of *count* records of *tp*.

        Nothing is subtracted if `take_failures` reported their round.
        """
        with self._lock:
            if failed_in != self.round:
                return
            left = self._unseen.get(tp, 0) - count
            if left > 0:
                self._unseen[tp] = left
            else:
                self._unseen.pop(tp, None)
                self._causes.pop(tp, None)

    def take_failures(self):
        """Return the unseen failures as (count, {TopicPartition: first error}), and count them as seen."""
        with self._lock:
            count, causes = sum(self._unseen.values()), {tp: raisable(error) for tp, error in self._causes.items()}
            self._unseen, self._causes = {}, {}
            self.round += 1
            return count, causes


@cython.cclass
class BatchResult:
    """The outcome of one batch: pending, then a base offset or an error, which never changes.

    ``base_offset`` is -1 when the broker returned none (acks=0), ``append_time`` -1 when the producer's timestamps
    hold. A batch that was split has parts with an outcome each (`of` finds a record's part). It is done when all
    parts are, and its ``error`` is the first of theirs. The fields are declared in delivery.pxd.
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
    def notified(self):
        """Whether the outcome is known and every callback was called; never of a part."""
        return self._notified

    @property
    def topic_partition(self):
        """The partition this batch went to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def whole(self):
        """The result that deliveries refer to: of the batch that was split, for a part of it.

        A part that is split again is never done.
        """
        return self if self._whole is None else self._whole

    def complete(self, base_offset, append_time=-1):
        """Complete with success. Returns False when the outcome was known already (P23: the first one stands)."""
        return self._finish(base_offset, append_time, None, None)

    def fail(self, error: object, records: object = None) -> bool:
        """Fail all records with *error*, those of *records* (index → error) with their own (P24).

        Returns False when the outcome was known already.
        """
        return self._finish(-1, -1, error, records)

    def split(self, counts):
        """Split into parts of *counts* records.

        Returns their results, each to be completed like that of a batch (P20).
        """
        whole: BatchResult = self if self._whole is None else self._whole
        parts, first = [], self.first
        for count in counts:
            part: BatchResult = BatchResult(self.observer, self.topic, self.partition)
            part._whole, part.first, part.count, part.base_timestamp = whole, first, count, self.base_timestamp
            parts.append(part)
            first += count
        with cython.critical_section(whole):
            others = [] if whole._parts is None else [part for part in whole._parts if part is not self]
            whole._parts = sorted([*others, *parts], key=_first)
            whole._unfinished = sum([not part.done for part in whole._parts])
        return parts

    @cython.cfunc
    def of(self, index: cython.int) -> BatchResult:
        """The part that holds record *index*; this result if the batch was not split."""
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
        with cython.critical_section(self):
            if self._finishing:
                return False
            self._finishing = True
        if error is not None:
            self._count_failure(error)  # before `done` is visible
        with cython.critical_section(self):
            self.base_offset = base_offset
            self.append_time = append_time
            self.error = error
            self._records = records
            self._done = True
        if self._whole is None:
            self._notify()
        else:
            self._whole._part_done(error)
        return True

    @cython.cfunc
    def _count_failure(self, error: object) -> object:
        try:
            self._round = self.observer.failed(self.topic_partition, self.count, error)
        except BaseException:
            self._finishing = False
            raise

    @cython.cfunc
    def _part_done(self, error: object) -> object:
        with cython.critical_section(self):
            self._unfinished -= 1
            if self.error is None:
                self.error = error
            if self._unfinished:
                return
            self._done = True
        self._notify()

    @cython.cfunc
    def _notify(self) -> object:
        """Call the callbacks in their order; one that is added meanwhile is called after them."""
        while True:
            with cython.critical_section(self):
                callback, callbacks = self._callback, self._callbacks
                self._callback = self._callbacks = None
                if callback is None:
                    self._notified = True
                    return
            self._call(callback)
            if callbacks is not None:
                for callback in callbacks:
                    self._call(callback)

    @cython.cfunc
    def _call(self, callback: object) -> object:
        try:
            callback()
        except Exception:  # noqa: BLE001 one failing callback (its loop is closed, for example) must not stop the others
            _log.exception("a waiter for a batch of %s-%s could not be notified; the others are", self.topic, self.partition)

    @cython.ccall
    def when_done(self, callback: object) -> object:
        """Call *callback()* when the outcome is known, at once if it is.

        Internal: users' callbacks go through `Observer.dispatch`.
        """
        with cython.critical_section(self):
            notified = self._notified
            if not notified:
                if self._callback is None:
                    self._callback = callback
                elif self._callbacks is None:
                    self._callbacks = [callback]  # most batches have one callback, and need no list
                else:
                    self._callbacks.append(callback)
        if notified:
            callback()

    def wait(self, timeout=None):
        """Block the calling thread until done, at most *timeout* seconds. Returns whether it is done."""
        if self._done:
            return True
        return self.observer.wait(self, None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))

    def forget(self, callback) -> bool:
        """Undo `when_done`: repeated waits with a timeout must not accumulate callbacks.

        Returns False when it was called already, or never added.
        """
        with cython.critical_section(self):
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)
                return True
            if self._callback is None or self._callback != callback:
                return False
            self._callback = self._callbacks.pop(0) if self._callbacks else None
            return True

    def failures(self, index: cython.int, count: cython.int):
        """(first, stop, error) of each run of failed records among *count* records from *index* on."""
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

    def see(self, index, count=1):
        """Report to the observer that the user has seen the outcome of *count* records from *index* on."""
        part: BatchResult
        if self.error is None:
            return
        for first, stop, _ in self.failures(index, count):
            with cython.critical_section(self):
                self._seen = bytearray(self.count) if self._seen is None else self._seen
                fresh = self._seen.count(0, first, stop)
                self._seen[first:stop] = b"\1" * (stop - first)
            if fresh:
                part = self.of(first)
                self.observer.seen(self.topic_partition, fresh, part._round)


@cython.freelist(512)  # a program that ignores them creates and drops one per record
@cython.no_gc
@cython.cclass
class Delivery:
    """The result of one record: wait with ``result()``, ``await`` it, or add a callback. 32 bytes; pins no buffer."""

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

        ``timeout`` is in seconds; None waits until ``delivery_timeout_ms`` has decided it. Returns `RecordMetadata`.

        Raises:
            KafkaError: why the record was not delivered.
            KafkaTimeoutError: not known yet; the record is still being sent.
        """
        error = _error(self, timeout)
        if error is not None:
            raise error
        return _metadata(self)

    def exception(self, timeout=None):
        """Wait as `result` does; the error, or None when the record was delivered."""
        return _error(self, timeout)

    def cancelled(self) -> bool:
        """False: a queued record cannot be cancelled. `asyncio.wait` asks."""
        return False

    def add_done_callback(self, callback):
        """Call ``callback(self)`` when done: in partition order, on the callback thread (async: the loop).

        `asyncio.wait` is woken on its own loop.

        Raises:
            TypeError: it cannot be called, or is an ``async def`` function.
        """
        add_callback(self, callback, self._batch, self._index, None)

    def remove_done_callback(self, callback) -> int:
        """Remove every ``add_done_callback(callback)`` that was not called yet; returns how many."""
        return remove_callback(self, callback, self._batch)

    def __eq__(self, other):
        """Whether both are of the same record: each access to `Deliveries` creates another object."""
        if not isinstance(other, Delivery):
            return NotImplemented
        one: Delivery = other
        return self._batch is one._batch and self._index == one._index

    def __hash__(self):
        return hash((id(self._batch), self._index))

    def __dir__(self):
        return own_names(self)

    def __await__(self):
        if not self._batch._done:
            yield from self._batch.observer.awaiting(self._batch).__await__()
        return self.result(0)

    def __repr__(self):
        state = "pending" if not self._batch._done else repr(self._batch.error_of(self._index) or _metadata(self))
        return f"<Delivery {self._batch.topic}-{self._batch.partition} {state}>"


# not __getattr__, with which each access of the attributes that there are takes more than twice as long
for _name, _foreign in foreign_attributes("delivery").items():
    set_type_attribute(cython.cast(cython.pointer(PyTypeObject), Delivery), _name, _foreign)


def _first(part):
    return part.first


@cython.cfunc
def _error(delivery: Delivery, timeout: object) -> object:
    """As `Delivery.exception`."""
    batch: BatchResult = delivery._batch
    if not batch.wait(timeout):
        raise KafkaTimeoutError(
            f"the record for {batch.topic}-{batch.partition} is not acknowledged after {timeout} s; it is still being "
            "sent. Wait longer, or look at flush() and delivery_timeout_ms.")
    if batch.error is None:
        return None
    batch.see(delivery._index)
    error = batch.error_of(delivery._index)
    return None if error is None else raisable(error)


@cython.cfunc
def _metadata(delivery: Delivery) -> object:
    """Not a method: C methods would add a vtable pointer to each of millions of deliveries."""
    batch: BatchResult = delivery._batch.of(delivery._index)
    offset = batch.base_offset + delivery._index - batch.first if batch.base_offset >= 0 else None
    timestamp = batch.append_time if batch.append_time >= 0 else batch.base_timestamp + delivery._delta
    return tuple_of(RecordMetadata, (batch.topic, batch.partition, offset, timestamp))


@cython.cfunc
def callback_of(delivery: Delivery, callback: object) -> UserCallback:
    """What calls *callback*, which was checked, with *delivery*."""
    return user_callback(delivery, callback, delivery._batch, delivery._index, None)


@cython.cfunc
def add_outcome_listener(delivery: Delivery, listener: object) -> object:
    """Call ``listener(metadata, error)`` when done, one of them None, where callbacks run.

    A failure stays unseen by the user. No method: users would see it.
    """
    batch: BatchResult = delivery._batch

    def report():
        error = batch.error_of(delivery._index)
        metadata = _metadata(delivery) if error is None else None
        batch.observer.dispatch(lambda: listener(metadata, None if error is None else raisable(error)))

    batch.when_done(report)


@cython.cfunc
def new_delivery(batch: BatchResult, index: cython.int, delta: cython.int) -> Delivery:
    delivery: Delivery = Delivery.__new__(Delivery)
    delivery._batch = batch
    delivery._index = index
    delivery._delta = delta
    return delivery
