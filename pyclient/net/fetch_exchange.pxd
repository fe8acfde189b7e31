# The fields of the exchange of fetches on one connection.
from pyclient.core.fetching.under_way cimport NextFetch
from pyclient.metric_values cimport Total, Windows


cdef class FetchExchange:
    cdef readonly object connection
    cdef readonly int descriptor
    cdef object _clock
    cdef object _node
    cdef object _requests
    cdef object _in_flight
    cdef object _reader
    cdef object _silence
    cdef Total _sent
    cdef Windows _latency
    cdef Total _fetches
    cdef Windows _fetch_latency

    # Private.
    cdef _note_answer(self, entry, double now, Py_ssize_t size)
    cdef bytes _encoded(self, NextFetch following, int version)
    cdef _write(self, entry, bytes data, double timeout, double held, done)
