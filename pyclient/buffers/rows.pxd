# C interface: the Accumulator reads a bulk's records without a Python call.
from libc.stdint cimport int32_t, int64_t

from pyclient.buffers.deliveries cimport Deliveries

# The hash function of a compiled partitioner, from its capsule.
ctypedef unsigned int (*KeyHash)(const unsigned char* key, Py_ssize_t size) noexcept nogil


cdef struct Row:
    const unsigned char* key
    const unsigned char* value
    const unsigned char* headers
    Py_ssize_t key_len            # -1 is null
    Py_ssize_t value_len
    Py_ssize_t headers_len        # of the whole header section; -1 for no headers
    int64_t timestamp
    int32_t number                # the record's index in the chunk
    int32_t partition             # -1 is the sticky one
    int32_t topic                 # its index in `topics`


# The batch that records are written to.
cdef struct Filling:
    unsigned char* at
    unsigned char* limit
    int64_t base_timestamp
    int64_t latest                # newest timestamp
    int32_t count                 # of records in the batch
    Py_ssize_t largest            # bytes of the largest of them
    Py_ssize_t budget             # bytes that may be written under one hold of the lock
    Py_ssize_t written            # bytes, by their upper bound


cdef Py_ssize_t bound_of(Row* row) noexcept nogil

# Writes records from *at* on while they go to the same partition and fit; returns the first one left out. The first one fits.
cdef Py_ssize_t fill(Row* rows, Py_ssize_t at, Py_ssize_t end, Filling* into) noexcept nogil


cdef class Rows:
    cdef Row* rows
    cdef Py_ssize_t at            # the next to be appended
    cdef Py_ssize_t end
    cdef bint starved             # the Accumulator has no memory for the next
    cdef readonly int64_t first   # the index in the bulk of the chunk's first record
    cdef readonly list topics     # TopicQueues, or the error of a topic that is not known
    cdef readonly Deliveries deliveries
    cdef readonly Py_ssize_t loaded  # how many records the chunk has
    cdef readonly int64_t decided # the number of records queued or rejected
    cdef list _names              # of the topics
    cdef object _convert
    cdef object _on_rejected
    cdef KeyHash _hash
    cdef int32_t _current_topic   # the topic of `_count`; -1 for none yet
    cdef int32_t _count
    cdef object _hash_owner
    cdef tuple _kept              # the objects that rows point into
    cdef unsigned char* _sections # encoded headers of Arrow rows
    cdef Py_ssize_t _sections_room

    cdef Py_ssize_t bytes_left(self) noexcept   # of the next row and those behind it that go to the same partition

    # Private.
    cdef object reject_row(self, int64_t number, int32_t topic, object error)
    cdef Row* next_row(self, Py_ssize_t number)
    cdef int set_partition(self, Row* row, int32_t partition) except -1
    cdef int set_given_partition(self, Row* row, int64_t partition) except -1
    cdef int read_item(self, list items, Py_ssize_t number, str what, const unsigned char** data, Py_ssize_t* size) except -1
    cdef int load_item(self, Py_ssize_t number, list values, list keys, list headers, list stamps, list partitions,
                       list topic_indexes, int32_t partition, int64_t now) except -1
