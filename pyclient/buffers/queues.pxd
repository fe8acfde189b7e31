# C interface: the Accumulator and its batches read queues without a Python call.
cimport cython


@cython.final
cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly list waiting     # of Batch: SEALING, SEALED or IN_FLIGHT
    cdef public object sequence    # where its sender keeps what is in flight; None before the first batch left
    cdef object _open              # the Batch that takes records
    cdef bint _due                 # the open batch may leave: its linger has ended, flush was called, or senders wait for memory
    cdef bint _listed              # in the list of `ReadyQueues`, or held by the reactor
    cdef bint _leaderless
    cdef Py_ssize_t _held          # bytes of memory that its batches take
    cdef Py_ssize_t _filled        # bytes of the last batch that was not compressed
    cdef TopicQueues _home         # its topic


@cython.final
cdef class TopicQueues:
    cdef readonly str topic
    cdef readonly list queues
    cdef tuple _available          # partitions with a leader; all of them when none has one
    cdef readonly object shares    # of the available ones in records without a key; None: equal shares
    cdef Py_ssize_t _count
    cdef int _sticky
    cdef Py_ssize_t _sticky_bytes
    cdef dict _busy                # its queues with batches that are closed and not done

    cdef list backlogs(self)
    cdef bint turn(self, Py_ssize_t rejected, Py_ssize_t full, object random) except -1

    # Private.
    cdef bint _turn_is_over(self, Py_ssize_t rejected, Py_ssize_t full) except -1


@cython.final
cdef class TopicTable:
    cdef dict by_name
    cdef Py_ssize_t _batch_limit
    cdef object _random
    cdef dict _changed             # topics whose sticky partition changed since `take_changed`

    cdef PartitionQueue queue_for(self, TopicQueues topic, Py_ssize_t partition, Py_ssize_t rejected)
    cdef TopicQueues update(self, str name, Py_ssize_t count, object available)
    cdef list take_changed(self, bint all_topics)
