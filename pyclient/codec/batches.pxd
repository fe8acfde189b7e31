# C layout of the reader, for the compiled code that takes records out of a batch without calling Python.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from pyclient.codec.scan cimport Totals
from pyclient.records.record cimport Record


cdef class RecordBatch:
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset   # of the last record that the batch was written with
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly Py_ssize_t size
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t count
    cdef readonly int16_t attributes
    cdef readonly int16_t producer_epoch
    cdef readonly int8_t magic
    cdef int8_t stamps                  # as pyclient.records.TimestampType
    cdef bint check_crc
    cdef bint opened
    cdef Py_ssize_t limit               # bytes that decompression may make
    cdef Py_ssize_t start               # where the batch begins in its view
    cdef Py_ssize_t sound               # bytes of old messages before the damaged one that open() found
    cdef object view                    # memoryview of the response, or of the decompressed records
    cdef object source                  # memoryview of the response while view is another
    cdef readonly Py_ssize_t held       # bytes that the records and their index take; 0 until it is open
    cdef const unsigned char* records_at
    cdef uint32_t* index                # where each record begins, counted from records_at
    cdef Totals* totals

    cpdef Py_ssize_t open_within(self, Py_ssize_t most) except? -2
    cpdef Py_ssize_t index_of(self, int64_t offset) except? -1
    cpdef int64_t offset_of(self, Py_ssize_t index) except? -1

    # What RecordBatch.open() does, for C callers.
    cdef int ensure_open(self) except -1

    # After open(), with position in range(count) and *topic* not None: none of these is checked again. *before* is the
    # record made before this one, or None; their header names are then the same objects where they are equal.
    cdef Record record_at(self, str topic, int32_t partition, Py_ssize_t position, Record before)

    # Private.
    cdef int verify(self, object view) except -1
    cdef int try_open(self, Py_ssize_t most) except -1
    cdef RecordBatch part(self, object view, Py_ssize_t start, Py_ssize_t size)
    cdef object decompressed(self, object body, Py_ssize_t most)
    cdef int open_old(self, object messages) except -1
    cdef int scan_all(self, object view, Py_ssize_t start, Py_ssize_t size, int64_t base_offset, int64_t base_timestamp,
                      Py_ssize_t count) except -1
    cdef object corrupt(self, str why)
    cdef Py_ssize_t range_end(self, Py_ssize_t start, object stop) except -1


# The iterator of RecordBatch.iter_records, for C callers.
cdef class BatchRecordIterator:
    cdef RecordBatch batch
    cdef str topic
    cdef int32_t partition
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef Record before              # the last one

    # The next record; only while position < end.
    cdef Record step(self)


cpdef list read_batches(object data, Py_ssize_t decompression_limit=*, bint check_crcs=*)
