# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""Records as Arrow columns: from the batches' bytes straight into Arrow's buffers, with no Python object per record.

Two steps per chunk: add up what its records hold, which an opened batch already knows when it is taken whole; then
allocate each column's buffers once and fill them in one pass without the GIL. Arrow's string and binary columns count
in 32 bits, so a chunk ends before one of them would hold more than `chunk_bytes`.
Knows batches and pyarrow (imported when asked for), nothing of consumers.
"""
import cython
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uintptr_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.pyclient.codec.batches import RecordBatch, Totals
from cython.cimports.pyclient.codec.parse import RecordView, next_bytes, view_record

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


# --- what is in it --------------------------------------------------------------------------------------------------


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
    """Add records to *totals* while they fit within *limit*; give the index of the first that does not."""
    position: cython.Py_ssize_t
    sums: Totals
    for position in range(start, stop):
        sums = totals[0]
        _add_record(cython.address(sums), batch.records_at + batch.index[position])
        if not _fits(cython.address(sums), limit):
            return position
        totals[0] = sums
    return stop


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
    arrow: object
    columns: _Columns
    buffers: list

    def __cinit__(self, arrow: object, limit: int64_t) -> None:
        self.arrow = arrow
        self.limit = limit
        self.parts = []
        self.buffers = []
        memset(cython.address(self.totals), 0, cython.sizeof(Totals))
        memset(cython.address(self.columns), 0, cython.sizeof(_Columns))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take(
        self, topic: bytes, partition: int32_t, batch: RecordBatch, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Take in records from *start* on while they fit, at least one into an empty chunk; give the first left out."""
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
            end = start + 1  # larger than the limit by itself: it has the chunk for itself
        if end > start:
            self.totals = sums
            self.rows += end - start
            self.topic_bytes += (end - start) * len(topic)
            self.parts.append((topic, partition, batch, start, end))
        return end

    @cython.cfunc
    def allocate(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Memory of Arrow's pool, remembered in `buffers`."""
        buffer: object = self.arrow.allocate_buffer(size)
        address: uintptr_t = buffer.address
        self.buffers.append(buffer)
        return cython.cast(cython.p_uchar, address)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def prepare(self, column: cython.pointer(_Bytes), rows: int64_t, size: int64_t, nulls: int64_t) -> cython.int:
        """Buffers of a column of strings or bytes, in the order Arrow names them: validity, offsets, data."""
        if nulls:
            column.valid = self.allocate((rows + 7) // 8)
            memset(column.valid, 0, (rows + 7) // 8)
        else:
            self.buffers.append(None)
        column.offsets = cython.cast(cython.pointer(int32_t), self.allocate((rows + 1) * cython.sizeof(int32_t)))
        column.offsets[0] = 0
        column.data = self.allocate(size)
        return 0

    @cython.cfunc
    def taken(self, kind: object, count: cython.Py_ssize_t, rows: int64_t, nulls: int64_t) -> object:
        """An Arrow array of the next *count* buffers: three for strings and bytes, two for numbers."""
        buffers: list = self.buffers[:count]
        del self.buffers[:count]
        return self.arrow.Array.from_buffers(kind, rows, buffers, nulls)

    @cython.cfunc
    def numbers(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Buffers of a column of numbers without nulls, *size* bytes each."""
        self.buffers.append(None)
        return self.allocate(self.rows * size)

    def build(self, wanted: object, headers: bool) -> object:
        """The Arrow record batch."""
        columns: cython.pointer(_Columns) = cython.address(self.columns)
        sums: cython.pointer(Totals) = cython.address(self.totals)
        part: tuple
        self.prepare(cython.address(columns.topic), self.rows, self.topic_bytes, 0)
        columns.partition = cython.cast(cython.pointer(int32_t), self.numbers(4))
        columns.offset = cython.cast(cython.pointer(int64_t), self.numbers(8))
        columns.timestamp = cython.cast(cython.pointer(int64_t), self.numbers(8))
        columns.timestamp_type = cython.cast(cython.pointer(int32_t), self.numbers(4))
        self.prepare(cython.address(columns.key), self.rows, sums.key_bytes, sums.null_keys)
        self.prepare(cython.address(columns.value), self.rows, sums.value_bytes, sums.null_values)
        if headers:
            self.prepare(cython.address(columns.header_name), sums.headers, sums.header_name_bytes, 0)
            self.prepare(cython.address(columns.header_value), sums.headers, sums.header_value_bytes, sums.null_header_values)
            columns.headers = cython.cast(cython.pointer(int32_t), self.allocate((self.rows + 1) * 4))
            columns.headers[0] = 0
        for part in self.parts:
            self.fill(part[0], part[1], part[2], part[3], part[4])
        return self.arrow.RecordBatch.from_arrays(self.arrays(wanted, headers), schema=wanted)

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
            _fill_constants(cython.address(self.columns), first, name, size, partition, 1 if batch.attributes & 8 else 0)
        return 0

    @cython.cfunc
    def arrays(self, wanted: object, headers: bool) -> list:
        """The columns, from the buffers in the order in which `build` made them."""
        sums: cython.pointer(Totals) = cython.address(self.totals)
        types: list = wanted.types
        made: list = [
            self.taken(types[0], 3, self.rows, 0),
            self.taken(types[1], 2, self.rows, 0),
            self.taken(types[2], 2, self.rows, 0),
            self.taken(types[3], 2, self.rows, 0),
            self.taken(types[4], 2, self.rows, 0),
            self.taken(types[5], 3, self.rows, sums.null_keys),
            self.taken(types[6], 3, self.rows, sums.null_values),
        ]
        if headers:
            pair = types[7].value_type
            names = self.taken(types[0], 3, sums.headers, 0)
            values = self.taken(types[6], 3, sums.headers, sums.null_header_values)
            pairs = self.arrow.Array.from_buffers(pair, sums.headers, [None], 0, children=[names, values])
            made.append(self.arrow.Array.from_buffers(types[7], self.rows, [None, self.buffers.pop()], 0, children=[pairs]))
        return made


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
    """What differs from record to record."""
    view: RecordView
    row: cython.Py_ssize_t = columns.row
    position: cython.Py_ssize_t
    for position in range(start, stop):
        view_record(batch.records_at + batch.index[position], cython.address(view))
        columns.offset[row] = batch.base_offset + view.offset_delta
        columns.timestamp[row] = batch.timestamp_of(view.timestamp_delta)
        _put(cython.address(columns.key), row, view.key, view.key_len)
        _put(cython.address(columns.value), row, view.value, view.value_len)
        if columns.headers != cython.NULL:
            if view.headers:
                _fill_headers(columns, cython.address(view))
            columns.headers[row + 1] = cython.cast(int32_t, columns.header)
        row += 1
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
    """What is the same in all records of a part, from row *first* to the last one filled: tight loops of their own."""
    row: cython.Py_ssize_t
    for row in range(first, columns.row):
        columns.partition[row] = partition
    for row in range(first, columns.row):
        columns.timestamp_type[row] = timestamp_type
    for row in range(first, columns.row):
        memcpy(columns.topic.data + columns.topic.used, topic, size)
        columns.topic.used += cython.cast(int32_t, size)
        columns.topic.offsets[row + 1] = columns.topic.used


# --- the table ------------------------------------------------------------------------------------------------------


def _arrow() -> object:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            "Arrow columns need pyarrow, which is not installed; install it with pip install 'pyclient-kafka[arrow]'"
        ) from error


def _schema(arrow: object, headers: bool) -> object:
    """What is nullable is what a record may lack: key, value, and the value of a header."""
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
    nothing of the reply.

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
    chunk = _Chunk(arrow, chunk_bytes)
    for topic, partition, taken, start, stop in parts:
        batch = taken
        begin = start
        end = batch.range_end(begin, stop)
        name: bytes = topic.encode()
        while begin < end:
            begin = chunk.take(name, partition, batch, begin, end)
            if begin < end:
                chunks.append(chunk.build(wanted, headers))
                chunk = _Chunk(arrow, chunk_bytes)
    if chunk.rows:
        chunks.append(chunk.build(wanted, headers))
    return arrow.Table.from_batches(chunks, schema=wanted)
