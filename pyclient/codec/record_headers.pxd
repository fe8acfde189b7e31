# The headers of checked records.
from libc.stdint cimport uint32_t


# *count* headers from *at* on, as pairs; *before* are those of the record before, None if it has none.
cdef tuple read_headers(const unsigned char* at, Py_ssize_t count, tuple before)

# The checked records as they are, but with names that are UTF-8; a memoryview. *index* is where each begins.
cdef object with_readable_names(const unsigned char* records, uint32_t* index, Py_ssize_t count)
