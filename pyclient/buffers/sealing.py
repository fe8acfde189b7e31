# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Compresses and checksums the records of a detached batch, in the thread that detached it, without a lock.

Independent of queues, memory and states. Compiled although nothing here is hot: in an interpreted
function Ctrl-C could raise between two lines, and no other call would seal the batch.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.buffers.topic_compression import Codecs

from pyclient.codec.compression import Compression
from pyclient.codec.crc import crc32c

COPIED = cython.declare(cython.Py_ssize_t, 2048)
"""Bytes of records that are copied: a view of them takes longer."""
NONE = Compression.NONE


@cython.final
@cython.cclass
class SealedRecords:
    """The bytes of a batch after its header, or the reason why there are none. The fields are in sealing.pxd."""


@cython.cfunc
def _records_of(batch: Batch) -> object:
    if batch._at <= COPIED:
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(batch._buffer), batch._at)
    return memoryview(batch._buffer)[:batch._at]


@cython.cfunc
def sealed_records(batch: Batch, codecs: Codecs) -> SealedRecords:
    """Compress and checksum the records of *batch*. If they cannot be compressed, the result has the error for them.

    After an interrupt (Ctrl-C) the records stay uncompressed: without a seal their partition would wait without end.
    """
    sealed: SealedRecords = SealedRecords.__new__(SealedRecords)
    sealed.records = _records_of(batch)
    try:
        sealed.codec, sealed.payload = codecs.compressed(batch.queue.topic, sealed.records)
    except Exception as error:  # noqa: BLE001 no caller owns the batch any more: its records must get the error
        sealed.error = codecs.failure(batch.queue.topic_partition, batch.count, error)
        sealed.codec, sealed.payload = NONE, sealed.records
    except BaseException as interrupt:  # noqa: BLE001 the caller raises it, after the batch is sealed
        sealed.codec, sealed.payload, sealed.interrupt = NONE, sealed.records, interrupt
    sealed.crc = crc32c(sealed.payload)
    return sealed
