# C interface: each request and response is counted.
cimport cython

from pyclient.metric_values cimport Total, Windows


cdef class RequestMetrics


@cython.final
cdef class NodeMetrics:
    cdef RequestMetrics _of_all
    cdef Total _requests
    cdef Windows _latency

    cpdef object sent(self)
    @cython.locals(milliseconds=double)
    cpdef object answered(self, object api, double now, double latency, double throttle)


@cython.final
cdef class _OfApi:
    cdef readonly Total responses
    cdef readonly Windows latency


@cython.final
cdef class RequestMetrics:
    cdef object _metrics
    cdef dict _nodes
    cdef dict _apis
    cdef Windows _throttle
    cdef long long _closed_in
    cdef long long _closed_out

    cpdef NodeMetrics of(self, int node)
    @cython.locals(own=_OfApi)
    cpdef object answered(self, object api, double now, double milliseconds, double throttled)

    # Private.
    cdef NodeMetrics _made_node(self, int node)
    cdef _OfApi _made_api(self, object api)
