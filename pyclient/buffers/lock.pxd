# The lock of an Accumulator. From 3.13 on the interpreter's own mutex; before, a flag that the GIL protects: its other
# locks take fifty times the instructions, and each batch takes this one a dozen times. A thread that finds it set sleeps
# without the GIL at a gate, which who releases opens for one.
cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    typedef struct { PyMutex mutex; } pyclient_lock;
    static inline void pyclient_acquire(pyclient_lock *lock) { PyMutex_Lock(&lock->mutex); }
    static inline void pyclient_release(pyclient_lock *lock) { PyMutex_Unlock(&lock->mutex); }
    static int pyclient_make_gate(pyclient_lock *lock) { (void)lock; return 0; }
    static void pyclient_free_gate(pyclient_lock *lock) { (void)lock; }
    #else
    typedef struct { PyThread_type_lock gate; int held; int waiting; int open; } pyclient_lock;

    static int pyclient_make_gate(pyclient_lock *lock)
    {
        lock->gate = PyThread_allocate_lock();
        return lock->gate == NULL || !PyThread_acquire_lock(lock->gate, 0);
    }

    static void pyclient_free_gate(pyclient_lock *lock)
    {
        if (lock->gate == NULL)
            return;
        if (!lock->open)
            PyThread_release_lock(lock->gate);
        PyThread_free_lock(lock->gate);
    }

    static void pyclient_wait(pyclient_lock *lock)
    {
        while (lock->held) {
            lock->waiting++;
            Py_BEGIN_ALLOW_THREADS
            PyThread_acquire_lock(lock->gate, 1);
            Py_END_ALLOW_THREADS
            lock->waiting--;
            lock->open = 0;
        }
    }

    static inline void pyclient_acquire(pyclient_lock *lock)
    {
        if (lock->held)
            pyclient_wait(lock);
        lock->held = 1;
    }

    static inline void pyclient_release(pyclient_lock *lock)
    {
        lock->held = 0;
        if (lock->waiting && !lock->open) {
            lock->open = 1;
            PyThread_release_lock(lock->gate);
        }
    }
    #endif
    """
    ctypedef struct Lock "pyclient_lock":
        pass

    int make_gate "pyclient_make_gate"(Lock *lock) noexcept
    void free_gate "pyclient_free_gate"(Lock *lock) noexcept
    void acquire_lock "pyclient_acquire"(Lock *lock) noexcept
    void release_lock "pyclient_release"(Lock *lock) noexcept
