# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""How batches and records are read, checked before any of their bytes is trusted.

Reading has two steps. `read_batches` splits a response and parses the fixed headers, cheap enough for the reactor.
`RecordBatch.open`, in the thread that wants the records, verifies the checksum, then decompresses, then scans every
record once and checks every length. The old message formats 0 and 1 are first written as format 2. Decoding afterwards
repeats no check and cannot fail. Any damage raises `CorruptRecordError` and nothing else, before memory is
allocated for it.
Independent of positions, transactions and consumers.
"""
import cython
from cython.cimports.cpython.buffer import Py_buffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.list import PyList_New, PyList_SET_ITEM
from cython.cimports.cpython.mem import PyMem_RawFree, PyMem_RawMalloc
from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t
from cython.cimports.pyclient.codec.batch_headers import Run, header_fault, measure_run, whole_size
from cython.cimports.pyclient.codec.record_headers import read_headers, with_readable_names
from cython.cimports.pyclient.codec.old_messages import UpgradedRecords
from cython.cimports.pyclient.codec.parse import (
    RecordView, int16_at, int32_at, int64_at, offset_delta_at, timestamp_of, uint32_at, view_record)
from cython.cimports.pyclient.codec.scan import Scan, Totals, fault_text, scan_records
from cython.cimports.pyclient.records.record import Record, blank

from pyclient.codec.compression import DEFAULT_LIMIT, Compression, decompress, decompress_small
from pyclient.codec.crc import crc32c
from pyclient.errors import CorruptRecordError
from pyclient.records import TimestampType

HEADER_SIZE = 61
OLD_SIZE = cython.declare(cython.Py_ssize_t, 128)  # memory for an old batch is four times that; see read_batches
OLD_ROOM = cython.declare(cython.Py_ssize_t, 128 * 1024)
NO_LIMIT = cython.declare(cython.Py_ssize_t, 0x7FFFFFFFFFFFFFFF)
CONTROL_LIMIT = cython.declare(cython.Py_ssize_t, 4096)  # the reactor opens control batches, and no broker writes larger ones
SMALLEST_RECORD = cython.declare(cython.int, 7)  # length, attributes, timestamp, offset, key, value, headers: a byte each

_CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}


# --- a batch --------------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
@cython.cclass
class RecordBatch:
    """One batch of a fetch response: its header at once, its records after `open`.

    Made by `read_batches`. ``size`` is its length on the wire, ``count`` the number of its records (0 when compaction
    removed them all), ``base_offset`` to ``last_offset`` the offsets it stands for, whether or not each still exists.
    ``magic`` is its message format. A compressed message of format 0 or 1 shows its last record only until it is open.
    """

    def __cinit__(self) -> None:
        self.index = cython.NULL
        self.totals = cython.NULL
        self.records_at = cython.NULL

    def __init__(self) -> None:
        raise TypeError("a RecordBatch is made by read_batches(data)")

    def __dealloc__(self) -> None:
        PyMem_RawFree(self.totals)  # index lies in the same block

    @property
    def next_offset(self) -> int:
        """The offset to read next, after this batch."""
        return self.last_offset + 1

    @property
    def compression(self) -> object:
        """The `Compression` of the records."""
        return Compression(self.attributes & 7)

    @property
    def timestamp_type(self) -> object:
        """The source of the timestamps: the producer (CREATE_TIME), a broker (LOG_APPEND_TIME), none (format 0)."""
        return TimestampType(self.stamps)

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.attributes & 16 != 0

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, whose records are not the user's."""
        return self.attributes & 32 != 0

    @property
    def delete_horizon(self) -> object:
        """When compaction may drop this batch's tombstones (ms since the epoch, KIP-534); None while not decided."""
        return self.base_timestamp if self.attributes & 64 else None

    def __repr__(self) -> str:
        kind = "control, " if self.is_control else "transactional, " if self.is_transactional else ""
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset}, {self.count} records, {kind}"
            f"{self.compression.name.lower()}, {self.size} bytes)"
        )

    def __len__(self) -> int:
        return self.count

    # --- opening

    def open(self) -> None:
        """Check the CRC, decompress, and check every record. Does nothing the second time.

        The GIL is released for what takes time. Two threads may open the same batch; both return when it is open.

        Raises:
            CorruptRecordError: the batch is damaged, or decompresses to more than the limit. It stays closed.
        """
        self.ensure_open()

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def open_within(self, most: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """As `open`, but a compressed batch stays closed if it may decompress to more than *most* bytes.

        Returns the bytes that it takes while it is open, or -1 if it stays closed. Compressed messages of the formats
        0 and 1 always do. What it decompressed is kept, for `closed`, until `forget_source`.
        """
        return self.held if self.try_open(most) else -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ensure_open(self) -> cython.int:
        opened: cython.bint
        with cython.critical_section(self):
            opened = self.opened
        if not opened:
            self.try_open(NO_LIMIT)
            self.forget_source()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def try_open(self, most: cython.Py_ssize_t) -> cython.int:
        """Open it within *most* bytes; returns whether it is open."""
        view: object
        compressed: cython.bint = self.attributes & 7 != 0
        with cython.critical_section(self):
            if self.opened:
                return 1
            view = self.view
        if compressed and most < NO_LIMIT and (self.size > most or self.magic < 2):
            return 0
        if self.magic < 2:
            self.open_old(view[self.start : self.start + self.size])
            return 1
        if self.check_crc:
            self.verify(view)
        if not compressed or self.size <= 61:
            self.scan_all(view, self.start + 61, self.size - 61, self.base_offset, self.base_timestamp, self.count)
            return 1
        view = self.decompressed(view[self.start + 61 : self.start + self.size], most)
        if view is None:
            return 0
        self.scan_all(view, 0, len(view), self.base_offset, self.base_timestamp, self.count)
        return 1

    def closed(self) -> RecordBatch:
        """The same batch, not open: the memory of its decompressed records is freed with this one.

        Itself, if opening took no memory or `forget_source` was called.
        """
        source: object
        with cython.critical_section(self):
            source = self.source
        return self if source is None else self.part(source, self.start, self.size)

    def forget_source(self) -> None:
        """Keep nothing of the compressed response; `closed` does nothing from now on."""
        with cython.critical_section(self):  # two threads that open it come here at once
            self.source = None

    @cython.cfunc
    def part(self, view: object, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> RecordBatch:
        """*size* bytes of the response as a batch with the settings of this one."""
        made: RecordBatch
        at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(view).buf) + start
        made = _batch(view, at, start, size) if self.magic == 2 else _old_batch(view, at, start, size)
        made.limit = self.limit
        made.check_crc = self.check_crc
        return made

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def open_old(self, messages: object) -> cython.int:
        """Write messages of format 0 or 1 as records of format 2, then read those."""
        upgraded: UpgradedRecords = UpgradedRecords.__new__(UpgradedRecords)
        try:
            upgraded.read(messages, self.limit, self.check_crc)
        except CorruptRecordError as error:
            self.sound = 0 if self.attributes & 7 else upgraded.sound
            raise self.corrupt(error.message) from None
        return self.scan_all(upgraded.records, 0, upgraded.size, upgraded.base_offset, upgraded.base_timestamp, upgraded.count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verify(self, view: object) -> cython.int:
        """Compare the checksum with the one in the header, before anything behind it is used."""
        buffer: cython.pointer(Py_buffer) = PyMemoryView_GET_BUFFER(view)
        header: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf) + self.start
        expected: uint32_t = uint32_at(header + 17)
        found: uint32_t = crc32c(view[self.start + 21 : self.start + self.size])
        if expected != found:
            raise self.corrupt(
                f"its CRC-32C is 0x{found:08x}, the header says 0x{expected:08x}: it was damaged on a disk or on the way. "
                "Read it again; if it stays so, seek past it"
            )
        return 0

    @cython.cfunc
    def decompressed(self, body: object, most: cython.Py_ssize_t) -> object:
        """The records, or None if they may be more than *most* bytes."""
        try:
            if most < self.limit:
                return decompress_small(self.attributes & 7, body, most)
            return decompress(self.attributes & 7, body, self.limit)
        except CorruptRecordError as error:
            raise self.corrupt(str(error)) from None

    def parts(self) -> list:
        """What can be read of uncompressed old messages, one of which `open` found damaged: before it, it, after it.

        Every message was a batch of its own then: damage of one is none of the others. Empty for any other batch.
        """
        at: cython.p_const_uchar
        end: cython.Py_ssize_t = self.start + self.size
        start: cython.Py_ssize_t = self.start
        batches: list = []
        if self.opened or self.count == 1 or self.magic == 2 or self.attributes & 7:
            return batches
        at = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(self.view).buf)
        damaged: cython.Py_ssize_t = self.start + self.sound
        for stop in (damaged, damaged + whole_size(at + damaged, end - damaged), end):
            if start < stop:
                batches.append(self.part(self.view, start, stop - start))
                start = stop
        return batches

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def scan_all(
        self,
        view: object,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        count: cython.Py_ssize_t,
    ) -> cython.int:
        """Check every record in *size* bytes of *view* from *start*, then publish the batch as open."""
        scan: Scan
        index: cython.pointer(uint32_t)
        totals: cython.pointer(Totals)
        sound: cython.Py_ssize_t = 0
        last: int64_t = self.last_offset - base_offset
        buffer: cython.pointer(Py_buffer) = PyMemoryView_GET_BUFFER(view)
        records: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf) + start
        if size < count * SMALLEST_RECORD or size > 0xFFFFFFFF:
            raise self.corrupt(f"its header counts {count} records, for which {size} bytes cannot do")
        totals = cython.cast(cython.pointer(Totals), PyMem_RawMalloc(cython.sizeof(Totals) + count * cython.sizeof(uint32_t)))
        if totals == cython.NULL:
            raise MemoryError(f"no memory for the positions of {count} records")
        index = cython.cast(cython.pointer(uint32_t), totals + 1)
        scan.at = records
        scan.end = records + size
        with cython.nogil:
            sound = scan_records(cython.address(scan), totals, index, count, last)
        if sound < count or scan.at != scan.end:
            PyMem_RawFree(totals)
            if sound < count:
                raise self.corrupt(f"record {sound} of {count} is damaged: {fault_text(scan.fault)}")
            raise self.corrupt(f"{scan.end - scan.at} bytes follow the last of its {count} records")
        if scan.unreadable_names:
            try:
                view = with_readable_names(records, index, count)
            finally:
                PyMem_RawFree(totals)
            return self.scan_all(view, 0, len(view), base_offset, base_timestamp, count)
        with cython.critical_section(self):
            if self.opened:
                PyMem_RawFree(totals)  # another thread was first
                return 0
            self.base_offset = base_offset
            self.base_timestamp = base_timestamp
            self.count = cython.cast(int32_t, count)
            self.totals = totals
            self.index = index
            self.records_at = records
            if view is not self.view:
                self.source = self.view  # until `forget_source`
            self.view = view
            self.held = size + cython.sizeof(Totals) + count * cython.sizeof(uint32_t)
            self.opened = True
        return 0

    @cython.cfunc
    def corrupt(self, why: str) -> object:
        """The error for this batch; *why* ends the sentence."""
        return CorruptRecordError(
            f"the record batch at offset {self.base_offset} ({self.size} bytes, offsets up to {self.last_offset}, "
            f"{self.count} records, {self.compression.name.lower()}) cannot be read: {why}"
        )

    # --- records

    @cython.cfunc
    def record_at(self, topic: str, partition: int32_t, position: cython.Py_ssize_t, before: Record | None) -> Record:
        view: RecordView
        record: Record = blank()
        view_record(self.records_at + self.index[position], cython.address(view))
        record._topic = topic
        record._partition = partition
        record._offset = self.base_offset + view.offset_delta
        record._timestamp = timestamp_of(self.attributes, self.base_timestamp, self.max_timestamp, view.timestamp_delta)
        record._timestamp_type = self.stamps
        record._leader_epoch = self.leader_epoch
        if view.key_len >= 0:
            record._key = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, view.key), view.key_len)
        if view.value_len >= 0:
            record._value = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, view.value), view.value_len)
        if view.headers:
            record._headers = read_headers(view.header, view.headers, None if before is None else before._headers)
        return record

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def range_end(self, start: cython.Py_ssize_t, stop: object) -> cython.Py_ssize_t:
        """Open, and check a range of record indexes; return its end."""
        end: cython.Py_ssize_t
        self.ensure_open()
        end = self.count if stop is None else stop
        if not 0 <= start <= end <= self.count:
            raise IndexError(f"records {start} to {end} of a batch that has {self.count}; take 0 <= start <= stop <= count")
        return end

    def records(self, topic: str, partition: int, start: cython.Py_ssize_t = 0, stop: object = None) -> list:
        """Records ``start`` to ``stop`` (indexes, not offsets; all by default) as a list.

        They keep nothing of the response.

        Raises:
            CorruptRecordError: as `open`.
            IndexError: the range is not within the batch.
        """
        end: cython.Py_ssize_t = self.range_end(start, stop)
        number: int32_t = partition
        position: cython.Py_ssize_t
        record: Record | None = None
        out: list = PyList_New(end - start)
        for position in range(start, end):
            record = self.record_at(topic, number, position, record)
            Py_INCREF(record)  # SET_ITEM steals one
            PyList_SET_ITEM(out, position - start, record)
        return out

    def iter_records(self, topic: str, partition: int, start: cython.Py_ssize_t = 0, stop: object = None) -> object:
        """As `records`, one at a time: each is built on demand. The iterator keeps the batch alive."""
        iterator: BatchRecordIterator = BatchRecordIterator.__new__(BatchRecordIterator)
        iterator.end = self.range_end(start, stop)
        iterator.position = start
        iterator.topic = topic
        iterator.partition = partition
        iterator.batch = self
        return iterator

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def index_of(self, offset: int64_t) -> cython.Py_ssize_t:
        """Index of the first record at or after *offset*; ``count`` when there is none.

        Raises:
            CorruptRecordError: as `open`.
        """
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t
        middle: cython.Py_ssize_t
        delta: int64_t
        self.ensure_open()
        high = self.count
        if offset <= self.base_offset:
            return 0
        delta = offset - self.base_offset
        while low < high:
            middle = low + (high - low) // 2
            if offset_delta_at(self.records_at + self.index[middle]) < delta:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def offset_of(self, index: cython.Py_ssize_t) -> int64_t:
        """Offset of the record at *index*.

        Raises:
            CorruptRecordError: as `open`.
            IndexError: the batch has no such record.
        """
        self.ensure_open()
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} of a batch that has {self.count}")
        return self.base_offset + offset_delta_at(self.records_at + self.index[index])

    def control_type(self) -> str:
        """What a control batch says: ``"COMMIT"``, ``"ABORT"`` or the name of one that concerns brokers only.

        ``"UNKNOWN"`` is a type of a newer broker, ``"NONE"`` a control batch whose record compaction removed.

        Raises:
            CorruptRecordError: as `open`, or its key is not one of a control record.
            ValueError: this is no control batch.
        """
        view: RecordView
        if not self.is_control:
            raise ValueError(f"{self!r} is not a control batch; check is_control first")
        self.ensure_open()
        if self.count == 0:
            return "NONE"
        view_record(self.records_at + self.index[0], cython.address(view))
        if view.key_len < 4 or int16_at(view.key) < 0:
            raise self.corrupt("it is a control batch, but its record's key is not a version and a type")
        return _CONTROL_TYPES.get(int16_at(view.key + 2), "UNKNOWN")


