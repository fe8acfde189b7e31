# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The records of a bulk, a chunk at a time, as pointers into the user's lists or Arrow buffers.

One thread loads a chunk; the Accumulator then writes many of its records while it holds its lock once. A record that
cannot be sent is rejected under its index, the others are sent.
Independent of batches, memory and partitions' queues.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.mem import PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
from cython.cimports.libc.stdint import INT32_MAX, INT32_MIN, int32_t, int64_t
from cython.cimports.pyclient.codec.arrow_columns import DAMAGED, Column, damage, header_section, is_null, number_at, section_bound, value_at
from cython.cimports.pyclient.codec.encode import put_record, record_bound

from pyclient.buffers.deliveries import reject_rows
from pyclient.errors import KafkaError, RecordRejectedError

CHUNK = 1024
"""Records loaded at a time: few enough to stay in the CPU cache until they are written."""

_CHUNK = cython.declare(cython.Py_ssize_t, 1024)
STICKY = cython.declare(cython.int, -1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bound_of(row: cython.pointer(Row)) -> cython.Py_ssize_t:
    return record_bound(row.key_len, row.value_len, row.headers_len)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill(rows: cython.pointer(Row), at: cython.Py_ssize_t, end: cython.Py_ssize_t, into: cython.pointer(Filling)) -> cython.Py_ssize_t:
    first: cython.pointer(Row) = cython.address(rows[at])
    row: cython.pointer(Row)
    need: cython.Py_ssize_t
    delta: int64_t
    start: cython.p_uchar
    began: cython.Py_ssize_t = at
    into.written = 0
    while at < end:
        row = cython.address(rows[at])
        need = record_bound(row.key_len, row.value_len, row.headers_len)
        delta = row.timestamp - into.base_timestamp
        if at > began and (row.partition != first.partition or row.topic != first.topic or row.number - first.number != at - began
                           or into.limit - into.at < need or delta > INT32_MAX or delta < INT32_MIN
                           or into.written >= into.budget or into.count == INT32_MAX):
            break
        start = into.at
        into.at = put_record(start, delta, into.count, row.key, row.key_len, row.value, row.value_len, row.headers, row.headers_len)
        into.largest = max(into.largest, into.at - start)
        into.latest = max(into.latest, row.timestamp)
        into.count += 1
        into.written += need
        at += 1
    return at


def no_partition(topic: str, count: cython.Py_ssize_t, partition: object):
    """The error for a row that names a partition that its topic does not have."""
    return IndexError(f"topic {topic} has {count} partitions, numbered from 0; there is no {partition} (null lets the partitioner choose)")


def note_interruption(stopped: BaseException, reached: object):
    """Note in the error that ended a bulk which record it had reached, if that is not the first."""
    if reached:
        stopped.add_note(f"The bulk was interrupted at the record at index {reached}: the records before it are queued and will be delivered, "
                         "this one and those after it are not. flush() waits for them and raises what failed.")


@cython.cclass
class Rows:
    """A chunk of records to append, in order. The fields are declared in rows.pxd.

    *topics* are queues, or the error why a topic has none, and *names* theirs. ``convert(what, item)`` returns the
    bytes, partition or timestamp of an item that is not one yet, or raises. *key_hash* is a partitioner's capsule
    (`pyclient.plugins.HashesKeys`), which chooses for keyed records. ``on_rejected(error)`` is called for each record
    that is rejected.
    """

    def __init__(self, deliveries: Deliveries, topics: list, names: list, convert: object, key_hash: object = None, on_rejected: object = None):
        self.deliveries = deliveries
        self.topics = topics
        self._names = names
        self._convert = convert
        self._on_rejected = on_rejected
        self._hash_owner = key_hash
        if key_hash is not None:
            self._hash = cython.cast(KeyHash, PyCapsule_GetPointer(key_hash, b"pyclient.key_hash"))

    def __cinit__(self):
        self.rows = cython.cast(cython.pointer(Row), PyMem_RawMalloc(_CHUNK * cython.sizeof(Row)))
        if self.rows == cython.NULL:
            raise MemoryError("no memory for the records of a bulk")

    def __dealloc__(self):
        PyMem_RawFree(self.rows)
        PyMem_RawFree(self._sections)

    @property
    def position(self):
        """The index in the bulk of the next record to append; None when none is left."""
        return self.first + self.rows[self.at].number if self.at < self.end else None

    @property
    def topic(self):
        """The `TopicQueues` of the next record."""
        return self.topics[self.rows[self.at].topic]

    def reject(self, error: object):
        """Skip the next record: it is not queued, because of *error*."""
        self.reject_row(self.rows[self.at].number, self.rows[self.at].topic, error)
        self.at += 1

    @cython.cfunc
    def reject_row(self, number: int64_t, topic: int32_t, error: object) -> object:
        """The record with index *number* in the chunk is not queued, because of *error*."""
        row: int64_t = self.first + number
        if not isinstance(error, KafkaError):
            wrapped = RecordRejectedError(f"record {row} was not queued: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        reject_rows(self.deliveries, row, 1, self._names[topic], error)
        self.decided += 1
        if self._on_rejected is not None:
            self._on_rejected(error)

    def load(self, first: int64_t, values: list, keys: list | None, headers: list | None, stamps: list | None,
             partitions: list | None, topic_indexes: list | None, partition: int32_t, now: int64_t):
        """Load the next chunk, at most `CHUNK` records. Converted items are stored in the lists passed in.

        *headers* are header sections, *topic_indexes* index `topics`. Without *partitions*,
        *partition* is for all; -1 leaves the choice to the key's hash or the sticky partition.
        """
        number: cython.Py_ssize_t
        column: list
        for column in (keys, headers, stamps, partitions, topic_indexes):
            if column is not None and len(column) != len(values):  # they are read below without bounds checks
                raise ValueError(f"a chunk has {len(values)} values and {len(column)} of something else")
        self._begin(first, len(values))
        self._kept = (values, keys, headers)
        for number in range(len(values)):
            try:
                self.load_item(number, values, keys, headers, stamps, partitions, topic_indexes, partition, now)
            except Exception as error:  # noqa: BLE001 serializers and partitioners are user code
                self.reject_row(number, self.rows[self.end].topic, error)

    def load_columns(self, first: int64_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, value: Column | None, key: Column | None,
                     headers: Column | None, timestamp: Column | None, topics: Column | None, partitions: Column | None, now: int64_t):
        """Load the next chunk from rows *start* to *stop* of Arrow columns; None for absent ones."""
        row: cython.pointer(Row)
        at: cython.Py_ssize_t
        topic: int32_t = 0
        used: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t = 0
        self._begin(first, stop - start)
        self._kept = (value, key, headers)
        if headers is not None:
            room = section_bound(headers, start, stop)
            self._make_room(room)
        for at in range(start, stop):
            row = self.next_row(at - start)
            try:
                topic = 0
                if topics is not None:
                    topic = 0 if is_null(topics, at) else 1 + cython.cast(cython.pointer(int32_t), topics.data)[at + topics.offset]
                row.topic = topic
                row.value = value_at(value, at, cython.address(row.value_len))
                row.key = value_at(key, at, cython.address(row.key_len))
                if row.value_len == DAMAGED or row.key_len == DAMAGED:
                    raise damage("value" if row.value_len == DAMAGED else "key")
                row.headers, row.headers_len = cython.NULL, -1
                if headers is not None:
                    row.headers = self._sections + used
                    row.headers_len = header_section(headers, at, self._sections + used, room - used)
                    used += row.headers_len
                row.timestamp = now
                if timestamp is not None:
                    if not is_null(timestamp, at):
                        row.timestamp = cython.cast(cython.pointer(int64_t), timestamp.data)[at + timestamp.offset]
                    self.deliveries.keep_stamp(first + at - start, row.timestamp)
                    if row.timestamp < 0:
                        self._convert("timestamp", row.timestamp)  # raises the error with its text
                if partitions is None or is_null(partitions, at):
                    self.set_partition(row, STICKY)
                else:
                    self.set_given_partition(row, number_at(partitions, at))
                self.end += 1
            except Exception as error:  # noqa: BLE001 only this record is affected
                self.reject_row(at - start, topic, error)

    # ---- inside -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def bytes_left(self) -> cython.Py_ssize_t:
        row: cython.pointer(Row) = cython.address(self.rows[self.at])
        size: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        for at in range(self.at, self.end):
            if self.rows[at].partition == row.partition and self.rows[at].topic == row.topic:
                size += bound_of(cython.address(self.rows[at]))
        return size

    def _begin(self, first: int64_t, loaded: cython.Py_ssize_t):
        self.first, self.loaded = first, loaded
        self.at = self.end = 0
        self._current_topic = -1  # a topic may have got more partitions since the last chunk

    def _make_room(self, size: cython.Py_ssize_t):
        if size > self._sections_room:
            more = cython.cast(cython.p_uchar, PyMem_RawRealloc(self._sections, size))
            if more == cython.NULL:
                raise MemoryError(f"no memory for {size} B of headers")
            self._sections, self._sections_room = more, size

    @cython.cfunc
    def next_row(self, number: cython.Py_ssize_t) -> cython.pointer(Row):
        row: cython.pointer(Row) = cython.address(self.rows[self.end])
        row.number = cython.cast(int32_t, number)
        return row

    def _select_topic(self, number: int32_t):
        topic = self.topics[number]
        if isinstance(topic, BaseException):
            raise topic
        self._count = len(topic)
        self._current_topic = number

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def set_partition(self, row: cython.pointer(Row), partition: int32_t) -> cython.int:
        """Store the record's partition; for *partition* -1 the key's hash chooses if there is one."""
        if row.topic != self._current_topic:
            self._select_topic(row.topic)
        row.partition = partition
        if partition < 0 and row.key_len >= 0 and self._hash != cython.NULL:
            row.partition = cython.cast(int32_t, self._hash(row.key, row.key_len) % cython.cast(cython.uint, self._count))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def set_given_partition(self, row: cython.pointer(Row), partition: int64_t) -> cython.int:
        """Store the partition that a row of Arrow data names, which may be any number."""
        if row.topic != self._current_topic:
            self._select_topic(row.topic)
        if not 0 <= partition < self._count:
            raise no_partition(self._names[row.topic], self._count, partition)
        row.partition = cython.cast(int32_t, partition)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read_item(self, items: list, number: cython.Py_ssize_t, what: str, data: cython.pointer(cython.p_const_uchar),
                  size: cython.pointer(cython.Py_ssize_t)) -> cython.int:
        item: object = items[number]
        data[0] = cython.NULL
        size[0] = -1
        if item is None:
            return 0
        if type(item) is not bytes:
            item = items[number] = self._convert(what, item)
            if item is None:
                return 0
        data[0] = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(item))
        size[0] = PyBytes_GET_SIZE(item)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load_item(self, number: cython.Py_ssize_t, values: list, keys: list, headers: list, stamps: list, partitions: list,
                  topic_indexes: list, partition: int32_t, now: int64_t) -> cython.int:
        row: cython.pointer(Row) = self.next_row(number)
        row.topic = 0 if topic_indexes is None else topic_indexes[number]
        row.timestamp = now
        if stamps is not None:
            stamp = self._convert("timestamp", stamps[number])
            row.timestamp = now if stamp < 0 else stamp
            self.deliveries.keep_stamp(self.first + number, row.timestamp)
        self.read_item(values, number, "value", cython.address(row.value), cython.address(row.value_len))
        row.key, row.key_len = cython.NULL, -1
        if keys is not None:
            self.read_item(keys, number, "key", cython.address(row.key), cython.address(row.key_len))
        row.headers, row.headers_len = cython.NULL, -1
        if headers is not None:
            self.read_item(headers, number, "headers", cython.address(row.headers), cython.address(row.headers_len))
        self.set_partition(row, partition if partitions is None else self._convert("partition", partitions[number]))
        self.end += 1
        return 0
