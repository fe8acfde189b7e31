# What the interpreter knows of its threads, and the fields of who changes that.
cimport cython

cdef extern from *:
    """
    #ifndef Py_BUILD_CORE
    #define Py_BUILD_CORE 1
    #endif
    #include "internal/pycore_runtime.h"
    #ifndef _WIN32
    #include <pthread.h>
    #endif

    /* Let no thread pass for the one that runs signal handlers; 0 if this one does not run them. */
    static unsigned long pyclient_defer_signals(void)
    {
        unsigned long main = (unsigned long)_PyRuntime.main_thread;
        if (main != PyThread_get_thread_ident())
            return 0;
        _PyRuntime.main_thread = 0;
        return main;
    }

    static void pyclient_restore_signals(unsigned long main) { _PyRuntime.main_thread = main; }

    #ifndef Py_GIL_DISABLED
    /* One that was used, for the next: making it takes longer than a step. In a forked child the interpreter frees it. */
    static PyThreadState *pyclient_spare = NULL;
    static int pyclient_keeps_spare = 0;

    static void pyclient_forget_spare(void) { pyclient_spare = NULL; }

    static int pyclient_keep_spare(void)
    {
        pyclient_keeps_spare = 1;
    #ifdef _WIN32
        return 0;
    #else
        return pthread_atfork(NULL, NULL, pyclient_forget_spare);
    #endif
    }

    static void pyclient_keep_no_spare(void)
    {
        PyThreadState *spare = pyclient_spare;
        pyclient_keeps_spare = 0;
        pyclient_spare = NULL;
        if (spare != NULL) {
            PyThreadState_Clear(spare);
            PyThreadState_Delete(spare);
        }
    }

    static PyThreadState *pyclient_new_box(PyInterpreterState *interpreter)
    {
        PyThreadState *box = pyclient_spare;
        if (box == NULL || PyThreadState_GetInterpreter(box) != interpreter)
            return PyThreadState_New(interpreter);
        pyclient_spare = NULL;
        return box;
    }

    /* Let exceptions that other threads raise into this one go to another state of a thread; NULL if they do already. */
    static PyThreadState *pyclient_defer_exceptions(void)
    {
        PyThreadState *here = PyThreadState_Get(), *box;
        unsigned long ident = PyThread_get_thread_ident();
        if (here->thread_id != ident)
            return NULL;
        box = pyclient_new_box(PyThreadState_GetInterpreter(here));
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
        box->thread_id = 0;
        if (pyclient_keeps_spare && pyclient_spare == NULL)
            pyclient_spare = box;
        else {
            PyThreadState_Clear(box);
            PyThreadState_Delete(box);
        }
        here->thread_id = PyThread_get_thread_ident();
        if (error != NULL) {
            PyThreadState_SetAsyncExc(here->thread_id, error);
            Py_DECREF(error);
        }
    }
    #else
    static int pyclient_keep_spare(void) { return 0; }
    static void pyclient_keep_no_spare(void) { }
    static PyThreadState *pyclient_defer_exceptions(void) { return NULL; }
    static void pyclient_raise_deferred(PyThreadState *box) { (void)box; }
    #endif
    """
    ctypedef struct PyThreadState:
        pass

    int keep_spare "pyclient_keep_spare"() noexcept
    void keep_no_spare "pyclient_keep_no_spare"() noexcept
    unsigned long defer_signals "pyclient_defer_signals"() noexcept
    void restore_signals "pyclient_restore_signals"(unsigned long main) noexcept
    PyThreadState *defer_exceptions "pyclient_defer_exceptions"() noexcept
    void raise_deferred "pyclient_raise_deferred"(PyThreadState *box) noexcept


cdef struct Deferral:
    bint began
    unsigned long main       # the thread that runs signal handlers, if it is this one
    PyThreadState *box       # where exceptions of other threads go


cdef Deferral begin_deferral() noexcept
cdef object end_deferral(Deferral deferral)


@cython.final
@cython.no_gc
cdef class DeferredExceptions:
    cdef Deferral _deferral


# Private.
cdef void _let_in(Deferral deferral) noexcept
