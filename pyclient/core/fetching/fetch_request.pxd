# C interface: as of `Request`, whose methods these replace.
cimport cython

from pyclient.codec.fetch cimport FetchParameters, PartitionRequest, encode_fetch, fetch_response
from pyclient.core.fetching.sessions cimport Session, SessionRequest
from pyclient.core.manager cimport Request


cdef int _TOPIC_IDS_SINCE
cdef int _SESSIONS_SINCE


@cython.final
cdef class FetchRequest(Request):
    cdef readonly Session session
    cdef readonly SessionRequest session_request
    cdef readonly FetchParameters parameters
    cdef readonly Py_ssize_t reserved
    cdef readonly double wait
    cdef readonly double began
    cdef object on_end

    # Private.
    @cython.locals(topics=dict, asked=dict)
    cdef dict _topics(self, int version, bint by_id)
    @cython.locals(topics=dict)
    cdef dict _forgotten(self, bint by_id)


cdef object _key(object topic, PartitionRequest requested, bint by_id)

@cython.locals(made=FetchRequest)
cpdef FetchRequest fetch_request(object node, Session session, SessionRequest session_request, FetchParameters parameters, double timeout, object on_end,
                                 double now=*, double wait=*, Py_ssize_t reserved=*, object use=*)
