# A column tree as the Arrow C data interface defines it, and the one block of memory that such a tree lies in.
from libc.stdint cimport int64_t


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data


# What precedes the columns' bytes: all nodes but the root, and the arrays of pointers they need.
cdef struct Block:
    ArrowArray nodes[12]
    const void* buffers[32]
    ArrowArray* children[12]
    int used_nodes
    int used_buffers
    int used_children
    unsigned char* free      # where the next column's bytes may begin


cdef void release_block(ArrowArray* root) noexcept nogil
cdef void release_nothing(ArrowArray* node) noexcept nogil
