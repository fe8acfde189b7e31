# C interface: what a poll and a response do.
cimport cython

from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.codec.fetch cimport PartitionRequest
from pyclient.core.cluster_view cimport ClusterView
from pyclient.core.fetching.assigned_positions cimport AssignedPositions
from pyclient.core.fetching.empty_responses cimport EmptyResponses
from pyclient.core.fetching.fetch_request cimport FetchRequest
from pyclient.core.fetching.fetches_in_flight cimport FetchesInFlight, FetchWait
from pyclient.core.fetching.placement cimport Placement
from pyclient.core.fetching.position_lookups cimport PositionLookups
from pyclient.core.fetching.positions cimport Position
from pyclient.core.fetching.preferred_replicas cimport PreferredReplicas
from pyclient.core.fetching.responses cimport FetchResponses
from pyclient.core.fetching.sessions cimport SessionRequest
from pyclient.core.fetching.sources cimport Sources
from pyclient.core.manager cimport Manager, Ready, earlier


cdef object FETCH_USE


cdef class Fetcher(Manager):
    cdef FetchBuffer _buffer
    cdef object _metadata
    cdef ClusterView _view
    cdef Sources _sources
    cdef readonly PreferredReplicas _preferred
    cdef FetchWait _fetch_wait
    cdef EmptyResponses _empty
    cdef AssignedPositions _assigned
    cdef readonly Placement _placement
    cdef readonly PositionLookups _lookups
    cdef FetchResponses _responses
    cdef readonly FetchesInFlight fetches
    cdef readonly object session_close

    @cython.locals(request=SessionRequest)
    cpdef FetchRequest fetch(self, object node, double now, Ready ready)

    # Private.
    cdef object _prepare(self, double now)
    cdef bint _is_reachable(self, object node, double now, Ready ready) except -1
    @cython.locals(position=Position)
    cpdef PartitionRequest _request_of(self, double now, object tp)
    cpdef object _ended(self, FetchRequest fetch, double now, object outcome)


@cython.final
cdef class NextFetches:
    cdef Fetcher _fetcher
    cdef list _nodes
    cdef double _now
    cdef Ready _ready


@cython.locals(made=NextFetches)
cdef NextFetches _next_fetches(Fetcher fetcher, list nodes, double now, Ready ready)
