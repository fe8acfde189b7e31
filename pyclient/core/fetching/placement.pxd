# C interface: each response places its partitions.
cimport cython

from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.fetching.assigned_positions cimport AssignedPositions
from pyclient.core.fetching.positions cimport Position
from pyclient.core.fetching.preferred_replicas cimport PreferredReplicas
from pyclient.core.fetching.sources cimport Sources


cdef Py_ssize_t _AHEAD


cdef class Placement:
    cdef AssignedPositions _positions
    cdef FetchBuffer _buffer
    cdef object _metadata
    cdef ClusterView _view
    cdef dict _known
    cdef object _known_of
    cdef Sources _sources
    cdef PreferredReplicas _preferred
    cdef object _backoff
    cdef set _paused
    cdef set _held
    cdef dict _resting
    cdef dict _leaderless
    cdef object _unconfirmed
    cdef object _followed
    cdef public object on_rest

    @cython.locals(position=Position)
    cpdef object place(self, object tp)
    cpdef object remove(self, object tp)
    cpdef bint is_fetchable(self, Position position) except -1
    cpdef object known(self, object tp)
    cpdef object rest(self, Position position, double now)
    cpdef bint rests(self, object tp) except -1
    cpdef object end_rests(self, double now)
    cpdef object next_deadline(self)
    cpdef object follow_metadata(self)

    # Private.
    cpdef object _node(self, object tp)
