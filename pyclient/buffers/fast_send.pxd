# C interface: a producer's `send` appends a record without a Python call.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.delivery cimport Delivery
from pyclient.buffers.queues cimport TopicQueues
from pyclient.buffers.rows cimport KeyHash


@cython.final
cdef class SendPath:
    cdef public bint closed
    cdef Accumulator _accumulator
    cdef bint _ignore_keys
    cdef bint _keyless_sticky
    cdef object _hash_owner       # keeps the capsule of `_hash` alive
    cdef KeyHash _hash
    cdef object _loop
    cdef dict _loop_fields        # the loop's `__dict__` when it holds `_thread_id`; None: call `is_running`
    cdef object _thread_id        # the `_thread_id` object that matched last
    cdef unsigned long _thread

    cdef Delivery append(self, object topic, object value, object key, object partition, object timestamp, object headers, object on_delivery)

    cdef bint on_loop(self) except -1

    # Private.
    cdef Py_ssize_t choose(self, TopicQueues queues, bytes key, object partition) except -3


cdef class FastSend:
    cdef public SendPath _send_path


@cython.final
@cython.no_gc
cdef class CompletedSend:
    cdef Delivery _delivery
    cdef bint _awaited

    # Private.
    cdef Delivery end(self)


cdef class AsyncFastSend:
    cdef public SendPath _send_path
    cdef object _not_queued   # weak references to coroutines, in the order of their calls

    # Private.
    cdef bint may_append(self) except -1
    cdef object in_order(self, object coroutine)
