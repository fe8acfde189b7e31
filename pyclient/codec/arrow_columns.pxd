# C interface: Arrow columns as the Accumulator's rows point into them.
from libc.stdint cimport int64_t


# A column of large_binary, of int64 or int32 (no `offsets`), or of large_list<struct<key, value>> (no `data`).
cdef class Column:
    cdef readonly object keeps          # the pyarrow arrays whose memory it is
    cdef const unsigned char* valid     # bitmap; NULL when nothing is null
    cdef const int64_t* offsets
    cdef const unsigned char* data
    cdef Py_ssize_t offset              # of the first row, in every buffer
    cdef Py_ssize_t length
    cdef readonly Column items          # a list's items: where one is null
    cdef readonly Column key
    cdef readonly Column value


cdef bint is_null(Column column, Py_ssize_t row) noexcept nogil

# A row's bytes, and their number in *size*: NULL and -1 for null, or when there is no such column.
cdef const unsigned char* value_at(Column column, Py_ssize_t row, Py_ssize_t* size) noexcept

# Upper bound, in bytes, of the header sections of rows *start* to *stop*.
cdef Py_ssize_t section_bound(Column headers, Py_ssize_t start, Py_ssize_t stop) noexcept

# Writes the header section of a row, returns its size.
cdef Py_ssize_t header_section(Column headers, Py_ssize_t row, unsigned char* at) except -1
