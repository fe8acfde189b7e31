# C interface: the Accumulator opens, fills and releases batches without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch, BatchList
from pyclient.buffers.batch_memory cimport BatchMemory
from pyclient.buffers.queues cimport PartitionQueue, TopicTable
from pyclient.buffers.ready_queues cimport ReadyQueues
from pyclient.buffers.rows cimport Row, Rows
from pyclient.buffers.sealing cimport SealedRecords


# Room for one more record in a queue's open batch.
cdef enum:
    NO_BATCH = 0
    FULL = 1
    FITS = 2
    NO_MEMORY = 3    # it would fit once the batch has grown, for which there is no memory now


@cython.final
cdef class PendingBatches:
    cdef readonly Py_ssize_t unsettled     # records of batches neither released nor dropped
    cdef readonly Py_ssize_t seal_failures # batches that could not be compressed
    cdef readonly Py_ssize_t largest_need  # the most bytes that a record may take for itself
    cdef object on_outcome
    cdef TopicTable _topics
    cdef BatchMemory _memory
    cdef ReadyQueues _ready
    cdef object _observer
    cdef object _clock
    cdef BatchList _by_age                 # batches not done, in the order of their creation

    cdef int room(self, Batch batch, Py_ssize_t need, long long timestamp, object waiter) except -1
    cdef Batch open(self, PartitionQueue queue, Py_ssize_t need, long long timestamp, object waiter)
    cdef Batch append_rows(self, Rows rows, Py_ssize_t granted, object waiter, list opened_queues)
    cdef Py_ssize_t need_of_rest(self, Rows rows, Py_ssize_t need) except -1
    cdef Batch detach(self, PartitionQueue queue)
    cdef list detach_older(self, double before)
    cdef Batch head(self, PartitionQueue queue)
    cdef object seal(self, Batch batch, SealedRecords sealed)
    cdef object give_up_unsealed(self, Batch batch)
    cdef object unstamp(self, PartitionQueue queue)
    cdef object split(self, Batch batch, tuple halves, list results)
    cdef object drop(self, Batch batch)
    cdef object release(self, Batch batch)
    cdef list all(self)
    cdef Batch oldest(self)

    # Private.
    cdef Py_ssize_t _first_need(self, Rows rows, Row *row, Py_ssize_t need) except -1
