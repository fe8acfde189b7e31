# C interface: as of `PartitionSequence`, whose methods these replace.
cimport cython

from pyclient.core.sending.sequencing cimport PartitionSequence


@cython.final
cdef class TransactionalSequence(PartitionSequence):
    cdef readonly object epochs