@cython.final
@cython.no_gc
@cython.cclass
class BatchRecordIterator:
    """Iterator over records of one batch; builds each in `__next__`, with no Python frame in between."""

    def __iter__(self) -> object:
        return self

    def __next__(self) -> Record:
        with cython.critical_section(self):  # a position that two threads moved could pass the end
            if self.position >= self.end:
                raise StopIteration
            return self.step()

    @cython.cfunc
    def step(self) -> Record:
        self.before = self.batch.record_at(self.topic, self.partition, self.position, self.before)
        self.position += 1
        return self.before

    def __length_hint__(self) -> int:
        return self.end - self.position


# --- splitting a response ---


@cython.cfunc
def _batch(view: object, at: cython.p_const_uchar, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> RecordBatch:
    batch: RecordBatch = RecordBatch.__new__(RecordBatch)
    batch.view = view
    batch.start = start
    batch.size = size
    batch.base_offset = int64_at(at)
    batch.leader_epoch = int32_at(at + 12)
    batch.attributes = int16_at(at + 21)
    batch.last_offset = batch.base_offset + int32_at(at + 23)
    batch.stamps = 1 if batch.attributes & 8 else 0
    batch.magic = 2
    batch.base_timestamp = int64_at(at + 27)
    batch.max_timestamp = int64_at(at + 35)
    batch.producer_id = int64_at(at + 43)
    batch.producer_epoch = int16_at(at + 51)
    batch.base_sequence = int32_at(at + 53)
    batch.count = int32_at(at + 57)
    return batch


@cython.cfunc
def _old_batch(view: object, at: cython.p_const_uchar, start: cython.Py_ssize_t, rest: cython.Py_ssize_t) -> RecordBatch:
    """Old messages as one batch. Of a compressed one only the last record's offset is known before it is opened."""
    run: Run
    batch: RecordBatch = RecordBatch.__new__(RecordBatch)
    measure_run(at, rest, cython.address(run))
    batch.view = view
    batch.start = start
    batch.size = run.size
    batch.base_offset = run.first_offset
    batch.last_offset = run.last_offset
    batch.count = run.count
    batch.attributes = run.codec
    batch.stamps = run.timestamp_type
    batch.magic = run.magic
    batch.base_timestamp = batch.max_timestamp = run.max_timestamp
    batch.leader_epoch = batch.producer_id = batch.producer_epoch = batch.base_sequence = -1
    return batch


@cython.ccall
def read_batches(data: object, decompression_limit: cython.Py_ssize_t = DEFAULT_LIMIT, check_crcs: cython.bint = True) -> list:
    """Split the records of a fetch response into batches, without copying them.

    ``data`` is bytes, bytearray or a memoryview; the batches share and keep it. A batch cut off by the end of ``data``
    is left out: brokers cut there. ``decompression_limit`` is the most bytes that one batch may decompress to.
    Messages of the formats 0 and 1 are batches too: uncompressed ones in a row are one, a compressed one is another.
    When very many of those are tiny, not all are returned: read on from the end of the last one.

    Raises:
        CorruptRecordError: the first batch has a damaged header, or one of a format that this client does not know.
            When whole batches precede it they are returned, and reading on from their end raises.
    """
    view: object = memoryview(data).cast("B")
    buffer: cython.pointer(Py_buffer) = PyMemoryView_GET_BUFFER(view)
    begin: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf)
    start: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    batch: RecordBatch
    fault: str
    batches: list = []
    while buffer.len - start >= 12:
        size = whole_size(begin + start, buffer.len - start)
        fault = header_fault(begin + start, buffer.len - start, size)
        if fault is not None:
            if batches:
                break
            raise CorruptRecordError(
                f"the record batch at offset {int64_at(begin + start)} (byte {start} of {buffer.len}) cannot be read: {fault}"
            )
        if size == 0:
            break
        if begin[start + 16] == 2:
            batch = _batch(view, begin + start, start, size)
        elif OLD_SIZE * len(batches) > start + OLD_ROOM:
            break
        else:
            batch = _old_batch(view, begin + start, start, buffer.len - start)
        batch.limit = min(decompression_limit, CONTROL_LIMIT) if batch.attributes & 32 else decompression_limit
        batch.check_crc = check_crcs
        batches.append(batch)
        start += batch.size
    return batches
