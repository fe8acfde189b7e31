# C interface: what is fetched, and what came, without a Python call.
cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class FetchParameters:
    cdef readonly int max_wait_ms
    cdef readonly int min_bytes
    cdef readonly int max_bytes
    cdef readonly int max_partition_bytes
    cdef readonly int isolation
    cdef readonly int session_id
    cdef readonly int session_epoch
    cdef readonly str rack


@cython.final
cdef class PartitionRequest:
    cdef readonly int64_t offset
    cdef readonly int64_t generation
    cdef readonly int leader_epoch
    cdef readonly int last_epoch
    cdef readonly bytes topic_id

    cdef bint same(self, PartitionRequest other) noexcept


@cython.final
cdef class AbortedTransaction:
    cdef readonly int64_t producer_id
    cdef readonly int64_t first_offset


@cython.final
cdef class FetchedPartition:
    cdef readonly int partition_index
    cdef readonly int error_code
    cdef readonly int64_t high_watermark
    cdef readonly int preferred_read_replica
    cdef readonly object records
    cdef readonly list aborted_transactions
    cdef readonly object diverging_epoch
    cdef readonly object current_leader


@cython.final
cdef class FetchedTopic:
    cdef readonly str name
    cdef readonly bytes id
    cdef readonly list partitions


@cython.final
cdef class FetchResponse:
    cdef readonly int error_code
    cdef readonly int session_id
    cdef readonly object throttle_time
    cdef readonly list topics
    cdef readonly object node_endpoints


@cython.final
cdef class Cursor:
    cdef const unsigned char *at
    cdef const unsigned char *begin
    cdef const unsigned char *end
    cdef object source
    cdef bint by_id

    cdef Py_ssize_t count(self) noexcept
    cdef bint has(self, Py_ssize_t count) noexcept
    cdef bint no_tags(self) noexcept


cpdef bytes encode_fetch(int version, unsigned int correlation_id, str client_id, FetchParameters parameters, dict topics, dict forgotten)
cpdef FetchResponse fetch_response(int version, object frame)
