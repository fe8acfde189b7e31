# The fields of the reactor, and the interpreter's own lock: no signal interrupts who takes it in compiled code.
cimport cython

from pyclient.reactor.deferred_exceptions cimport Deferral
from pyclient.reactor.standing_aside cimport Aside


cdef extern from "Python.h":
    ctypedef void *PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock new_lock "PyThread_allocate_lock"() noexcept
    void free_lock "PyThread_free_lock"(PyThread_type_lock lock) noexcept
    int take_lock "PyThread_acquire_lock"(PyThread_type_lock lock, int wait) noexcept nogil
    PyLockStatus take_lock_within "PyThread_acquire_lock_timed"(PyThread_type_lock lock, long long microseconds, int interruptible) noexcept nogil
    void release_lock "PyThread_release_lock"(PyThread_type_lock lock) noexcept nogil
    unsigned long this_thread "PyThread_get_thread_ident"() noexcept nogil

cdef extern from *:
    """
    /* How many calls of interpreted code this thread may still nest. */
    static int pyclient_calls_left(void)
    {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyThreadState_Get()->py_recursion_remaining;
    #else
        return PyThreadState_Get()->recursion_remaining;
    #endif
    }
    """
    int calls_left "pyclient_calls_left"() noexcept


cdef class Reactor


@cython.final
cdef class Queue:
    cdef list _items
    cdef Py_ssize_t _taken           # of the first items

    cdef object put(self, object item)
    cdef object take(self)
    cdef Py_ssize_t count(self) noexcept


@cython.final
cdef class Waiter:
    cdef PyThread_type_lock _gate
    cdef Reactor _reactor
    cdef bint _open
    cdef readonly bint done
    cdef object __weakref__

    # For the reactor.
    cdef object let_through(self)
    cdef object wait(self, double timeout)

    # Private.
    cdef object _end(self)
    cdef object _make_gate(self)


@cython.final
cdef class Timer:
    cdef readonly double when
    cdef bint _waits             # in the heap
    cdef object callback
    cdef Reactor _reactor


@cython.final
cdef class Reactor:
    cdef PyThread_type_lock _lock
    cdef unsigned long _leader       # the thread that holds the lock; 0: none
    cdef unsigned long _bound        # the only thread that may lead; 0: any may
    cdef unsigned long _background   # the thread of `run_forever`; 0: none
    cdef readonly object clock
    cdef readonly object poller
    cdef public object current       # the task whose step runs
    cdef readonly bint closed
    cdef readonly bint is_forked     # this process is a child of the reactor's
    cdef bint _defers                # exceptions from outside, while interpreted code runs in a step
    cdef Deferral _deferral          # of this step
    cdef object _notify              # makes the leading thread step soon
    cdef Queue _events               # (sink, events) to report in this step
    cdef Queue _soon                 # callbacks of the next pass
    # What all threads change, only in critical sections, which run no interpreted code: with a GIL they need no lock.
    cdef list _posted                # callbacks of threads that do not lead
    cdef list _timers                # a heap of (time, number, timer)
    cdef int _cancelled              # timers in it that were cancelled
    cdef long long _number
    cdef double _deadline            # what the poller knows
    cdef bint _shared                # several threads may sleep in the poller
    cdef bint _stands_aside          # the background thread, while callers lead
    cdef Waiter _polling             # the caller that sleeps in the poller
    cdef Aside _aside                # where the background thread stands meanwhile
    cdef object _followers           # callers that wait at their gates
    cdef object _raised              # what a callback raised that must leave the step
    cdef readonly long long calls    # callbacks that ran so far
    cdef public int tasks            # that have not ended

    cpdef object call_soon(self, object callback)
    cpdef bint run_until(self, Waiter waiter, object timeout=*) except -1

    # Private.
    cdef object _notify_leader(self)
    cdef object _wait(self, Waiter waiter, double left)
    cdef bint _may_lead_here(self) noexcept
    cdef bint _try_to_lead(self) noexcept
    cdef object _lead(self)
    cdef object _lead_posted(self)
    cdef object _lead_after(self, object events, Waiter waiter)
    cdef object _stop_leading(self, Waiter waiter)
    cdef bint _polling_has_ended(self, Waiter waiter) except -1
    cdef object _release(self, Waiter waiter, bint left)
    cdef bint _has_posted(self) except -1
    cdef object _step(self, Waiter waiter)
    cdef bint _pass(self) except -1
    cdef object _take_due(self)
    cdef object _call(self, object callback, object events)
    cdef object _enter_interpreted(self)
    cdef object _set_deadline(self)
    cdef object _timer_cancelled(self)
    cdef bint _polls(self, Waiter waiter) except -1
    cdef object _leave(self, Waiter waiter)
