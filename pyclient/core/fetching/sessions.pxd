# C interface: each fetch asks a session what to send, and each response what it names.
cimport cython

from pyclient.codec.fetch cimport FetchedPartition, FetchedTopic, FetchResponse, PartitionRequest


cdef int _NO_SESSION
cdef int _FULL


@cython.final
cdef class SessionRequest:
    cdef readonly int id
    cdef readonly int epoch
    cdef readonly dict partitions
    cdef readonly dict forgotten
    cdef readonly bint by_name
    cdef readonly dict all_partitions

    @cython.locals(requested=PartitionRequest)
    cpdef list forgets(self, bint by_id)


@cython.final
cdef class SessionTopic:
    cdef readonly str name
    cdef readonly dict by_number


cdef class Session:
    cdef public int id
    cdef public int epoch
    cdef readonly dict partitions
    cdef dict _added
    cdef dict _removed
    cdef dict _topics
    cdef Py_ssize_t _nameless
    cdef bint _by_name

    cpdef object add(self, object tp)
    cpdef object remove(self, object tp)
    cpdef bint reads(self) except -1
    @cython.locals(new=PartitionRequest, old=PartitionRequest)
    cpdef SessionRequest next_request(self, object request_of)
    cpdef list on_response(self, FetchResponse message)
    cpdef object renew(self)

    # Private.
    cdef dict _drop_removed(self)
    @cython.locals(new=PartitionRequest)
    cdef dict _changes(self, object request_of)
    cdef object _begin(self, int session_id, bint fits)
    @cython.locals(topic=FetchedTopic, data=FetchedPartition, requested=PartitionRequest, unexpected=Py_ssize_t)
    cdef tuple _read(self, FetchResponse message)
    @cython.locals(known=SessionTopic)
    cdef object _named(self, FetchedTopic topic, int number)
    cdef object _forget(self)
    @cython.locals(known=SessionTopic)
    cdef object _store(self, object tp, PartitionRequest requested)
    @cython.locals(known=SessionTopic, requested=PartitionRequest)
    cdef PartitionRequest _drop(self, object tp)


cpdef int following(int epoch) except -1
