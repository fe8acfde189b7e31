# C interface: the Accumulator seals batches that it detached.
cimport cython

from pyclient.buffers.batch cimport Batch
from pyclient.buffers.topic_compression cimport Codecs


@cython.final
cdef class SealedRecords:
    cdef object records      # the uncompressed bytes
    cdef object payload      # the bytes to send: compressed, or *records*
    cdef object codec        # of *payload*
    cdef object crc          # of *payload*
    cdef object error        # why there is nothing to send, or None
    cdef object interrupt    # the exception to raise once the batch is sealed, or None


cdef SealedRecords sealed_records(Batch batch, Codecs codecs)
