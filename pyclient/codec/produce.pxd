# C interface: what a Produce request's owner reads of its usual response.
cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class StoredResponse:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly object throttle_time


cpdef list encode_produce(int version, unsigned int correlation_id, str client_id, int acks, unsigned int timeout_ms, dict topics,
                          str transactional_id=*)
cpdef StoredResponse stored_response(int version, bytes frame)
