# The fields of the frames of a commit, and what reads an answer in place.
cimport cython

cdef enum:
    ANSWER = 26    # bytes of the usual answer, the size of the frame included


@cython.final
cdef class CommitFrames:
    cdef bytearray frame
    cdef long long correlation_id
    cdef readonly long long producer_id    # as the last usual answer has it
    cdef readonly int epoch

    cpdef bytearray request(self, long long correlation_id, long long producer_id, int epoch)
    cdef bint reads(self, char* at, Py_ssize_t came) except -1
