# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The way in for most records: bytes, for a topic that is known. One compiled step from the user's call into the batch.

Whatever else a record may need (a serializer, an interceptor, a partitioner in Python, a topic or memory to wait for, an error to
be raised for what it is) is left to the producer: interpreted, this step would cost more than all that follows.
Knows nothing of how to wait. Rule: what it does not take, it has not touched.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.object import PyObject, PyTypeObject
from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
from cython.cimports.cpython.pythread import PyThread_get_thread_ident
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.libc.stdint import INT64_MAX
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.delivery import Delivery
from cython.cimports.pyclient.buffers.queues import TopicQueues
from cython.cimports.pyclient.buffers.rows import KeyHash
from cython.cimports.pyclient.buffers.am_send import PYGEN_RETURN, PySendResult, sendfunc, set_am_send

from collections import deque
from inspect import CORO_CREATED, getcoroutinestate
from threading import get_ident
from warnings import warn
from weakref import ref

from pyclient.errors import AuthenticationError, ClientClosedError, RecordTooLargeError

NOWHERE = cython.declare(cython.Py_ssize_t, -2)
STICKY = cython.declare(cython.Py_ssize_t, -1)
NOW = cython.declare(cython.longlong, -1)


@cython.final
@cython.cclass
class Entrance:
    """Takes the records that are simple: ``closed`` set to True, none any more.

    *ignore_keys*: all stick to a partition for a while; *keyless_stick*: those without a key do. *key_hash* is a partitioner's capsule
    (`pyclient.plugins.HashesKeys`), which chooses for keys. What these do not decide is not simple. The fields are declared in entrance.pxd.
    """

    def __init__(self, accumulator: Accumulator, *, ignore_keys: cython.bint, keyless_stick: cython.bint, key_hash: object = None):
        self._accumulator = accumulator
        self._ignore_keys = ignore_keys
        self._keyless_stick = keyless_stick
        self._hash_owner = key_hash
        if key_hash is not None:
            self._hash = cython.cast(KeyHash, PyCapsule_GetPointer(key_hash, b"pyclient.key_hash"))

    def bind(self, loop):
        """From now on `is_here` wherever *loop*, which runs in this thread, is the running one."""
        self._loop = loop
        self._thread = get_ident()
        # asyncio's own loops note the thread they run in, and None while they do not: that answers it without a call.
        noted: dict = getattr(loop, "__dict__", {})
        self._noted = noted if noted.get("_thread_id") == self._thread else None
        self._note = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_here(self) -> cython.bint:
        """Whether the loop runs, and in this thread: then it is the running one, as there is one at a time in a thread."""
        thread: cython.ulong = PyThread_get_thread_ident()
        if thread != self._thread or self._loop is None:
            return False
        if self._noted is None:
            return self._loop.is_running()
        note: object = self._noted.get("_thread_id")
        if note is None:
            return False
        if note is not self._note:  # most often it is the very object that was right before
            if note != thread:
                return False
            self._note = note
        return True

    @cython.cfunc
    def take(self, topic: object, value: object, key: object, partition: object, timestamp: object, headers: object,
             on_delivery: object) -> Delivery:
        stamp: cython.longlong = NOW
        if self.closed or type(topic) is not str or (headers is not None and type(headers) is not tuple) or headers:
            return None
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            return None
        if timestamp is not None:
            if type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX:
                return None
            stamp = timestamp
        queues: TopicQueues = self._accumulator._topics.get(topic)
        if queues is None:
            return None
        place: cython.Py_ssize_t = self.place(queues, key, partition)
        if place == NOWHERE:
            return None
        return self._accumulator.take(queues, place, stamp, key, value, None, None, on_delivery)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def place(self, queues: TopicQueues, key: bytes | None, partition: object) -> cython.Py_ssize_t:
        """The partition, `STICKY`, or `NOWHERE`: that is for others to say."""
        if partition is not None:
            return partition if type(partition) is int and 0 <= partition < queues._count else NOWHERE
        if self._ignore_keys:
            return STICKY
        if key is None:
            return STICKY if self._keyless_stick else NOWHERE
        if self._hash == cython.NULL:
            return NOWHERE
        hashed: cython.Py_ssize_t = self._hash(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)), PyBytes_GET_SIZE(key))
        return hashed % queues._count


