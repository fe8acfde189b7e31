# The fields of the requests in flight on lanes.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.core.transactions.usual cimport UsualTransactions
from pyclient.net.lane_request cimport LaneRequest
from pyclient.net.lone_exchange cimport Lane


@cython.final
cdef class LaneRequests:
    cdef readonly list requests        # in flight, the oldest first
    cdef readonly PartitionQueue missed  # a queue without a lane
    cdef Accumulator _accumulator
    cdef UsualTransactions _usual
    cdef dict _lanes
    cdef int _epoll
    cdef int _bell
    cdef list _paused                  # descriptors that the loop does not read

    cdef bint pause(self, int descriptor) except -1
    cdef int resume(self) except -1
    cpdef bint may_leave(self, Batch batch, double now) except -1
    cpdef bint leave(self, double now, bint ends) except -1
    cdef object write_rests(self, int timeout_ms)
    cpdef bint take_come(self, double now) except -1
    cpdef bint has_come(self, LaneRequest request) except -1
    cpdef bint take(self, LaneRequest request, double now, bint late, bint notifies) except -1
    cpdef double look_at(self, double now) except -2
    cdef bint awaits(self, int descriptor) except -1
    cdef list give_all(self)

    # Private.
    cdef Lane _usable_lane(self, PartitionQueue queue, double now)
    cdef list _requests_of(self, list batches, double now)
    cdef object _write(self, LaneRequest request, double now)
    cdef object _write_rest(self, LaneRequest request, int timeout_ms)
