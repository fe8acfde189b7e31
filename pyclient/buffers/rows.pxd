# C interface: the Accumulator takes records from here, without a Python call.
from libc.stdint cimport int32_t, int64_t

from pyclient.buffers.deliveries cimport Deliveries

# What a compiled partitioner hands out in a capsule: the hash of a key.
ctypedef unsigned int (*KeyHash)(const unsigned char* key, Py_ssize_t size) noexcept nogil


cdef struct Row:
    const unsigned char* key
    const unsigned char* value
    const unsigned char* headers
    Py_ssize_t key_len            # -1 is null
    Py_ssize_t value_len
    Py_ssize_t headers_len        # of the whole header section; -1 for no headers
    int64_t timestamp
    int32_t number                # the record's place in the chunk
    int32_t partition             # -1 is the sticky one
    int32_t topic                 # which of the topics


# Where records are written to.
cdef struct Filling:
    unsigned char* at
    unsigned char* limit
    int64_t base_timestamp
    int64_t latest                # timestamp
    int32_t count                 # of records in the batch
    Py_ssize_t largest            # bytes of the largest of them
    Py_ssize_t budget             # bytes that may be written before others have a turn
    Py_ssize_t written            # bytes, by their upper bound


cdef Py_ssize_t bound_of(Row* row) noexcept nogil

# Writes records from *at* on while they go to the same place and fit; gives the first left out. The first one fits.
cdef Py_ssize_t fill(Row* rows, Py_ssize_t at, Py_ssize_t end, Filling* into) noexcept nogil


cdef class Rows:
    cdef Row* rows
    cdef Py_ssize_t at            # the next to be appended
    cdef Py_ssize_t end
    cdef bint starved             # the Accumulator has no memory for the next
    cdef readonly int64_t first   # the index in the bulk of the chunk's first record
    cdef readonly list topics     # the TopicQueues that rows speak of; an error for those that are not known
    cdef readonly Deliveries deliveries
    cdef readonly Py_ssize_t loaded  # how many records the chunk has
    cdef readonly int64_t decided # so many of the records were queued or refused
    cdef list _names              # of the topics
    cdef object _convert
    cdef object _on_refused
    cdef KeyHash _hash
    cdef int32_t _known           # the topic whose partitions are _count; -1 for none yet
    cdef int32_t _count
    cdef object _hash_owner
    cdef tuple _kept              # what the rows point into
    cdef unsigned char* _sections # headers that were encoded here
    cdef Py_ssize_t _sections_room

    cdef Py_ssize_t bytes_left(self) noexcept   # of the next and those behind it that go to the same place

    # Private.
    cdef object refuse_row(self, int64_t number, int32_t topic, object error)
    cdef Row* next_row(self, Py_ssize_t number)
    cdef int place(self, Row* row, int32_t partition) except -1
    cdef int read_item(self, list items, Py_ssize_t number, str what, const unsigned char** data, Py_ssize_t* size) except -1
    cdef int load_item(self, Py_ssize_t number, list values, list keys, list headers, list stamps, list partitions,
                       list places, int32_t partition, int64_t now) except -1
