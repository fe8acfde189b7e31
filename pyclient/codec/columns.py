# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Records as Arrow columns: from the batches' bytes straight into Arrow's buffers, with no Python object per record.

Two steps per chunk: add up what its records hold, which an opened batch already knows when it is taken whole; then
take one block of memory for all its columns, fill it in one pass without the GIL, and hand it over through the Arrow C
data interface: ten calls into pyarrow for ten columns would cost more than a thousand records do. Arrow's string and
binary columns count in 32 bits, so a chunk ends before one of them would hold more than `chunk_bytes`.
Independent of consumers.
"""
import cython
from cython.cimports.cpython.mem import PyMem_RawMalloc
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.pyclient.codec.arrow_block import (
    ALIGNMENT, ArrowArray, Block, add_buffer, add_child, add_numbers, add_root, release_block)
from cython.cimports.pyclient.codec.batches import RecordBatch
from cython.cimports.pyclient.codec.parse import RecordView, next_bytes, timestamp_of, view_record
from cython.cimports.pyclient.codec.scan import Totals

from importlib import import_module

LARGEST_CHUNK = 2**31 - 1

_schemas: dict = {}

# One column of strings or bytes while it is filled.
_Bytes = cython.struct(
    offsets=cython.pointer(int32_t),
    data=cython.p_uchar,
    valid=cython.p_uchar,  # bitmap; NULL when nothing in it is null
    used=int32_t,
)

# All columns of a chunk while they are filled.
_Columns = cython.struct(
    row=cython.Py_ssize_t,
    header=cython.Py_ssize_t,
    partition=cython.pointer(int32_t),
    offset=cython.pointer(int64_t),
    timestamp=cython.pointer(int64_t),
    timestamp_type=cython.pointer(int32_t),
    topic=_Bytes,
    key=_Bytes,
    value=_Bytes,
    headers=cython.pointer(int32_t),  # where each record's headers begin; NULL when they are not wanted
    header_name=_Bytes,
    header_value=_Bytes,
)


# --- sizes of the columns ---


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _add_headers(totals: cython.pointer(Totals), view: cython.pointer(RecordView)) -> cython.void:
    at: cython.p_const_uchar = view.header
    data: cython.p_const_uchar = cython.NULL
    size: cython.Py_ssize_t = 0
    left: cython.Py_ssize_t = view.headers
    totals.headers += left
    while left > 0:
        at = next_bytes(at, cython.address(data), cython.address(size))
        totals.header_name_bytes += size
        at = next_bytes(at, cython.address(data), cython.address(size))
        if size < 0:
            totals.null_header_values += 1
        else:
            totals.header_value_bytes += size
        left -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _add_record(totals: cython.pointer(Totals), at: cython.p_const_uchar) -> cython.void:
    view: RecordView
    view_record(at, cython.address(view))
    if view.key_len < 0:
        totals.null_keys += 1
    else:
        totals.key_bytes += view.key_len
    if view.value_len < 0:
        totals.null_values += 1
    else:
        totals.value_bytes += view.value_len
    _add_headers(totals, cython.address(view))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _add(totals: cython.pointer(Totals), more: cython.pointer(Totals)) -> cython.void:
    totals.key_bytes += more.key_bytes
    totals.value_bytes += more.value_bytes
    totals.null_keys += more.null_keys
    totals.null_values += more.null_values
    totals.headers += more.headers
    totals.header_name_bytes += more.header_name_bytes
    totals.header_value_bytes += more.header_value_bytes
    totals.null_header_values += more.null_header_values


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fits(totals: cython.pointer(Totals), limit: int64_t) -> cython.bint:
    return (
        totals.value_bytes <= limit
        and totals.key_bytes <= limit
        and totals.headers <= limit
        and totals.header_name_bytes <= limit
        and totals.header_value_bytes <= limit
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _measure(
    batch: RecordBatch, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, totals: cython.pointer(Totals), limit: int64_t
) -> cython.Py_ssize_t:
    """Add records to *totals* while they fit within *limit*; return the index of the first that does not."""
    position: cython.Py_ssize_t
    sums: Totals
    for position in range(start, stop):
        sums = totals[0]
        _add_record(cython.address(sums), batch.records_at + batch.index[position])
        if not _fits(cython.address(sums), limit):
            return position
        totals[0] = sums
    return stop


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _place(
    block: cython.pointer(Block),
    parent: cython.pointer(ArrowArray),
    column: cython.pointer(_Bytes),
    rows: int64_t,
    size: int64_t,
    nulls: int64_t,
) -> cython.void:
    """A column of strings or bytes: validity, offsets, data."""
    node: cython.pointer(ArrowArray) = add_child(block, parent, rows, nulls, 0)
    column.valid = add_buffer(block, node, (rows + 7) // 8 if nulls else 0)
    if nulls:
        memset(column.valid, 0, (rows + 7) // 8)
    column.offsets = cython.cast(cython.pointer(int32_t), add_buffer(block, node, (rows + 1) * 4))
    column.offsets[0] = 0
    column.data = add_buffer(block, node, size + 1)  # never a null pointer


# --- a chunk --------------------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class _Chunk:
    """The records that become one Arrow record batch: first gathered, then built."""

    parts: list
    totals: Totals
    rows: cython.Py_ssize_t
    topic_bytes: int64_t
    limit: int64_t
    columns: _Columns

    def __cinit__(self, limit: int64_t) -> None:
        self.limit = limit
        self.parts = []
        memset(cython.address(self.totals), 0, cython.sizeof(Totals))
        memset(cython.address(self.columns), 0, cython.sizeof(_Columns))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take(
        self, topic: bytes, partition: int32_t, batch: RecordBatch, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Add records from *start* on while they fit, at least one to an empty chunk. Return the first not added."""
        sums: Totals = self.totals
        room: int64_t = (self.limit - self.topic_bytes) // len(topic) if topic else self.limit
        end: cython.Py_ssize_t = max(start, min(stop, start + room, start + self.limit - self.rows))
        if end == start and self.rows == 0:
            end = start + 1  # a limit smaller than the topic's name
        if start == 0 and end == batch.count:
            _add(cython.address(sums), batch.totals)
        if start > 0 or end < batch.count or not _fits(cython.address(sums), self.limit):
            sums = self.totals
            with cython.nogil:
                end = _measure(batch, start, end, cython.address(sums), self.limit)
        if end == start and self.rows == 0:
            _add_record(cython.address(sums), batch.records_at + batch.index[start])
            end = start + 1  # larger than the limit: it gets a chunk of its own
        if end > start:
            self.totals = sums
            self.rows += end - start
            self.topic_bytes += (end - start) * len(topic)
            self.parts.append((topic, partition, batch, start, end))
        return end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def block_size(self, headers: cython.bint) -> cython.Py_ssize_t:
        """Bytes for all columns, with room to align each of at most 27 buffers."""
        sums: cython.pointer(Totals) = cython.address(self.totals)
        size: cython.Py_ssize_t = cython.sizeof(Block) + 28 * (ALIGNMENT + 1) + self.rows * 24 + (self.rows + 1) * 12
        size += self.topic_bytes + sums.key_bytes + sums.value_bytes + 2 * (self.rows // 8 + 1)
        if headers:
            size += (self.rows + 1) * 4 + (sums.headers + 1) * 8 + sums.headers // 8 + 1
            size += sums.header_name_bytes + sums.header_value_bytes
        return size

    @cython.cfunc
    def build(self, arrow: object, wanted: object, headers: cython.bint) -> object:
        """The Arrow record batch."""
        root: ArrowArray
        part: tuple
        block: cython.pointer(Block) = cython.cast(cython.pointer(Block), PyMem_RawMalloc(self.block_size(headers)))
        if block == cython.NULL:
            raise MemoryError(f"no memory for columns of {self.rows} records")
        self.lay_out(block, cython.address(root), headers)
        try:
            for part in self.parts:
                self.fill(part[0], part[1], part[2], part[3], part[4])
            return arrow.RecordBatch._import_from_c(cython.cast(uintptr_t, cython.address(root)), wanted)
        finally:
            if root.release != cython.NULL:  # no importer took it over
                root.release(cython.address(root))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def lay_out(self, block: cython.pointer(Block), root: cython.pointer(ArrowArray), headers: cython.bint) -> cython.void:
        """Place every column in the block, in the order of the schema, under *root*."""
        columns: cython.pointer(_Columns) = cython.address(self.columns)
        sums: cython.pointer(Totals) = cython.address(self.totals)
        node: cython.pointer(ArrowArray)
        pair: cython.pointer(ArrowArray)
        rows: int64_t = self.rows
        block.used_nodes = block.used_buffers = block.used_children = 0
        block.free = cython.cast(cython.p_uchar, block + 1)
        add_root(block, root, rows, 0, 8 if headers else 7)
        root.release = release_block
        add_buffer(block, root, 0)
        _place(block, root, cython.address(columns.topic), rows, self.topic_bytes, 0)
        columns.partition = cython.cast(cython.pointer(int32_t), add_numbers(block, root, rows, 4))
        columns.offset = cython.cast(cython.pointer(int64_t), add_numbers(block, root, rows, 8))
        columns.timestamp = cython.cast(cython.pointer(int64_t), add_numbers(block, root, rows, 8))
        columns.timestamp_type = cython.cast(cython.pointer(int32_t), add_numbers(block, root, rows, 4))
        _place(block, root, cython.address(columns.key), rows, sums.key_bytes, sums.null_keys)
        _place(block, root, cython.address(columns.value), rows, sums.value_bytes, sums.null_values)
        if headers:
            node = add_child(block, root, rows, 0, 1)
            add_buffer(block, node, 0)
            columns.headers = cython.cast(cython.pointer(int32_t), add_buffer(block, node, (rows + 1) * 4))
            columns.headers[0] = 0
            pair = add_child(block, node, sums.headers, 0, 2)
            add_buffer(block, pair, 0)
            _place(block, pair, cython.address(columns.header_name), sums.headers, sums.header_name_bytes, 0)
            _place(
                block, pair, cython.address(columns.header_value), sums.headers, sums.header_value_bytes, sums.null_header_values
            )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fill(
        self, topic: bytes, partition: int32_t, batch: RecordBatch, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.int:
        name: cython.p_const_uchar = topic
        size: cython.Py_ssize_t = len(topic)
        first: cython.Py_ssize_t = self.columns.row
        with cython.nogil:
            _fill_records(cython.address(self.columns), batch, start, stop)
            _fill_constants(cython.address(self.columns), first, name, size, partition, batch.stamps)
        return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(column: cython.pointer(_Bytes), row: cython.Py_ssize_t, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.void:
    """Append one value; a size of -1 is null."""
    if size > 0:
        memcpy(column.data + column.used, data, size)
        column.used += cython.cast(int32_t, size)
    if size >= 0 and column.valid != cython.NULL:
        column.valid[row >> 3] |= cython.cast(uint8_t, 1 << (row & 7))
    column.offsets[row + 1] = column.used


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_headers(columns: cython.pointer(_Columns), view: cython.pointer(RecordView)) -> cython.void:
    at: cython.p_const_uchar = view.header
    data: cython.p_const_uchar = cython.NULL
    size: cython.Py_ssize_t = 0
    left: cython.Py_ssize_t = view.headers
    while left > 0:
        at = next_bytes(at, cython.address(data), cython.address(size))
        _put(cython.address(columns.header_name), columns.header, data, size)
        at = next_bytes(at, cython.address(data), cython.address(size))
        _put(cython.address(columns.header_value), columns.header, data, size)
        columns.header += 1
        left -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_records(
    columns: cython.pointer(_Columns), batch: RecordBatch, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.void:
    """Fill the columns that differ from record to record."""
    view: RecordView
    # Copies, which no byte written into a column can change: the compiler keeps them in registers.
    key: _Bytes = columns.key
    value: _Bytes = columns.value
    offset: cython.pointer(int64_t) = columns.offset
    timestamp: cython.pointer(int64_t) = columns.timestamp
    headers: cython.pointer(int32_t) = columns.headers
    records: cython.p_const_uchar = batch.records_at
    index: cython.pointer(uint32_t) = batch.index
    attributes: cython.int = batch.attributes
    base_offset: int64_t = batch.base_offset
    base_timestamp: int64_t = batch.base_timestamp
    latest: int64_t = batch.max_timestamp
    row: cython.Py_ssize_t = columns.row
    position: cython.Py_ssize_t
    for position in range(start, stop):
        view_record(records + index[position], cython.address(view))
        offset[row] = base_offset + view.offset_delta
        timestamp[row] = timestamp_of(attributes, base_timestamp, latest, view.timestamp_delta)
        _put(cython.address(key), row, view.key, view.key_len)
        _put(cython.address(value), row, view.value, view.value_len)
        if headers != cython.NULL:
            if view.headers:
                _fill_headers(columns, cython.address(view))
            headers[row + 1] = cython.cast(int32_t, columns.header)
        row += 1
    columns.key.used = key.used
    columns.value.used = value.used
    columns.row = row


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_constants(
    columns: cython.pointer(_Columns),
    first: cython.Py_ssize_t,
    topic: cython.p_const_uchar,
    size: cython.Py_ssize_t,
    partition: int32_t,
    timestamp_type: int32_t,
) -> cython.void:
    """Fill the columns that are constant within a part, from row *first* on, in loops that vectorize."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = columns.row - first
    used: int32_t = columns.topic.used
    for row in range(rows):
        columns.partition[first + row] = partition
    for row in range(rows):
        columns.timestamp_type[first + row] = timestamp_type
    for row in range(rows):
        columns.topic.offsets[first + row + 1] = used + cython.cast(int32_t, (row + 1) * size)
    _repeat(columns.topic.data + used, topic, size, rows)
    columns.topic.used = used + cython.cast(int32_t, rows * size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _repeat(at: cython.p_uchar, text: cython.p_const_uchar, size: cython.Py_ssize_t, times: cython.Py_ssize_t) -> cython.void:
    """Write *text* that many times, each copy as long as all before it."""
    total: cython.Py_ssize_t = size * times
    done: cython.Py_ssize_t = min(size, total)
    more: cython.Py_ssize_t
    memcpy(at, text, done)
    while done < total:
        more = min(done, total - done)
        memcpy(at + done, at, more)
        done += more


# --- the table ------------------------------------------------------------------------------------------------------


def _arrow() -> object:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            "Arrow columns need pyarrow, which is not installed; install it with pip install 'pyclient-kafka[arrow]'"
        ) from error


def _schema(arrow: object, headers: bool) -> object:
    """Nullable are the fields that a record may lack: key, value, and the value of a header."""
    fields: list = [
        arrow.field("topic", arrow.string(), nullable=False),
        arrow.field("partition", arrow.int32(), nullable=False),
        arrow.field("offset", arrow.int64(), nullable=False),
        arrow.field("timestamp", arrow.timestamp("ms", tz="UTC"), nullable=False),
        arrow.field("timestamp_type", arrow.int32(), nullable=False),
        arrow.field("key", arrow.binary()),
        arrow.field("value", arrow.binary()),
    ]
    if headers:
        pair = arrow.struct([arrow.field("key", arrow.string(), nullable=False), arrow.field("value", arrow.binary())])
        fields.append(arrow.field("headers", arrow.list_(arrow.field("item", pair, nullable=False)), nullable=False))
    return arrow.schema(fields)


def schema(*, headers: bool = True) -> object:
    """The schema of `to_arrow`'s tables.

    Raises:
        ImportError: pyarrow is not installed.
    """
    key = bool(headers)
    if key not in _schemas:
        _schemas[key] = _schema(_arrow(), key)
    return _schemas[key]


def to_arrow(parts: object, *, headers: bool = True, chunk_bytes: int64_t = LARGEST_CHUNK) -> object:
    """Records as a ``pyarrow.Table``, in the order given.

    ``parts`` are ``(topic, partition, batch, start, stop)``: records *start* to *stop* (indexes; a stop of None is the
    end) of a `RecordBatch`. Columns: topic, partition, offset, timestamp (ms, UTC), timestamp_type (as
    `pyclient.records.TimestampType`), key, value and, unless ``headers`` is false, headers. A chunk of the table ends
    before one of its columns holds more than ``chunk_bytes``; a larger record has a chunk for itself. The table keeps
    nothing of the response.

    Raises:
        CorruptRecordError: a batch is damaged, as `RecordBatch.open`.
        ImportError: pyarrow is not installed.
        IndexError: a range is not within its batch.
        ValueError: ``chunk_bytes`` is not 1 to 2**31-1.
    """
    arrow: object = _arrow()
    wanted: object = schema(headers=headers)
    chunk: _Chunk
    batch: RecordBatch
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    chunks: list = []
    if not 1 <= chunk_bytes <= 0x7FFFFFFF:
        raise ValueError(f"chunk_bytes is {chunk_bytes}; Arrow's columns count 1 to {0x7FFFFFFF} bytes")
    chunk = _Chunk(chunk_bytes)
    for topic, partition, taken, start, stop in parts:
        batch = taken
        begin = start
        end = batch.range_end(begin, stop)
        name: bytes = topic.encode()
        while begin < end:
            begin = chunk.take(name, partition, batch, begin, end)
            if begin < end:
                chunks.append(chunk.build(arrow, wanted, headers))
                chunk = _Chunk(chunk_bytes)
    if chunk.rows:
        chunks.append(chunk.build(arrow, wanted, headers))
    return arrow.Table.from_batches(chunks, schema=wanted)
