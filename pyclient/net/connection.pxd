# C interface: the pool writes requests, and reads what the connection is ready for, without a Python call.
cimport cython

from pyclient.clocks cimport seconds_of
from pyclient.codec.memory cimport int32_bytes
from pyclient.core.connection cimport Throttle
from pyclient.core.manager cimport Request, earlier, reply_with
from pyclient.core.session cimport Session
from pyclient.core.silence cimport Silence
from pyclient.net.frame_reader cimport FrameReader
from pyclient.net.in_flight cimport InFlight, InFlightRequests
from pyclient.net.low_water cimport LowWater
from pyclient.reactor.channels cimport Channel
from pyclient.reactor.reactor cimport Reactor


cdef Py_ssize_t _MOST_READS
cdef Py_ssize_t _SIZE_BYTES
cdef int _READABLE
cdef int _WRITABLE


cdef class AnswerListener:
    cpdef object answered(self, object api, double now, double latency, double throttled)


cdef class Connection:
    cdef readonly object label
    cdef public object state
    cdef public object usage
    cdef public object versions
    cdef readonly Session session
    cdef public object ending
    cdef readonly Throttle throttle
    cdef readonly Silence silence
    cdef public double idle_since
    cdef public bint secured
    cdef public object known_as
    cdef public object has_identity
    cdef list _writing
    cdef public bint wrote_unanswered
    cdef readonly long long bytes_out
    cdef readonly object client_id
    cdef readonly Reactor reactor
    cdef object _clock
    cdef object _on_change
    cdef object _on_quiet
    cdef object _on_lost
    cdef AnswerListener _answers
    cdef readonly InFlightRequests requests
    cdef readonly FrameReader reader
    cdef LowWater _low_water
    cdef readonly Channel _channel
    cdef readonly list _pieces
    cdef tuple _chosen
    cdef bint _paused
    cdef double _handshake_at
    cdef readonly object _cause
    cdef bint _ending
    cdef object __weakref__

    cpdef object send(self, Request request)
    cpdef object next_deadline(self, object others=*)
    cpdef object overdue_at(self)
    cpdef bint accepts_requests(self) except -1
    cpdef Py_ssize_t count_in_flight(self) except -1

    # Private.
    cdef object _answer_due_since(self)
    cdef int _version(self, Request request) except -1
    cdef object _write_unanswered(self, Request request, int version)
    cdef object _write(self, Request request, int version)
    cdef object _put(self, long long size, object pieces)
    @cython.locals(channel=Channel)
    cdef object _flush(self)
    cdef bint _has_unwritten(self) except -1
    cdef object _writable(self)
    cpdef object _on_events(self, int events)
    @cython.locals(size=Py_ssize_t, channel=Channel, reader=FrameReader, room=bytearray, full=bint)
    cpdef object _read(self)
    cdef object _received(self, Py_ssize_t size, Channel channel)
    @cython.locals(answered=InFlight, now=double)
    cpdef object _on_frame(self, object frame)
    cdef object _note_answer(self, InFlight answered, double now, double throttled)
    cdef object _close_if_drained(self)


@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _size_of(list pieces) except -1
