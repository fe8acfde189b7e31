# The scan of a row for avro_columns, which counts what its columns would take before it fills them.
from libc.stdint cimport int64_t

from pyclient.codec.avro_nodes cimport Input, Node


cdef enum:
    DEEPEST = 1000  # containers inside each other; the C stack has an end


cdef struct Scan:
    Input source
    int level                # containers that are open
    int records              # records that are open
    int most_records
    int64_t null_bytes       # that nulls take in columns
    int steps                # of the path to the fault
    int64_t path[DEEPEST]    # from the fault outwards: nodes of fields, and -1 - number of items


# Whether the bytes from scan.source.at are exactly one value of nodes[0]; otherwise source.fault says why not.
cdef bint scan_row(const Node *nodes, Scan *scan) noexcept nogil

# Sets a node that is all zeros as its instruction describes it; node.limit is memory of its own.
cdef int set_node(Node *node, tuple instruction) except? -1

cdef int64_t MOST_EMPTY_ITEMS
