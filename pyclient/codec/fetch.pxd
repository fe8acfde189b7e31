# What a usual fetch asks and what its response holds, for the compiled code that repeats fetches.
from libc.stdint cimport int32_t, int64_t


cdef class OnePartition:
    cdef readonly bytes topic_id
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t offset
    cdef readonly int32_t last_epoch
    cdef readonly int32_t most_bytes


cdef class UsualResponse:
    cdef readonly int32_t session_id
    cdef readonly bytes topic_id        # None without records, as the records
    cdef readonly int32_t partition
    cdef readonly int64_t high_watermark
    cdef readonly object records        # memoryview


cpdef bytes encode_fetch(int version, int32_t correlation_id, object client_id, OnePartition asked, int32_t wait_ms, int32_t min_bytes,
                         int32_t max_bytes, int isolation, int32_t session_id, int32_t session_epoch, object rack)
cpdef UsualResponse usual_response(bytes frame, int32_t correlation_id)
