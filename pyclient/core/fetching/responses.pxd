# C interface: what each response does.
cimport cython

from pyclient.buffers.fetch_buffer cimport FetchBuffer
from pyclient.codec.batches cimport RecordBatch, read_batches
from pyclient.codec.fetch cimport FetchedPartition, FetchResponse, PartitionRequest
from pyclient.core.fetching.assigned_positions cimport AssignedPositions
from pyclient.core.fetching.fetches_in_flight cimport FetchWait
from pyclient.core.fetching.placement cimport Placement
from pyclient.core.fetching.position_lookups cimport PositionLookups
from pyclient.core.fetching.positions cimport Position
from pyclient.core.fetching.preferred_replicas cimport PreferredReplicas
from pyclient.core.fetching.sessions cimport Session, SessionRequest


cdef int _NO_REPLICA
cdef object _NO_NODES


cdef class FetchResponses:
    cdef AssignedPositions _positions
    cdef PositionLookups _lookups
    cdef Placement _placement
    cdef PreferredReplicas _preferred
    cdef FetchBuffer _buffer
    cdef object _metadata
    cdef object _limits
    cdef FetchWait _fetch_wait

    cpdef object on_outcome(self, double now, object node, Session session, SessionRequest session_request, object outcome)

    # Private.
    @cython.locals(position=Position, requested=PartitionRequest, fetched=FetchedPartition, leads=bint)
    cpdef object _on_response(self, double now, object node, Session session, FetchResponse message)
    cdef bint _leads(self, object node, object tp, PartitionRequest requested) except -1
    cpdef object _on_data(self, double now, Position position, FetchedPartition fetched, bint leads)
    @cython.locals(batch=RecordBatch)
    cdef object _on_records(self, double now, Position position, FetchedPartition fetched, object records)
    @cython.locals(batch=RecordBatch)
    cdef list _readable(self, list batches, FetchedPartition fetched)
    @cython.locals(batch=RecordBatch, size=Py_ssize_t)
    cdef object _take(self, double now, Position position, list batches, list data)


cdef bint _is_asked_for(Position position, PartitionRequest requested) except -1
