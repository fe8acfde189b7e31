# C interface: `Producer.send` puts records in without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.buffers.delivery cimport Delivery
from pyclient.buffers.queues cimport PartitionMemory, PartitionQueue, TopicQueues
from pyclient.buffers.rows cimport Row, Rows


@cython.final
cdef class Accumulator:
    cdef readonly object pool
    cdef readonly object waits
    cdef readonly Py_ssize_t refused     # records that found no room within their time
    cdef public object on_ready
    cdef public object on_outcome
    cdef public object on_new_batch      # None, or told topic and partition, outside of the lock
    cdef readonly Py_ssize_t unsettled   # records of batches neither released nor dropped
    cdef cython.pymutex _lock
    cdef dict _topics
    cdef object _observer
    cdef object _clock
    cdef object _wall
    cdef object _random
    cdef Py_ssize_t _batch_limit
    cdef Py_ssize_t _largest_record
    cdef Py_ssize_t _largest_need        # the most bytes that a record may take for itself
    cdef double _linger
    cdef PartitionMemory _holdings
    cdef object _codecs
    cdef object _closed
    cdef dict _ready                     # queues, in the order in which they were listed; each once, though the loop may hold it meanwhile
    cdef bint _news                      # something that the loop does not know of yet, and does not find by itself in time
    cdef double _looks_at                # when the loop looks by itself
    cdef dict _turned                    # topics whose sticky partition has changed since `turned` was asked
    cdef object _lingering               # open batches in the order in which their linger ends
    cdef object _live                    # batches not done, in the order of their creation

    # What `append` does.
    cdef Delivery append_record(self, TopicQueues topic, Py_ssize_t partition, long long timestamp, bytes key, bytes value, bytes headers,
                       object waiter, object on_delivery)

    # Private.
    cdef object _tell(self)
    cdef object _seal_all(self, list detached)
    cdef PartitionQueue _queue_for(self, TopicQueues topic, Py_ssize_t partition, Py_ssize_t homeless)
    cdef int _room(self, Batch batch, Py_ssize_t need, long long timestamp, object waiter) except -1
    cdef bint _worth_waiting(self, Py_ssize_t need) except -1
    cdef Py_ssize_t _wanted(self, Batch batch, Py_ssize_t need) except -1
    cdef bint _grow(self, Batch batch, Py_ssize_t need, object waiter) except -1
    cdef Py_ssize_t _with_the_next(self, Rows rows, Py_ssize_t need) except -1
    cdef Py_ssize_t _ahead(self, Rows rows, Row *row, Py_ssize_t need) except -1
    cdef Batch _new_batch(self, PartitionQueue queue, Py_ssize_t need, long long timestamp, object waiter)
    cdef Batch _put_rows(self, Rows rows, Py_ssize_t granted, object waiter, list begun)
    cdef Batch _detach(self, PartitionQueue queue)
    cdef bint _may_leave(self, PartitionQueue queue) except -1
    cdef object _list(self, PartitionQueue queue)
    cdef object _hurry(self)
    cdef object _swap(self, Batch batch, Py_ssize_t size, object records)
    cdef list _share(self, Batch batch, list sizes)
    cdef object _release(self, Batch batch)
    cdef object _free(self, Batch batch)
    cdef object _too_large(self, TopicQueues topic, Py_ssize_t need)
