# C interface: each fetch and each response asks; nearly always there is nothing.

cdef class PreferredReplicas:
    cdef object _rack
    cdef double _lease
    cdef dict _at
    cdef dict _leases
    cdef dict _missed
    cdef double _alone_until
    cdef dict _doubted

    cpdef object rack(self, double now)
    cpdef object of(self, object tp)
    cpdef object end(self, object tp)
    cpdef object settle(self, object tp)
    cpdef list expire(self, double now)
    cpdef list give_up(self, double now)
    cpdef object reached(self, object node, bint ready, double now)
    cpdef object next_deadline(self)

    # Private.
    cdef list _ended(self, list partitions)
