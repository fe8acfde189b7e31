# C interface: the Accumulator and its batches look into queues without a Python call.
cimport cython


@cython.final
cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly object waiting   # deque of Batch: SEALING, SEALED or IN_FLIGHT
    cdef object _open              # the Batch that takes records
    cdef bint _due                 # the open batch may leave: its linger has passed, or flush or memory pressure wants it
    cdef bint _listed              # stands in the Accumulator's ready list, or the loop holds it
    cdef bint _leaderless
    cdef Py_ssize_t _held          # bytes of memory that its batches take
    cdef TopicQueues _home         # the topic's


@cython.final
cdef class TopicQueues:
    cdef readonly str topic
    cdef readonly list queues
    cdef readonly tuple available  # partitions with a leader; all of them when none has one
    cdef readonly object shares    # of the available ones in what has no key; None: all the same
    cdef Py_ssize_t _count
    cdef int _sticky
    cdef Py_ssize_t _sticky_bytes
    cdef dict _busy                # its queues that hold batches which are closed and not done

    cdef bint turn(self, Py_ssize_t homeless, Py_ssize_t full, object random) except -1

    # Private.
    cdef bint _turn_is_over(self, Py_ssize_t homeless, Py_ssize_t full) except -1


@cython.final
cdef class PartitionMemory:
    cdef Py_ssize_t _half
    cdef Py_ssize_t _stranded

    cdef object account(self, PartitionQueue queue, Py_ssize_t size)
    cdef bint strands(self, PartitionQueue queue, Py_ssize_t size) except -1
    cdef object lead(self, PartitionQueue queue, bint led)
