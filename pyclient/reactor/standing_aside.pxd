# The background thread of a reactor stands aside while callers lead: of two threads that sleep in the poller the system
# could wake this one, for an answer that a caller is about to wait for. It looks again every few milliseconds, and only
# when it is nudged while one caller waits for long. None of it needs the GIL.

cdef extern from *:
    """
    #define PYCLIENT_LULL_US 2000
    #define PYCLIENT_LONG_US 1000000

    #ifdef _MSC_VER
    #include <intrin.h>
    #define pyclient_swap(at, value) _InterlockedExchange((at), (value))
    #define pyclient_read(at) _InterlockedOr((at), 0)
    #else
    #define pyclient_swap(at, value) __atomic_exchange_n((at), (value), __ATOMIC_SEQ_CST)
    #define pyclient_read(at) __atomic_load_n((at), __ATOMIC_SEQ_CST)
    #endif

    typedef struct {
        PyThread_type_lock gate;   /* free while *open* is 1 */
        long open;
        long called;               /* a caller is in the poller */
        long callers;              /* that have been there */
        long looked;               /* how many of them when the thread last looked */
        long left;                 /* callers have left the poller since then */
        long called_back;                 /* there is something to do that no caller does */
        long long_sleep;
    } pyclient_aside;

    static int pyclient_make_aside(pyclient_aside *aside)
    {
        aside->gate = PyThread_allocate_lock();
        return aside->gate == NULL || !PyThread_acquire_lock(aside->gate, 0);
    }

    static void pyclient_free_aside(pyclient_aside *aside)
    {
        if (aside->gate == NULL)
            return;
        if (!aside->open)
            PyThread_release_lock(aside->gate);
        PyThread_free_lock(aside->gate);
    }

    static void pyclient_nudge(pyclient_aside *aside)
    {
        if (!pyclient_swap(&aside->open, 1))
            PyThread_release_lock(aside->gate);
    }

    /* There is something to do that no caller does. */
    static void pyclient_call_back(pyclient_aside *aside)
    {
        pyclient_swap(&aside->called_back, 1);
        pyclient_nudge(aside);
    }

    /* A caller goes to the poller; callers do it one at a time. */
    static void pyclient_called(pyclient_aside *aside)
    {
        pyclient_swap(&aside->callers, aside->callers + 1);
        pyclient_swap(&aside->called, 1);
    }

    static void pyclient_left(pyclient_aside *aside)
    {
        pyclient_swap(&aside->left, 1);
        pyclient_swap(&aside->called, 0);
        if (pyclient_read(&aside->long_sleep))
            pyclient_nudge(aside);
    }

    static void pyclient_sleep_aside(pyclient_aside *aside, long long microseconds)
    {
        if (PyThread_acquire_lock_timed(aside->gate, microseconds, 0) == PY_LOCK_ACQUIRED)
            pyclient_swap(&aside->open, 0);
    }

    /* As long as a caller is in the poller, or was there since the last look. */
    static void pyclient_stand_aside(pyclient_aside *aside)
    {
        while (!pyclient_swap(&aside->called_back, 0)) {
            long callers = pyclient_read(&aside->callers);
            int left = pyclient_swap(&aside->left, 0), called = pyclient_read(&aside->called);
            if (!called && !left)
                return;
            if (called && callers == aside->looked) {
                pyclient_swap(&aside->long_sleep, 1);
                if (pyclient_read(&aside->called) && !pyclient_read(&aside->called_back))
                    pyclient_sleep_aside(aside, PYCLIENT_LONG_US);
                pyclient_swap(&aside->long_sleep, 0);
            } else
                pyclient_sleep_aside(aside, PYCLIENT_LULL_US);
            aside->looked = callers;
        }
    }
    """
    ctypedef struct Aside "pyclient_aside":
        pass

    int make_aside "pyclient_make_aside"(Aside *aside) noexcept
    void free_aside "pyclient_free_aside"(Aside *aside) noexcept
    void call_back "pyclient_call_back"(Aside *aside) noexcept nogil
    void caller_came "pyclient_called"(Aside *aside) noexcept nogil
    void caller_left "pyclient_left"(Aside *aside) noexcept nogil
    void stand_aside "pyclient_stand_aside"(Aside *aside) noexcept nogil
