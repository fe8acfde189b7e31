# The state of the interpreter's threads that holds exceptions back, and the fields of who does it.
cimport cython

cdef extern from *:
    """
    #ifndef Py_GIL_DISABLED
    /* Let exceptions that other threads raise into this one go to a new state of a thread; NULL if they do already. */
    static PyThreadState *pyclient_defer_exceptions(void)
    {
        PyThreadState *here = PyThreadState_Get(), *box;
        unsigned long ident = PyThread_get_thread_ident();
        if (here->thread_id != ident)
            return NULL;
        box = PyThreadState_New(PyThreadState_GetInterpreter(here));
        if (box == NULL)
            return NULL;
        box->thread_id = ident;
        here->thread_id = ~ident;
        box->async_exc = here->async_exc;
        here->async_exc = NULL;
        return box;
    }

    /* Raise what went to *box* into this thread, at its next interpreted step. */
    static void pyclient_raise_deferred(PyThreadState *box)
    {
        PyThreadState *here = PyThreadState_Get();
        PyObject *error = box->async_exc;
        box->async_exc = NULL;
        PyThreadState_Clear(box);
        PyThreadState_Delete(box);
        here->thread_id = PyThread_get_thread_ident();
        if (error != NULL) {
            PyThreadState_SetAsyncExc(here->thread_id, error);
            Py_DECREF(error);
        }
    }
    #else
    static PyThreadState *pyclient_defer_exceptions(void) { return NULL; }
    static void pyclient_raise_deferred(PyThreadState *box) { (void)box; }
    #endif
    """
    ctypedef struct PyThreadState:
        pass

    PyThreadState *defer_exceptions "pyclient_defer_exceptions"()
    void raise_deferred "pyclient_raise_deferred"(PyThreadState *box)


@cython.final
@cython.no_gc
cdef class DeferredExceptions:
    cdef PyThreadState *_box

    # Private.
    cdef object _release(self)
