# C interface: Arrow columns as the Accumulator's rows point into them.
cimport cython
from libc.stdint cimport int64_t


# A column of bytes or text, of int64 or int32 (no `offsets`), or of lists of struct<key, value> (no `data`).
# Offsets and validity may change while they are read, so each is read once and compared with the bounds.
cdef class Column:
    cdef readonly object keeps          # the pyarrow arrays whose memory it is
    cdef const unsigned char* valid     # bitmap; NULL when nothing is null
    cdef const void* offsets
    cdef bint wide                      # offsets of 64 bits, not of 32
    cdef int64_t low                    # what offsets may be
    cdef int64_t high
    cdef const unsigned char* data
    cdef Py_ssize_t offset              # of the first row, in every buffer
    cdef Py_ssize_t length
    cdef readonly Column items          # a list's items: where one is null
    cdef readonly Column key
    cdef readonly Column value


# The column of a pyarrow array whose lengths are known to be those of its buffers.
cpdef Column bytes_column(object array, Py_ssize_t shift, bint wide)


@cython.final
cdef class PlainColumns:
    cdef object _schema
    cdef tuple _value             # index, type id, whether wide; None if absent
    cdef tuple _key
    cdef object _table            # pyarrow.Table
    cdef object _batch            # pyarrow.RecordBatch

    cdef Py_ssize_t rows_of(self, object data) except -1
    cdef Column value_of(self, object data, Py_ssize_t rows)
    cdef Column key_of(self, object data, Py_ssize_t rows)

    # Private.
    cdef Column _column(self, object data, tuple place, Py_ssize_t rows)


# What `value_at` says for a row whose offsets are not within the column.
cdef enum:
    DAMAGED = -2

cdef bint is_null(Column column, Py_ssize_t row) noexcept nogil

# The number in a row of an int64 column, which is read once.
cdef int64_t number_at(Column column, Py_ssize_t row) noexcept nogil

# A row's bytes, and their number in *size*: NULL and -1 for null, or when there is no such column; NULL and DAMAGED.
cdef const unsigned char* value_at(Column column, Py_ssize_t row, Py_ssize_t* size) noexcept

# The error for a row that is DAMAGED.
cdef object damage(str what)

# Upper bound, in bytes, of the header sections of rows *start* to *stop*, if their lists do not overlap.
cdef Py_ssize_t section_bound(Column headers, Py_ssize_t start, Py_ssize_t stop) noexcept

# Writes the header section of a row, of at most *room* bytes; returns its size.
cdef Py_ssize_t header_section(Column headers, Py_ssize_t row, unsigned char* at, Py_ssize_t room) except -1
