# C interface: each request and response is counted.
cimport cython

from pyclient.metric_values cimport Total, Windows


@cython.final
cdef class _OfNode:
    cdef Total requests
    cdef Windows latency


@cython.final
cdef class RequestMetrics:
    cdef object _metrics
    cdef dict _nodes
    cdef dict _apis
    cdef Windows _throttle
    cdef long long _closed_in
    cdef long long _closed_out

    @cython.locals(found=_OfNode)
    cpdef object sent(self, int node)
    @cython.locals(found=_OfNode, milliseconds=double)
    cpdef object answered(self, int node, object api, double now, object latency, double throttle)

    # Private.
    cdef _OfNode _made_node(self, int node)
