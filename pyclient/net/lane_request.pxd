# The fields of a request of several batches on their lanes.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch
from pyclient.net.lone_exchange cimport Lane
from pyclient.net.sockets cimport Piece


@cython.final
cdef class LaneRequest:
    cdef Lane first                    # its connection is that of all
    cdef readonly list lanes
    cdef readonly list batches
    cdef readonly double sent_at
    cdef readonly bint early           # before the commit: its answer may be read late
    cdef readonly bytes rest           # what the kernel did not take of it
    cdef Py_ssize_t _size              # bytes of batches
    cdef Py_ssize_t _answer_size       # at most
    cdef Py_ssize_t _came              # bytes of the answer
    cdef list _stored                  # base offset and time of each batch
    cdef char[4096] _answer
    cdef Piece[194] _vector            # MOST_PIECES

    cpdef bint add(self, Lane lane, Batch batch, Py_ssize_t most) except -1
    cdef bint notifies(self) except -1
    cdef void write(self, double now) except *
    cdef bint take_answer(self) except -1
    cdef object settle(self, Accumulator accumulator, double now, bint late)

    # Private.
    cdef Py_ssize_t _vector_of(self, list pieces) except -1
    cdef dict _topics(self)
    cdef object _count_sent(self, Py_ssize_t size, double now)
    cdef bint _reads(self, bytes answer) except -1
