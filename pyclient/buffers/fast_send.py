# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The compiled path of ``send``: a record of bytes for a known topic goes into its batch in one step.

Every other record (serializer, interceptor, partitioner in Python, unknown topic, no memory, wrong type) takes the
decorated method: interpreted, the checks of the fast path would cost more than the append itself.
Nothing here waits. Rule: a record that the fast path does not accept has changed no state.
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

import inspect
from collections import deque
from functools import update_wrapper
from inspect import CORO_CLOSED, getcoroutinestate
from threading import get_ident
from warnings import warn
from weakref import ref

from pyclient.errors import KafkaError
from pyclient.foreign_calls import foreign_argument

NOT_SIMPLE = cython.declare(cython.Py_ssize_t, -2)
STICKY = cython.declare(cython.Py_ssize_t, -1)
NOW = cython.declare(cython.longlong, -1)


@cython.final
@cython.cclass
class SendPath:
    """Appends simple records; none once ``closed`` is True.

    *ignore_keys*: every record goes to the sticky partition. *keyless_sticky*: records without a key do. *key_hash*
    is a partitioner's capsule (`pyclient.plugins.HashesKeys`), which chooses for keys. A record whose partition none
    of these decides is not simple.
    The fields are declared in fast_send.pxd.
    """

    def __init__(self, accumulator: Accumulator, *, ignore_keys: cython.bint, keyless_sticky: cython.bint, key_hash: object = None):
        self._accumulator = accumulator
        self._ignore_keys = ignore_keys
        self._keyless_sticky = keyless_sticky
        self._hash_owner = key_hash
        if key_hash is not None:
            self._hash = cython.cast(KeyHash, PyCapsule_GetPointer(key_hash, b"pyclient.key_hash"))

    def bind(self, loop):
        """Let `on_loop` recognise *loop*, which runs in the calling thread."""
        self._loop = loop
        self._thread = get_ident()
        # asyncio's own loops set `_thread_id` while they run and None otherwise: reading it needs no call.
        fields: dict = getattr(loop, "__dict__", {})
        self._loop_fields = fields if fields.get("_thread_id") == self._thread else None
        self._thread_id = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def on_loop(self) -> cython.bint:
        """Whether the caller runs on the bound loop: that loop runs in this thread, and a thread runs only one."""
        thread: cython.ulong = PyThread_get_thread_ident()
        if thread != self._thread or self._loop is None:
            return False
        if self._loop_fields is None:
            return self._loop.is_running()
        thread_id: object = self._loop_fields.get("_thread_id")
        if thread_id is None:
            return False
        if thread_id is not self._thread_id:  # usually the same object as at the last call
            if thread_id != thread:
                return False
            self._thread_id = thread_id
        return True

    @cython.cfunc
    def append(self, topic: object, value: object, key: object, partition: object, timestamp: object, headers: object,
               on_delivery: object) -> Delivery:
        """The delivery of a simple record; None for any other."""
        stamp: cython.longlong = NOW
        if self.closed or type(topic) is not str or (headers is not None and type(headers) is not tuple) or headers:
            return None
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            return None
        if timestamp is not None:
            if type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX:
                return None
            stamp = timestamp
        queues: TopicQueues = self._accumulator._topics.by_name.get(topic)
        if queues is None:
            return None
        chosen: cython.Py_ssize_t = self.choose(queues, key, partition)
        if chosen == NOT_SIMPLE:
            return None
        return self._accumulator.append_record(queues, chosen, stamp, key, value, None, None, on_delivery)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def choose(self, queues: TopicQueues, key: bytes | None, partition: object) -> cython.Py_ssize_t:
        """The partition, `STICKY`, or `NOT_SIMPLE` where the partitioner or an error decides."""
        if partition is not None:
            return partition if type(partition) is int and 0 <= partition < queues._count else NOT_SIMPLE
        if self._ignore_keys:
            return STICKY
        if key is None:
            return STICKY if self._keyless_sticky else NOT_SIMPLE
        if self._hash == cython.NULL:
            return NOT_SIMPLE
        hashed: cython.Py_ssize_t = self._hash(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)), PyBytes_GET_SIZE(key))
        return hashed % queues._count


@cython.cfunc
@cython.exceptval(-1, check=False)
def _check_foreign(producer: object, timestamp_ms: object, callback: object) -> cython.int:
    """Refuse what other clients' ``send`` and ``produce`` take."""
    if timestamp_ms is not None or callback is not None:
        raise foreign_argument("producer", "send", "callback" if timestamp_ms is None else "timestamp_ms", type(producer))
    return 0


