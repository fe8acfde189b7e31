# C interface: the Accumulator creates deliveries without a Python call.
cimport cython

from pyclient.buffers.delivery_callbacks cimport UserCallback

cdef extern from *:
    """
    /* A NamedTuple without its own `__new__`, which is interpreted. */
    static PyObject *pyclient_tuple_of(PyObject *type, PyObject *items)
    {
        PyObject *made, *args = PyTuple_Pack(1, items);
        if (args == NULL)
            return NULL;
        made = PyTuple_Type.tp_new((PyTypeObject *)type, args, NULL);
        Py_DECREF(args);
        return made;
    }
    """
    object tuple_of "pyclient_tuple_of"(object type, tuple items)



@cython.final
cdef class BatchResult:
    cdef readonly object observer
    cdef readonly str topic
    cdef readonly int partition
    cdef public int count
    cdef public long long base_timestamp
    cdef readonly long long base_offset
    cdef readonly long long append_time
    cdef readonly object error
    cdef readonly int first
    cdef BatchResult _whole
    cdef list _parts
    cdef int _unfinished
    cdef dict _records
    cdef bint _finishing         # its outcome is decided
    cdef bint _done              # and visible
    cdef bint _notified          # every callback was called
    cdef object _callback        # the first one
    cdef list _callbacks         # further ones
    cdef bytearray _seen
    cdef object _round
    cpdef object when_done(self, object callback)
    cpdef bint wait(self, object timeout=*) except -1
    cpdef object see(self, int index, int count=*)
    cpdef bint complete(self, long long base_offset, long long append_time=*) except -1

    # Private.
    cdef object _notify(self)
    cdef object _call(self, object callback)
    cdef object _finish(self, long long base_offset, long long append_time, object error, object records)
    cdef object _count_failure(self, object error)
    cdef object _part_done(self, object error)
    cdef BatchResult of(self, int index)
    cdef object error_of(self, int index)


@cython.final
@cython.no_gc
cdef class Delivery:
    cdef BatchResult _batch
    cdef int _index
    cdef int _delta


cdef UserCallback callback_of(Delivery delivery, object callback)
cdef object add_outcome_listener(Delivery delivery, object listener)
cdef Delivery new_delivery(BatchResult batch, int index, int delta)
