# A compiled class as quick to await as a coroutine that does not suspend: by the slot behind `await`, which Cython fills for its own
# coroutines only. Without it a result travels as a StopIteration, which costs more than the rest of a send.
from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    static void pyclient_set_am_send(PyTypeObject *type, sendfunc send) {
        type->tp_as_async->am_send = send;
    }
    """
    ctypedef int PySendResult
    ctypedef PySendResult (*sendfunc)(object, object, PyObject **) noexcept
    PySendResult PYGEN_RETURN
    void set_am_send "pyclient_set_am_send"(PyTypeObject *type, sendfunc send) noexcept
