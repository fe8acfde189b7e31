# C interface: each response is looked at.
cimport cython

from pyclient.codec.fetch cimport FetchedPartition, FetchedTopic, FetchResponse
from pyclient.core.manager cimport Reply


cdef double _EARLY
cdef int _NO_REPLICA
cdef object _DATA
cdef object _OTHER
cdef object _NONE


cdef class EmptyResponses:
    cdef object _backoff
    cdef dict _in_a_row
    cdef dict _paused

    cpdef object answered(self, object node, double now, object outcome, double took, double wait)
    cpdef object end_pauses(self, double now)
    cpdef bint pauses(self, object node) except -1
    cpdef object next_deadline(self)

    # Private.
    cdef object _on_early(self, object node, double now, double wait)


@cython.locals(topic=FetchedTopic, each=FetchedPartition)
cdef object _news(FetchResponse message)
cdef bint _needs_attention(FetchedPartition partition) except -1
