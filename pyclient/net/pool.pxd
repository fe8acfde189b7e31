# C interface: the driver writes requests without a Python call.
cimport cython

from pyclient.clocks cimport seconds_of
from pyclient.core.manager cimport Ready, Request, earlier
from pyclient.net.connection cimport AnswerListener, Connection
from pyclient.net.node_connections cimport NodeConnections
from pyclient.net.request_metrics cimport NodeMetrics, RequestMetrics


cdef class Waker:
    cpdef object wake(self)
    cpdef object wake_data(self)
    cpdef object wake_by(self, double deadline)


cdef class ConnectionPool(Ready)


@cython.final
cdef class NodeAnswers(AnswerListener):
    cdef ConnectionPool _pool
    cdef NodeConnections _node
    cdef NodeMetrics _metrics


cdef class ConnectionPool(Ready):
    cdef object _reactor
    cdef object _options
    cdef double _max_idle
    cdef object _network
    cdef object _clock
    cdef object _random
    cdef Waker _waker
    cdef object _on_silence
    cdef object _data_use
    cdef double _silence_timeout_s
    cdef double _checked_at
    cdef readonly dict _nodes
    cdef readonly dict _bootstrap
    cdef readonly object _closing
    cdef RequestMetrics _metrics
    cdef object _all_metrics
    cdef double _window_ends
    cdef object _throttling
    cdef readonly object failures
    cdef bint any_answer
    cdef readonly object _connector
    cdef object _due
    cdef object _next_node_at
    cdef bint _closed

    cpdef object start_window(self, double now)
    @cython.locals(connection=Connection, written=cython.longlong)
    cpdef Connection send(self, Request request)

    # Private.
    @cython.locals(found=NodeConnections)
    cpdef Connection _connection(self, int node, object use)
    @cython.locals(found=NodeConnections)
    cdef NodeConnections _node(self, int number)
    @cython.locals(deadline=double)
    cpdef object _on_quiet_response(self)
