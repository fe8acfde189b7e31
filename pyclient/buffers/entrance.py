# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The way in for most records: bytes, for a topic that is known. One compiled step from the user's call into the batch.

Whatever else a record may need (a serializer, an interceptor, a partitioner in Python, a topic or memory to wait for, an error to
be raised for what it is) is left to the producer: interpreted, this step would cost more than all that follows.
Knows nothing of how to wait. Rule: what it does not take, it has not touched.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
from cython.cimports.cpython.pythread import PyThread_get_thread_ident
from cython.cimports.libc.stdint import INT64_MAX
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.delivery import Delivery
from cython.cimports.pyclient.buffers.queues import TopicQueues
from cython.cimports.pyclient.buffers.rows import KeyHash

from threading import get_ident

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

    def bind(self, is_running):
        """From now on take records only in this thread, and while *is_running()* says so of the loop that sends them.

        Then that loop is the running one: there is one at a time in a thread. Asking for the running loop costs more, before Python 3.12.
        """
        self._is_running = is_running
        self._thread = get_ident()

    def offer(self, topic, value, key, partition, timestamp, headers, on_delivery):
        """The record's `Delivery`; None when it is not simple, or there is no memory for it: then nothing has happened.

        Raises:
            RecordTooLargeError, ClientClosed: as `Accumulator.append`.
        """
        if self._is_running is not None and (self._thread != cython.cast(cython.ulong, PyThread_get_thread_ident()) or not self._is_running()):
            return None
        return self.take(topic, value, key, partition, timestamp, headers, on_delivery)

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

    def send(self, topic: str, value: object = None, key: object = None, *, partition: object = None, timestamp: object = None,
             headers: object = (), on_delivery: object = None):
        """Queue one record and return at once; the `Delivery` tells its fate. Order is kept per partition.

        ``partition`` is 0-based, None asks the partitioner; ``timestamp`` is in ms since the epoch, None is now;
        ``headers`` are (str, bytes or None) pairs; ``on_delivery(delivery)`` runs on the callback thread.
        Waits for an unknown topic and for memory, both within ``max_block_ms``; in a callback it raises instead.
        Where Ctrl-C ends it, the record may have been queued all the same; it is then delivered once, as any other.

        Raises:
            BufferExhausted: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeout: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        delivery: Delivery = None
        if self._entrance is not None:
            delivery = self._entrance.take(topic, value, key, partition, timestamp, headers, on_delivery)
        return self._send(topic, value, key, partition, timestamp, headers, on_delivery) if delivery is None else delivery
