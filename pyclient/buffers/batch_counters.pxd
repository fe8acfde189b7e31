# C interface: a record is counted without a Python call.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.metric_values cimport Total, Windows


@cython.final
cdef class RequestCounters:
    cdef Total _batches
    cdef Windows _records

    cpdef void sent(self, long long batches, long long records, double now)


@cython.final
cdef class TopicCounters:
    cdef Total _stored
    cdef Total _bytes
    cdef Windows _compression
    cdef Windows _batch_size
    cdef Windows _queue_time
    cdef Windows _record_size

    cpdef void sent(self, Batch batch, double now)
    cpdef void stored(self, long long records)
