# C interface: messages are written field by field, also without a schema.
cimport cython
from libc.stdint cimport uint64_t

from pyclient.codec.schemas cimport Field, Schema


@cython.final
cdef class Writer:
    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    cdef int integer(self, uint64_t number, int width) except -1
    cdef int uvarint(self, uint64_t number) except -1
    cdef int length(self, Py_ssize_t count, bint flexible, int width) except -1
    cdef int raw(self, bytes data) except -1
    cdef int text(self, str text, bint flexible) except -1
    cdef int end(self, bint flexible) except -1
    cpdef int header(self, int api, int version, unsigned int correlation_id, str client_id, bint flexible) except -1
    cpdef bytes take(self)

    # Private.
    cdef int more(self, Py_ssize_t count) except -1
    cdef int sized(self, Field field, object value, bint flexible) except -1
    cdef int number(self, Field field, object value) except -1
    cdef int nothing(self, Field field, bint flexible) except -1
    cdef int value(self, Field field, object value, bint flexible, bint nullable) except -1
    cdef int array(self, Field field, object values, bint flexible) except -1
    cdef int field(self, Field field, object value, bint flexible) except -1
    cdef int mapping(self, Schema schema, object values) except -1
    cdef int tags(self, Schema schema, dict fields) except -1
