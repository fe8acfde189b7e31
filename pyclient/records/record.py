# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The record that a consumer returns. Independent of batches, buffers and clients.

A `Record` holds only bytes, text and C integers, so no cycle can go through it and the garbage collector never visits
it: a million kept records cost the collector nothing. That is why key and value must be exact ``bytes``. A
`DecodedRecord` holds what the user's deserializers made, which may be anything, and is tracked like any object.
"""
from types import GenericAlias

import cython
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.pyclient.records.members import key_at, set_member, topic_at, value_at

from pyclient.records import TimestampType

_TYPES: tuple = (TimestampType.NO_TIMESTAMP, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


@cython.cfunc
def _headers_tuple(headers: object) -> tuple:
    """Headers as an immutable tuple of exact `(str, bytes | None)` tuples; None stands for none."""
    pairs: list = []
    for pair in headers:
        name, value = pair
        if type(name) is not str or not (value is None or type(value) is bytes):
            raise TypeError(f"header {len(pairs)} is {pair!r}; a header is a pair (str, bytes | None)")
        pairs.append((name, value))
    return tuple(pairs) if pairs else None


@cython.cfunc
def _bytes_or_none(name: str, value: object) -> bytes:
    if value is not None and type(value) is not bytes:
        raise TypeError(f"{name} is of type {type(value).__name__}; a Record holds bytes or None, a DecodedRecord anything")
    return value


@cython.freelist(64)
@cython.no_gc
@cython.cclass
class Record:
    """One record of a topic, as a consumer returns it. Immutable; compares and hashes by value; pickles.

    ``offset`` is its place in the partition, ``timestamp`` ms since the epoch (-1 when there is none), set by
    whom ``timestamp_type`` says. ``key`` and ``value`` are ``bytes`` or None. ``leader_epoch`` is the epoch of the
    leader that wrote it, None when unknown.

    Raises:
        TypeError: ``key`` or ``value`` is neither bytes nor None, or a header is not a ``(str, bytes | None)`` pair.
    """

    __match_args__ = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")

    def __init__(
        self,
        topic: str,
        partition: int32_t,
        offset: int64_t,
        timestamp: int64_t,
        timestamp_type: object = TimestampType.CREATE_TIME,
        key: object = None,
        value: object = None,
        headers: object = (),
        leader_epoch: object = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._timestamp_type = int(TimestampType(timestamp_type))
        self._key = _bytes_or_none("key", key)
        self._value = _bytes_or_none("value", value)
        self._headers = _headers_tuple(headers)
        self._leader_epoch = -1 if leader_epoch is None else leader_epoch

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def partition(self) -> int:
        """0-based number of the partition."""
        return self._partition

    @property
    def offset(self) -> int:
        """Place of the record in its partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch, -1 when the record has none."""
        return self._timestamp

    @property
    def timestamp_type(self) -> object:
        """The source of the timestamp, as a `pyclient.records.TimestampType`."""
        return _TYPES[self._timestamp_type + 1]

    @property
    def key(self) -> object:
        """The key, or None."""
        return self._key

    @property
    def value(self) -> object:
        """The value, or None (a tombstone in a compacted topic)."""
        return self._value

    @property
    def headers(self) -> list:
        """A new list of ``(str, bytes | None)`` pairs; changing it does not change the record."""
        return [] if self._headers is None else list(self._headers)

    @property
    def leader_epoch(self) -> object:
        """Epoch of the leader that wrote the record, None when unknown."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def __repr__(self) -> str:
        where = f"{type(self).__name__}({self._topic}-{self._partition}@{self._offset}"
        headers = f", headers={list(self._headers)!r}" if self._headers is not None else ""
        return f"{where}, timestamp={self._timestamp}, key={self.key!r}, value={self.value!r}{headers})"

    def __eq__(self, other: object) -> object:
        if type(other) is not type(self):
            return NotImplemented
        return _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __reduce__(self) -> tuple:
        return type(self), _fields(self)

    @classmethod
    def __class_getitem__(cls, types: object) -> object:
        return GenericAlias(cls, types)

    def __copy__(self) -> object:
        return self

    def __deepcopy__(self, memo: object) -> object:
        return self


@cython.cfunc
def blank() -> Record:
    return Record.__new__(Record)


@cython.cfunc
def _fields(record: Record) -> tuple:
    """The fields in the order of the constructor; a decoded record's key and value objects too."""
    decoded_record: DecodedRecord
    fields: tuple = (
        record._topic,
        record._partition,
        record._offset,
        record._timestamp,
        int(record._timestamp_type),
        record._key,
        record._value,
        record._headers if record._headers is not None else (),
        None if record._leader_epoch < 0 else record._leader_epoch,
    )
    if not isinstance(record, DecodedRecord):
        return fields
    decoded_record = record
    return (decoded_record._decoded_key, decoded_record._decoded_value, *fields)


@cython.cclass
class DecodedRecord(Record):
    """A record with deserialized ``key`` and ``value``; ``raw_key`` and ``raw_value`` are the bytes.

    Everything else is as in `Record`. It hashes only if key and value do.
    """

    __match_args__ = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")

    def __init__(self, key: object, value: object, *fields: object, **named: object) -> None:
        if "raw_key" in named:
            named["key"] = named.pop("raw_key")
        if "raw_value" in named:
            named["value"] = named.pop("raw_value")
        Record.__init__(self, *fields, **named)
        self._decoded_key = key
        self._decoded_value = value

    @property
    def key(self) -> object:
        """The key, deserialized from ``raw_key``."""
        return self._decoded_key

    @property
    def value(self) -> object:
        """The value, deserialized from ``raw_value``."""
        return self._decoded_value

    @property
    def raw_key(self) -> object:
        """The key's bytes, or None."""
        return self._key

    @property
    def raw_value(self) -> object:
        """The value's bytes, or None."""
        return self._value

    def __deepcopy__(self, memo: object) -> object:
        import copy

        return decoded(self, copy.deepcopy(self._decoded_key, memo), copy.deepcopy(self._decoded_value, memo))


@cython.ccall
def decoded(record: Record, key: object, value: object) -> DecodedRecord:
    """*record* with its deserialized key and value."""
    made: DecodedRecord = DecodedRecord.__new__(DecodedRecord)
    made._topic = record._topic
    made._partition = record._partition
    made._offset = record._offset
    made._timestamp = record._timestamp
    made._timestamp_type = record._timestamp_type
    made._key = record._key
    made._value = record._value
    made._headers = record._headers
    made._leader_epoch = record._leader_epoch
    made._decoded_key = key
    made._decoded_value = value
    return made


# Members replace the properties above, for speed: these fields are read of every consumed record.
# A DecodedRecord has its own.
set_member(Record, b"topic", topic_at, b"Name of the topic.")
set_member(Record, b"key", key_at, b"The key, or None.")
set_member(Record, b"value", value_at, b"The value, or None (a tombstone in a compacted topic).")
