# The fields of the exchanges of usual transactions.
cimport cython

from pyclient.codec.end_txn cimport CommitFrames
from pyclient.core.transactions.usual cimport UsualTransactions
from pyclient.metric_values cimport Total, Windows
from pyclient.net.lane_requests cimport LaneRequests
from pyclient.net.lone_exchange cimport LoneExchange


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
    cdef int _timer                    # readable when a linger ends
    cdef CommitLane _commits           # None: no transaction is a usual one now
    cdef Py_ssize_t _seal_failures     # when it was armed
    cdef readonly LaneRequests sent    # what is in flight of an open transaction
    cdef int _stage                    # of a commit that was not finished here
    cdef CommitLane _ending            # where EndTxn was written
    cdef double _end_at
    cdef bytes _end_rest               # what the kernel did not take of it

    # Private.
    cdef bint _borrow(self) except -1
    cdef int _try(self, double began, bint notifies) except -1
    cdef bint _goes_on(self) except -1
    cdef bint _looks(self, int descriptor) except -1
    cdef bint _is_usual(self, double now) except -1
    cdef int _commit(self, double now, bint notifies) except -1
    cdef int _foreseen(self, double now, bint may_notify) except -1
    cdef bint _carry_out(self, CommitLane commits, double now, bint notifies) except -1
    cdef bint _store(self, double until, bint notifies) except -1
    cdef bint _end(self, CommitLane commits, double until) except -1
    cdef bint _rested(self, double seconds) except -1
    cdef bint _comes(self, int descriptor, double until) except -1
    cdef int _left_ms(self, double until) except -1
