# C interface: each fetch begins and ends here.
from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.codec.fetch cimport FetchParameters
from pyclient.core.fetching.fetch_request cimport FetchRequest, fetch_request
from pyclient.core.fetching.sessions cimport Session, SessionRequest


cdef class FetchWait:
    cdef double _moved
    cdef double _taken
    cdef double _between

    cpdef object came(self, double now)
    cpdef object drained(self, double now)
    cpdef double max_wait(self, double now) except? -1


cdef class FetchesInFlight:
    cdef FetchBuffer _buffer
    cdef object _limits
    cdef FetchWait _fetch_wait
    cdef object _on_end
    cdef dict _fetches
    cdef readonly Py_ssize_t reserved

    cpdef FetchRequest begin(self, object node, Session session, SessionRequest session_request, Py_ssize_t room, double now, object rack)
    cpdef object end(self, FetchRequest fetch)
    cpdef Py_ssize_t room(self) except -1

    # Private.
    cdef Py_ssize_t _free(self) except -1


cpdef FetchParameters fetch_parameters(SessionRequest request, object limits, Py_ssize_t max_bytes, double wait, object rack)
