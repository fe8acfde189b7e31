# C interface: a column tree as the Arrow C data interface defines it, in one block of memory.
from libc.stdint cimport int64_t


cdef enum:
    ALIGNMENT = 64    # recommended by Arrow for the start of a buffer


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


# Free the tree; the `release` of its root.
cdef void release_block(ArrowArray* root) noexcept nogil

# A column without buffers, with room for its children: the root, or the next child of *parent*.
cdef void add_root(Block* block, ArrowArray* node, int64_t length, int64_t nulls, int children) noexcept nogil
cdef ArrowArray* add_child(Block* block, ArrowArray* parent, int64_t length, int64_t nulls, int children) noexcept nogil

# The next buffer of the newest *node*, aligned; NULL for a size of 0.
cdef unsigned char* add_buffer(Block* block, ArrowArray* node, Py_ssize_t size) noexcept nogil

# A column of numbers without nulls.
cdef unsigned char* add_numbers(Block* block, ArrowArray* root, int64_t rows, Py_ssize_t size) noexcept nogil

# Private.
cdef void release_nothing(ArrowArray* node) noexcept nogil
