# C interface: each fetch asks whether a position is of the topic as it is now.
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.fetching.assigned_positions cimport AssignedPositions
from pyclient.core.fetching.placement cimport Placement
from pyclient.core.fetching.positions cimport Position


cdef class PositionLookups:
    cdef AssignedPositions _positions
    cdef Placement _placement
    cdef ClusterView _view
    cdef object _offsets
    cdef object _reset_time
    cdef object _find_committed
    cdef dict _cancels
    cdef dict _topic_ids

    cpdef Position renew(self, object tp)
    cpdef bint is_of_current_topic(self, Position position, double now) except -1