@cython.cclass
class Sending:
    """What the sync producer inherits ``send`` from: a method of a compiled class costs the caller half of an interpreted one.

    A subclass sets ``_entrance`` (None: no record is simple) and defines ``_send`` for all others.
    """

    def send(self, topic: object, value: object = None, key: object = None, *, partition: object = None, timestamp: object = None,
             headers: object = (), on_delivery: object = None):
        """Queue one record and return at once; the `Delivery` tells its fate. Order is kept per partition.

        ``partition`` is 0-based, None asks the partitioner; ``timestamp`` is in ms since the epoch, None is now;
        ``headers`` are (str, bytes or None) pairs; ``on_delivery(delivery)`` runs on the callback thread.
        Waits for an unknown topic and for memory, both within ``max_block_ms``; in a callback it raises instead.
        Where Ctrl-C ends it, the record may have been queued all the same; it is then delivered once, as any other.

        Raises:
            BufferExhaustedError: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeoutError: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        delivery: Delivery = None
        if self._entrance is not None:
            delivery = self._entrance.take(topic, value, key, partition, timestamp, headers, on_delivery)
        return self._send(topic, value, key, partition, timestamp, headers, on_delivery) if delivery is None else delivery


@cython.final
@cython.freelist(8)  # most are made and awaited one after the other
@cython.no_gc
@cython.cclass
class Queued:
    """What ``AsyncProducer.send`` gives for a record that is queued already: a coroutine to all who ask, which ends at once."""

    def __dealloc__(self):
        if not self._awaited and self._delivery is not None:
            _warn_unawaited()

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.end())

    def send(self, value):
        """What ``await`` does. Raises StopIteration with the `Delivery`."""
        raise StopIteration(self.end())

    def throw(self, kind, value=None, trace=None):
        """Raise it here: there is nothing left that could be stopped."""
        self._awaited = True
        if isinstance(value, BaseException):
            raise value
        raise kind if value is None else kind(value)

    def close(self):
        """Nobody will await it."""
        self._awaited = True

    @cython.cfunc
    def end(self) -> Delivery:
        self._awaited = True
        return self._delivery


@cython.cfunc
@cython.exceptval(check=False)
def _finish(queued: Queued, value: object, result: cython.pointer(cython.pointer(PyObject))) -> PySendResult:
    delivery: object = queued.end()
    Py_INCREF(delivery)
    result[0] = cython.cast(cython.pointer(PyObject), delivery)
    return PYGEN_RETURN


set_am_send(cython.cast(cython.pointer(PyTypeObject), Queued), cython.cast(sendfunc, _finish))


def _warn_unawaited():
    warn("AsyncProducer.send was never awaited. Its record is queued all the same, but one that must wait for memory would be lost: "
         "write `await producer.send(...)`", RuntimeWarning, stacklevel=2)


@cython.cclass
class AsyncSending:
    """What the async producer inherits ``send`` from; the sync one's is `Sending`.

    A subclass sets ``_entrance`` (None: no record is simple), binds it to its loop, and defines the coroutine ``_send`` for all others. Until
    those of earlier calls have begun, simple records go the same way: none may overtake one that was sent before it.
    """

    def send(self, topic: object, value: object = None, key: object = None, *, partition: object = None, timestamp: object = None,
             headers: object = (), on_delivery: object = None):
        """Queue one record; ``await`` the returned delivery for its acknowledgement. As `Producer.send`.

        Suspends only for an unknown topic or for memory. ``on_delivery`` runs on the loop. Most records are queued by the call itself:
        cancelling the ``await``, or a task that was made of it, does not take them back.
        """
        queued: Queued
        delivery: Delivery = None
        if self._entrance is not None and self.nobody_is_before() and self._entrance.is_here():
            try:
                delivery = self._entrance.take(topic, value, key, partition, timestamp, headers, on_delivery)
            except (RecordTooLargeError, ClientClosedError, AuthenticationError):
                delivery = None  # nothing is queued then, and _send raises it where it is awaited
        if delivery is None:
            coroutine = self._send(topic, value, key, partition, timestamp, headers, on_delivery)
            return coroutine if self._entrance is None else self._later(coroutine)
        queued = Queued.__new__(Queued)
        queued._delivery = delivery
        return queued

    def _later(self, coroutine):
        """It takes its place in line when somebody begins to await it."""
        if self._unbegun is None:
            self._unbegun = deque()
        self._unbegun.append(ref(coroutine))
        return coroutine

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def nobody_is_before(self) -> cython.bint:
        while self._unbegun:
            coroutine = self._unbegun[0]()
            if coroutine is not None and getcoroutinestate(coroutine) == CORO_CREATED:
                return False
            self._unbegun.popleft()
        return True
