# C interface: a producer's `send` calls its entrance without a Python call.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.delivery cimport Delivery
from pyclient.buffers.queues cimport TopicQueues
from pyclient.buffers.rows cimport KeyHash


@cython.final
cdef class Entrance:
    cdef public bint closed
    cdef Accumulator _accumulator
    cdef bint _ignore_keys
    cdef bint _keyless_stick
    cdef object _hash_owner
    cdef KeyHash _hash
    cdef object _loop
    cdef dict _noted        # what the loop notes of itself, the thread it runs in among it; None: it has to be asked
    cdef object _note       # of this thread
    cdef unsigned long _thread

    cdef Delivery take(self, object topic, object value, object key, object partition, object timestamp, object headers, object on_delivery)

    cdef bint is_here(self) except -1

    # Private.
    cdef Py_ssize_t place(self, TopicQueues queues, bytes key, object partition) except -3


cdef class Sending:
    cdef public Entrance _entrance


@cython.final
@cython.no_gc
cdef class Queued:
    cdef Delivery _delivery
    cdef bint _awaited

    # Private.
    cdef Delivery end(self)


cdef class AsyncSending:
    cdef public Entrance _entrance
    cdef object _unbegun   # weak references to coroutines, in the order of their calls

    # Private.
    cdef bint nobody_is_before(self) except -1
