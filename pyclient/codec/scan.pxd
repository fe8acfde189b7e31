# The scan that checks the records of a batch. Nothing here touches a Python object but fault_text.
from libc.stdint cimport int64_t, uint32_t


# Sums over the records of a batch: what columns need to know before they are allocated.
cdef struct Totals:
    int64_t key_bytes
    int64_t value_bytes
    int64_t null_keys
    int64_t null_values
    int64_t headers
    int64_t header_name_bytes
    int64_t header_value_bytes
    int64_t null_header_values


cdef struct Scan:
    const unsigned char* at      # the next byte
    const unsigned char* end     # of what may be read: of all records, or while within one, of that one
    int fault                    # 0 while all is well, else see fault_text
    Py_ssize_t unreadable_names  # headers' names that are not UTF-8


# Scans *count* records from scan.at, fills *totals* and stores in *index* where each begins. Returns the number of sound ones;
# when that is less than count, scan.fault says why. Offsets must ascend and end no later than *last*.
cdef Py_ssize_t scan_records(Scan* scan, Totals* totals, uint32_t* index, Py_ssize_t count, int64_t last) noexcept nogil

# The end of a sentence about the record that had the fault.
cdef str fault_text(int fault)
