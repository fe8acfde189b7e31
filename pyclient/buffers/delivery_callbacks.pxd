# C interface: `send` and deliveries add callbacks without a Python call.
cimport cython


@cython.final
cdef class UserCallback:
    cdef object _callback
    cdef object _deliveries
    cdef object _observer
    cdef object _result
    cdef int _index
    cdef object _see


cpdef object checked_callback(object callback)
cdef UserCallback user_callback(object deliveries, object callback, object result, int index, object see)
cdef object add_callback(object deliveries, object callback, object result, int index, object see)
cdef object remove_callback(object deliveries, object callback, object result)

# Private.
cdef object _called_for(object deliveries, object callback, object result, int index, object see)
