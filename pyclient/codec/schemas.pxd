# C interface: the schemas of messages, for their reader and their writer.
cimport cython


# Kinds of fields, numbered as in the module's KINDS.
cdef enum:
    BOOL = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT16 = 5
    FLOAT64 = 6
    UUID_ = 7
    STRING = 8
    BYTES = 9
    RECORDS = 10
    ERROR_CODE = 11
    DURATION_32 = 12
    DURATION_64 = 13
    TIME = 14
    ENTITY = 15


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

    # Private.
    cdef object _set_default(self, str text)


@cython.final
cdef class Schema:
    cdef readonly str name
    cdef readonly bint flexible
    cdef readonly tuple names # of its fields
    cdef type message_type    # of what is read
    cdef list plain           # fields without a tag
    cdef dict tagged          # fields by their tags

    # Private.
    cdef object default_message(self)
    cdef dict default_fields(self)
    cdef list fields(self)


cpdef Schema schema_of(str name, int version)
