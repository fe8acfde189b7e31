# The fields of an output.
cdef class Output:
    cdef readonly object topic
    cdef readonly object value
    cdef readonly object key
    cdef readonly object partition
    cdef readonly object timestamp
    cdef readonly object headers


cpdef object send_each(object records, object transform, object send, object otherwise)
