# C interface: the schemas of entities, for the writer.
cimport cython


# Kinds of fields, numbered as in the module's _KINDS.
cdef enum:
    BOOL = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT64 = 9
    UUID_ = 10
    STRING = 11
    BYTES = 12
    RECORDS = 13
    ERROR_CODE = 14
    TIMEDELTA_32 = 15
    TIMEDELTA_64 = 16
    DATETIME = 17
    ENTITY = 18


@cython.final
cdef class Field:
    cdef str name
    cdef int kind
    cdef bint array
    cdef bint nullable        # the value, or for an array the array itself
    cdef int tag              # -1: not tagged
    cdef Py_ssize_t most      # items of an array
    cdef bint flexible        # lengths are compact
    cdef object nested        # its Schema
    cdef bint required        # it has no default
    cdef object default
    cdef object plain_default # the default for the writer: a mapping for an entity


@cython.final
cdef class Schema:
    cdef readonly type entity
    cdef bint flexible
    cdef list plain           # fields without a tag
    cdef dict tagged          # fields by their tags


cpdef Schema schema_of(object entity)
