# C interface: a monotonic clock is read without a Python call where it is the system's.
cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    static inline double pyclient_monotonic(void) {
        PyTime_t now;
        return PyTime_MonotonicRaw(&now) < 0 ? -1.0 : (double)now / 1e9;
    }
    #else
    static inline double pyclient_monotonic(void) { return (double)_PyTime_GetMonotonicClock() / 1e9; }
    #endif
    """
    double system_seconds "pyclient_monotonic"() noexcept nogil


cpdef double seconds_of(object clock) except? -1
