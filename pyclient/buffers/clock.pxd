# The wall clock in ms since the epoch, without a Python call: the interpreter's own reading of it, on every system.
cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    static long long pyclient_now_ms(void) {
        PyTime_t now;
        return PyTime_TimeRaw(&now) < 0 ? -1 : (long long)(now / 1000000);
    }
    #else
    static long long pyclient_now_ms(void) {
        return (long long)(_PyTime_GetSystemClock() / 1000000);
    }
    #endif
    """
    long long now_ms "pyclient_now_ms"() noexcept nogil