@cython.cclass
class FastSend:
    """Base of a producer whose ``send`` is decorated with `fast_send`; ``_send_path`` None: no fast path."""


def fast_send(method):
    """Decorate the ``send`` of a `FastSend`: compiled code appends simple records, all others call the method.

    A compiled function costs the caller half of an interpreted one. Its signature and docstring are those of *method*;
    ``timestamp_ms`` and ``callback`` are other clients' arguments, refused with the line to write.
    """
    def send(self: FastSend, topic: object, value: object = None, key: object = None, *, partition: object = None,
             timestamp: object = None, headers: object = (), on_delivery: object = None,
             timestamp_ms: object = None, callback: object = None):
        delivery: Delivery = None
        _check_foreign(self, timestamp_ms, callback)
        if self._send_path is not None:
            delivery = self._send_path.append(topic, value, key, partition, timestamp, headers, on_delivery)
        if delivery is not None:
            return delivery
        return method(self, topic, value, key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery)

    return update_wrapper(send, method)


@cython.final
@cython.freelist(8)  # most are created and awaited one after the other
@cython.no_gc
@cython.cclass
class CompletedSend:
    """The coroutine that ``AsyncProducer.send`` returns for a queued record; it returns the delivery at once."""

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
        """Raise StopIteration with the `Delivery`, as ``await`` expects."""
        raise StopIteration(self.end())

    def throw(self, kind, value=None, trace=None):
        """Raise the exception at once: no step is left that it could interrupt."""
        self._awaited = True
        if isinstance(value, BaseException):
            raise value
        raise kind if value is None else kind(value)

    def close(self):
        """Suppress the warning about a missing ``await``."""
        self._awaited = True

    @cython.cfunc
    def end(self) -> Delivery:
        self._awaited = True
        return self._delivery


@cython.cfunc
@cython.exceptval(check=False)
def _finish(completed: CompletedSend, value: object, result: cython.pointer(cython.pointer(PyObject))) -> PySendResult:
    delivery: object = completed.end()
    Py_INCREF(delivery)
    result[0] = cython.cast(cython.pointer(PyObject), delivery)
    return PYGEN_RETURN


set_am_send(cython.cast(cython.pointer(PyTypeObject), CompletedSend), cython.cast(sendfunc, _finish))


def _warn_unawaited():
    warn("AsyncProducer.send was never awaited. This record is queued, but a record that has to wait for memory would be lost: "
         "write `await producer.send(...)`", RuntimeWarning, stacklevel=2)


@cython.cclass
class AsyncFastSend:
    """Base of a producer whose ``send`` is decorated with `async_fast_send`; the path is bound to its loop."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_append(self) -> cython.bint:
        """Whether the fast path is allowed: on the producer's loop, with every earlier `send` coroutine at its end."""
        if self._send_path is None:
            return False
        while self._not_queued:
            coroutine = self._not_queued[0]()
            if coroutine is not None and getcoroutinestate(coroutine) != CORO_CLOSED:
                return False
            self._not_queued.popleft()
        return self._send_path.on_loop()

    @cython.cfunc
    def in_order(self, coroutine: object) -> object:
        """Keep later simple records behind *coroutine* until it has queued its record."""
        if self._send_path is not None:
            if self._not_queued is None:
                self._not_queued = deque()
            self._not_queued.append(ref(coroutine))
        return coroutine


def async_fast_send(method):
    """Decorate the coroutine method ``send`` of an `AsyncFastSend`, as `fast_send` does for a sync one.

    While the coroutine of an earlier call has not ended, simple records take the decorated method too: none overtakes
    a record that was sent before it.
    """
    def send(self: AsyncFastSend, topic: object, value: object = None, key: object = None, *, partition: object = None,
             timestamp: object = None, headers: object = (), on_delivery: object = None,
             timestamp_ms: object = None, callback: object = None):
        completed: CompletedSend
        delivery: Delivery = None
        _check_foreign(self, timestamp_ms, callback)
        if self.may_append():
            try:
                delivery = self._send_path.append(topic, value, key, partition, timestamp, headers, on_delivery)
            except (KafkaError, TypeError):
                delivery = None  # nothing is queued then; the decorated method raises it where it is awaited
        if delivery is None:
            return self.in_order(method(self, topic, value, key, partition=partition, timestamp=timestamp, headers=headers,
                                        on_delivery=on_delivery))
        completed = CompletedSend.__new__(CompletedSend)
        completed._delivery = delivery
        return completed

    update_wrapper(send, method)
    mark = getattr(inspect, "markcoroutinefunction", None)  # since 3.12; before, asyncio asks Cython's functions themselves
    return send if mark is None else mark(send)
