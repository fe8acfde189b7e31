# The fields of lanes and of the exchange that uses them.
cimport cython

from pyclient.buffers.accumulator cimport Accumulator
from pyclient.buffers.batch cimport Batch
from pyclient.buffers.batch_figures cimport RequestFigures, TopicFigures
from pyclient.buffers.queues cimport PartitionQueue
from pyclient.metric_values cimport Total, Windows
from pyclient.net.late_reading cimport LateReading


@cython.final
cdef class Lane:
    cdef readonly object connection
    cdef readonly object sequence
    cdef readonly object leader        # of the partition
    cdef readonly tuple address        # topic and partition, as in a request
    cdef readonly object terms         # of all Produce requests on the connection
    cdef object _node
    cdef object _requests              # of the connection, as `InFlightRequests`
    cdef object _in_flight             # the deque in it
    cdef object _reader
    cdef object _silence
    cdef int _descriptor
    cdef long long _producer_id        # -1 for a producer that is not idempotent
    cdef int _epoch
    cdef double _session               # no request is written after this
    cdef double _expiry
    cdef double _until                 # the lane may be used
    cdef bytes _before
    cdef bytes _after
    cdef bytes _answered
    cdef bytes _stored
    cdef Total _sent
    cdef Windows _latency
    cdef Windows _throttle
    cdef RequestFigures _request
    cdef TopicFigures _topic
    cdef long long _correlation_id     # of the last request
    cdef char[512] _answer
    cdef char[8] _expected
    cdef Py_ssize_t _size              # of the last answer
    cdef long long base_offset
    cdef long long append_time

    cdef bytes write(self, Batch batch, double now)
    cdef bint take_answer(self) except -1
    cdef bint reads(self, char* at, Py_ssize_t came) except -1
    cdef long long take_id(self) except -1
    cdef object count_request(self, Py_ssize_t size, int batches, long long records, double now)
    cdef object count_answer(self, Py_ssize_t size, double now, double sent_at)
    cdef object count_late_answer(self, Py_ssize_t size, double now)
    cdef object count_stored(self, int records, double now)

    # Private.
    cdef object _stamp(self, Batch batch)
    cdef bytes _head(self, bytes header, Py_ssize_t records)
    cdef Py_ssize_t _answer_size(self) except -1


cdef class LoneExchange:
    cdef Accumulator _accumulator
    cdef object _clock
    cdef object _metrics
    cdef object _otherwise
    cdef object _hand_over
    cdef dict _lanes                   # by their queue
    cdef Lane _lane                    # of the batch in flight
    cdef Batch _batch                  # in flight, and nobody else knows; None if there is none
    cdef double _sent_at
    cdef bytes _rest                   # of its request, that the kernel did not take
    cdef bint _lay                     # its answer lay in the socket before the loop read it again
    cdef bint _closed

    cdef bint _send_on(self, Lane lane, PartitionQueue queue) except -1
    cdef object _settle(self, bint late)


cdef bint set_linger_timer(selector, Accumulator accumulator, int timer) except -1


@cython.final
cdef class LentExchange(LoneExchange):
    cdef object _selector
    cdef object _unknown
    cdef object _acquire
    cdef object _give_back
    cdef int _bell
    cdef int _epoll
    cdef int _linger_timer             # readable when a linger ends; -1 if there is none
    cdef int _late_timer               # readable when an answer must be read
    cdef LateReading _late

    # Private.
    cdef bint _handles(self, int descriptor) except -1
    cdef bint _takes_answer(self, bint late) except -1
    cdef bint _send(self) except -1
    cdef bint _send_lone(self) except -1
    cdef bint _end_linger(self) except -1
    cdef bint _read_late(self) except -1
    cdef int _resume_reading(self) except -1
    cdef int _read(self, Lane lane, Batch batch, double seconds) except -1


@cython.final
cdef class LoopExchange(LoneExchange):
    cdef object _runs_here

    # Private.
    cdef bint _send(self) except -1
