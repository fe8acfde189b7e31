# C interface: as of `Request`, whose methods these replace.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.codec.produce cimport StoredResponse, encode_produce, stored_response
from pyclient.core.manager cimport Reply, Request


@cython.final
cdef class ProduceRequest(Request):
    cdef readonly list batches
    cdef readonly dict ids
    cdef readonly int acks
    cdef object owner
    cdef object transactional_id

    # Private.
    cdef object _key(self, Batch batch, int version)
    @cython.locals(reply=Reply)
    cdef list _outcomes(self, object outcome)
    cdef object _stored(self, Batch batch, int version, StoredResponse answer)


@cython.locals(batch=Batch)
cpdef object topic_ids(list batches, object cluster)
