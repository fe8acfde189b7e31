# The fields of the exchanges of usual transactions.
cimport cython

from pyclient.buffers.queues cimport PartitionQueue
from pyclient.codec.end_txn cimport CommitFrames
from pyclient.core.transactions.usual cimport UsualTransactions
from pyclient.metric_values cimport Total, Windows
from pyclient.net.lane_request cimport LaneRequest
from pyclient.net.lone_exchange cimport Lane, LoneExchange


@cython.final
cdef class CommitLane:
    cdef readonly object connection
    cdef readonly object known         # the coordinator, as `KnownCoordinator`
    cdef readonly int version          # of EndTxn
    cdef object _node
    cdef object _requests              # of the connection, as `InFlightRequests`
    cdef object _in_flight             # the deque in it
    cdef object _reader
    cdef object _silence
    cdef CommitFrames _frames
    cdef int _descriptor
    cdef double _until                 # no request is written after this
    cdef Total _sent
    cdef Windows _latency
    cdef char[32] _answer

    cdef bytes write(self, object producer)
    cdef bint take_answer(self) except -1
    cdef object count(self, double now, double sent_at)


@cython.final
cdef class TransactionExchange(LoneExchange):
    cdef object _selector
    cdef UsualTransactions _usual
    cdef object _refused
    cdef object _resume
    cdef object _hold_signals
    cdef object _release_signals
    cdef double _limit                 # seconds of a commit
    cdef readonly double begin_s       # that calls of `begin` took
    cdef readonly double commit_s
    cdef readonly long long commits    # carried out here
    cdef object _acquire
    cdef object _give_back
    cdef int _bell
    cdef int _epoll
    cdef int _timer                    # readable when a linger ends
    cdef CommitLane _commits           # None: no transaction is a usual one now
    cdef Py_ssize_t _seal_failures     # when it was armed
    cdef object _missed                # a queue without a lane
    cdef list _requests                # in flight, and nobody else knows
    cdef int _stage                    # of a commit that was not finished here
    cdef CommitLane _ending            # where EndTxn was written
    cdef double _end_at
    cdef bytes _end_rest               # what the kernel did not take of it

    # Private.
    cdef bint _borrow(self) except -1
    cdef int _try(self, double began, bint notifies) except -1
    cdef int _commit(self, double now, bint notifies) except -1
    cdef Lane _usable_lane(self, PartitionQueue queue, double now)
    cdef list _requests_of(self, list batches, double now)
    cdef bint _carry_out(self, CommitLane commits, list requests, list batches, double now, bint notifies) except -1
    cdef bint _deafen(self, CommitLane commits, list requests, list deaf) except -1
    cdef bint _store(self, list requests, list batches, double now, double until, bint notifies) except -1
    cdef object _leave(self, LaneRequest request, double now)
    cdef object _settle_request(self, LaneRequest request)
    cdef bytes _sent_rest(self, int descriptor, bytes rest, double until)
    cdef bint _end(self, CommitLane commits, double until) except -1
    cdef bint _rested(self, double seconds) except -1
    cdef bint _comes(self, int descriptor, double until) except -1
    cdef int _left_ms(self, double until) except -1
