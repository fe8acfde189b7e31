# C interface: each batch is counted.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.buffers.batch_counters cimport RequestCounters, TopicCounters
from pyclient.clocks cimport seconds_of
from pyclient.core.sending.sender cimport BatchListener
from pyclient.metric_values cimport Windows


@cython.final
cdef class BatchMetrics(BatchListener):
    cdef object _metrics
    cdef object _clock
    cdef readonly RequestCounters requests
    cdef Windows _batch_size
    cdef Windows _queue_time
    cdef Windows _record_size
    cdef dict _topics

    @cython.locals(found=TopicCounters)
    cpdef TopicCounters of(self, str topic)

    # Private.
    cdef int _sent(self, Batch batch, double now) except -1
    cdef TopicCounters _made(self, str topic)
