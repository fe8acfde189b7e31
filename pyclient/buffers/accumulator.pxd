# C interface: `Producer.send` appends records without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.buffers.batch_memory cimport BatchMemory
from pyclient.buffers.delivery cimport Delivery
from pyclient.buffers.lock cimport Lock
from pyclient.buffers.pending_batches cimport PendingBatches
from pyclient.buffers.queues cimport PartitionQueue, TopicQueues, TopicTable
from pyclient.buffers.ready_queues cimport ReadyQueues
from pyclient.buffers.topic_compression cimport Codecs


@cython.final
cdef class Accumulator:
    cdef readonly Py_ssize_t rejected    # records for which no memory was free within their time
    cdef public object on_ready
    cdef public object on_new_batch      # None, or called with topic and partition, outside the lock
    cdef Lock _lock
    cdef TopicTable _topics
    cdef BatchMemory _memory
    cdef ReadyQueues _ready
    cdef PendingBatches _batches
    cdef object _clock
    cdef object _wall
    cdef Py_ssize_t _max_request_size
    cdef Codecs _codecs
    cdef object _closed                  # why no record is accepted now
    cdef bint _unannounced               # the reactor may not know of what is ready: a call of on_ready has not ended
    cdef bint _shut                      # for good

    # The body of `append`.
    cdef Delivery append_record(self, TopicQueues topic, Py_ssize_t partition, long long timestamp, bytes key, bytes value, bytes headers,
                                object waiter, object on_delivery)

    # For the sender.
    cpdef object seal(self, Batch batch)
    cpdef list take_changed_topics(self, bint all_topics=*)
    cpdef list take_ready(self, double now)
    cpdef bint still_ready(self, PartitionQueue queue) except -1
    cpdef object next_linger(self)
    cpdef Batch head(self, PartitionQueue queue)
    cpdef bint start(self, Batch batch) except -1
    cpdef object retry(self, Batch batch)
    cpdef object unstamp(self, PartitionQueue queue)
    cpdef object release(self, Batch batch)
    cpdef Batch oldest(self)

    # Private.
    cdef object _notify_loop(self)
    cdef object _seal_all(self, list detached)


cdef object too_large(TopicQueues topic, Py_ssize_t need, Py_ssize_t max_request_size, Py_ssize_t memory)
