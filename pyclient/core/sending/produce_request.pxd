# C interface: as of `Request`, whose methods these replace.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.codec.produce cimport StoredResponse, encode_produce, stored_response
from pyclient.core.manager cimport Manager, Reply, Request
from pyclient.core.sending.produce_outcome cimport stored_outcome


cdef int _TOPIC_IDS_SINCE


cdef class Owner(Manager):
    cpdef bint ended(self, double now, list outcomes) except -1


@cython.final
cdef class ProduceRequest(Request):
    cdef readonly list batches
    cdef readonly list ids
    cdef readonly int acks
    cdef Owner owner
    cdef object transactional_id

    # Private.
    @cython.locals(topics=dict, at=Py_ssize_t, batch=Batch)
    cdef dict _topics(self, int version)
    cdef object _key(self, Py_ssize_t at, Batch batch, int version)
    @cython.locals(reply=Reply, batch=Batch)
    cdef list _outcomes(self, object outcome)
    cdef object _stored(self, Batch batch, int version, StoredResponse answer)


@cython.locals(made=ProduceRequest)
cpdef ProduceRequest produce_request(int node, list batches, list ids, int acks, double timeout, Owner owner, object transactional_id=*,
                                     object versions=*)
