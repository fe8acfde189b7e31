"""Arrow data to send: any Arrow stream as record batches, their columns in the few types that are encoded.

Checks names and types; an error names the column. Arrow converts the values, a batch at a time, in its own memory.
Arrow trusts the lengths and offsets of data that was made elsewhere. So lengths are compared with the sizes of their
buffers first; what Arrow converts, or shows as Python's objects, is validated wholly; other offsets are compared by
`arrow_columns` when they are read. Memory must not change while Arrow converts it.
Independent of producers.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from pyclient.codec.arrow_columns import Column, PlainColumns, bytes_column
from pyclient.codec.row_hash import digest_rows
from pyclient.records import Headers

LAST_SECOND: Final = (2**63 - 1) // 1000
ROWS: Final = 65_536
"""Rows converted at a time; bounds the memory of a conversion."""
Lists: TypeAlias = tuple[list[Any], list[Any] | None, list[Any] | None, list[Any] | None, list[int] | None, list[int | None] | None]
"""Values, keys, headers, timestamps, topics (0 for none, else the place in `Batch.topics` plus one), partitions."""
_BYTES: Final = "binary or string (also large, view, or a dictionary of them)"


class Names(NamedTuple):
    """The column of each part of a record; None for none."""

    value: str | None
    key: str | None
    headers: str | None
    timestamp: str | None
    topic: str | None
    partition: str | None = None


DEFAULTS: Final[Mapping[str, str]] = {"value": "value", "key": "key", "headers": "headers", "timestamp": "timestamp"}
"""Columns of these names may be absent; one that was named otherwise must be there."""


class Batch:
    """Some rows: their columns as memory (None for those that are absent), or as lists.

    Those in *free* are lists, or become bytes by `encode`, before anything else.
    """

    def __init__(self, arrow: Any, arrays: Mapping[str, Any], rows: int, *, free: Collection[str], as_lists: bool) -> None:
        self._arrow = arrow
        self._arrays = {part: _binary(arrow, array) if as_lists and part in ("value", "key") and part not in free else array
                        for part, array in arrays.items()}
        self.rows = rows
        self._codes, self.topics = _topics(arrow, self._arrays.get("topic"))
        self.codes = _numbers(self._codes)
        """Each row's place in `topics`."""
        self._partitions = _partitions(arrow, self._arrays.get("partition"))
        self.partition = _numbers(self._partitions)
        """Each row's partition; null: the partitioner chooses."""
        self._stamps = _milliseconds(arrow, self._arrays.get("timestamp"))
        self.timestamp = _numbers(self._stamps)
        self._as_lists = as_lists
        if not as_lists:
            self.value, self.key = (None if part in free else _bytes(arrow, self._arrays.get(part)) for part in ("value", "key"))
            self.headers = _headers(arrow, self._arrays.get("headers"))

    def encode(self, part: str, encode: Callable[..., Any]) -> None:
        """Make bytes of the "value" or "key" column: *encode* gets it, and as *places* each row's place among no topic
        and `topics`.
        """
        array = self._arrays[part] = encode(self._arrays[part], places=self._places(0, self.rows))
        if self._as_lists:
            return
        if part == "value":
            self.value = _bytes(self._arrow, array)
        else:
            self.key = _bytes(self._arrow, array)

    def add_headers(self, part: str, added: Sequence[Headers]) -> None:
        """Give each row of the encoded "value" or "key" column that is not null the headers at its place in *added*,
        behind its own. Places are those of `encode`.

        Raises:
            ValueError: the column of headers is damaged.
        """
        if not any(added):
            return
        kind = self._arrow.list_(self._arrow.struct([("key", self._arrow.string()), ("value", self._arrow.binary())]))
        made = [[{"key": key, "value": value} for key, value in pairs] for pairs in added]
        places = [place if is_valid else len(made) for place, is_valid in
                  zip(self._places(0, self.rows) or [0] * self.rows, self._arrays[part].is_valid().to_pylist(), strict=True)]
        own = _own_headers(self._arrow, self._arrays.get("headers"))
        if own is None:
            array = self._arrow.array([*made, None], kind).take(self._arrow.array(places, self._arrow.int32()))
        else:
            array = self._arrow.array([[*(row or ()), *([*made, []][place])] for row, place in zip(own, places, strict=True)], kind)
        self._arrays["headers"] = array
        if not self._as_lists:
            self.headers = _headers(self._arrow, array)

    def lists(self, start: int, stop: int) -> Lists:
        """Rows *start* to *stop*, as Python's objects."""
        count = stop - start

        def items(part: str) -> list[Any] | None:
            return self._arrays[part].slice(start, count).to_pylist() if part in self._arrays else None

        headers = items("headers")
        return (
            items("value") or [None] * count, items("key"),
            headers and [[_pair(each) for each in row or ()] for row in headers],
            None if self._stamps is None else self._stamps.slice(start, count).to_pylist(),
            self._places(start, count),
            None if self._partitions is None else self._partitions.slice(start, count).to_pylist())

    def highest_partition(self, place: int | None = None) -> int:
        """The highest partition that a row names, or a row of the topic at *place* (0: no topic); -1 for none."""
        if self._partitions is None:
            return -1
        compute, numbers = import_module("pyarrow.compute"), self._partitions
        if place is not None and self._codes is not None:
            numbers = numbers.filter(compute.is_null(self._codes) if place == 0 else compute.equal(self._codes, place - 1))
        highest = compute.max(numbers).as_py()
        return -1 if highest is None else int(highest)

    def _places(self, start: int, count: int) -> list[int] | None:
        return None if self._codes is None else [0 if code is None else 1 + code for code in self._codes.slice(start, count).to_pylist()]


def _own_headers(arrow: Any, array: Any) -> list[Any] | None:
    """The rows of a column of headers as Python's objects; None: there are none."""
    if array is None or arrow.types.is_null(array.type):
        return None
    try:
        array.validate(full=True)
    except arrow.ArrowException as error:
        raise ValueError(f"the column of headers is damaged: {error}") from None
    rows: list[Any] = array.to_pylist()
    return rows


def _pair(header: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """A null header has a null name, for which its record is rejected."""
    if header is None:
        return None, None
    value = header["value"]
    return header["key"], value.encode() if isinstance(value, str) else value


def batches(data: Any, names: Names, *, free: Collection[str] = (), encoded: Collection[str] = (), as_lists: bool = False) -> Iterator[Batch]:
    """*data*, some rows at a time. Wrong names or types raise before the first.

    The parts in *free* may be of any type, for somebody makes bytes of them: they are read *as_lists* then. So may
    those in *encoded*, which become bytes by `Batch.encode`; their columns must exist.

    Raises:
        ImportError: pyarrow is not installed.
        TypeError: *data* is no Arrow data, or a column has a type that cannot be sent.
        ValueError: a column is not there, or there twice.
    """
    arrow = _arrow()
    reader = _reader(arrow, data)
    kinds = _checked(arrow, reader.schema, names, {*free, *encoded}, encoded)
    return _read(arrow, reader, kinds, free, encoded, as_lists=as_lists)


def plain_columns(data: Any, names: Names) -> PlainColumns | None:
    """For data that `batches` takes, and later data of an equal schema; None if Arrow has to convert a column, or if
    more than values and keys is sent.
    """
    arrow, places = _arrow(), {}
    if type(data) not in (arrow.Table, arrow.RecordBatch):
        return None
    for part, name in names._asdict().items():
        at = -1 if name is None else data.schema.get_field_index(name)
        if at >= 0:
            kind = data.schema.field(at).type
            if part not in ("value", "key") or not _is_plain(arrow, kind):
                return None
            places[part] = at, kind.id, _is_wide(arrow, kind)
    return PlainColumns(data.schema, places.get("value"), places.get("key"), (arrow.Table, arrow.RecordBatch))


def _arrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            "send_arrow needs pyarrow, which is not installed; install it with pip install 'pyclient-kafka[arrow]'") from error


def _reader(arrow: Any, data: Any) -> Any:
    """Arrow's own objects are read as they are: another import would take the sizes of buffers from their offsets."""
    if isinstance(data, arrow.RecordBatchReader):
        return data
    if isinstance(data, arrow.Table):
        return data.to_reader()
    if not isinstance(data, arrow.RecordBatch) and hasattr(data, "__arrow_c_stream__"):
        return arrow.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = data if isinstance(data, arrow.RecordBatch) else arrow.record_batch(data)
        return arrow.RecordBatchReader.from_batches(batch.schema, [batch])
    raise TypeError(f"{type(data).__name__} is no Arrow data: give a table, a record batch, or anything with __arrow_c_stream__")


def _checked(arrow: Any, schema: Any, names: Names, free: Collection[str], encoded: Collection[str]) -> dict[str, str]:
    """The existing columns by purpose, with checked types."""
    found: dict[str, str] = {}
    for part, name in names._asdict().items():
        if name is None:
            continue
        indexes = schema.get_all_field_indices(name)
        if len(indexes) > 1:
            raise ValueError(f"the data has {len(indexes)} columns named {name!r}; it must have one to be the records' {part}")
        if indexes:
            if part not in free:
                _CHECKS[part](arrow, name, schema.field(indexes[0]).type)
            found[part] = name
        elif name != DEFAULTS.get(part) or part in encoded:
            raise ValueError(f"the data has no column {name!r} for the records' {part}; it has {', '.join(map(repr, schema.names))}")
    if "value" not in found and "key" not in found:
        raise ValueError(f"the data has neither a column {names.value!r} of values nor {names.key!r} of keys; it has "
                         f"{', '.join(map(repr, schema.names)) or 'none'}: name them with value=... and key=...")
    return found


def _read(arrow: Any, reader: Any, kinds: Mapping[str, str], free: Collection[str], encoded: Collection[str], *, as_lists: bool) -> Iterator[Batch]:
    for whole in reader:
        rows = whole.num_rows
        arrays = {part: _sound(arrow, name, whole.column(name), rows, whole=as_lists or part == "topic" or part in encoded) for part, name in kinds.items()}
        for start in range(0, rows, ROWS):
            parts = {part: array.slice(start, ROWS) for part, array in arrays.items()}
            yield Batch(arrow, parts, min(ROWS, rows - start), free={*free, *encoded}, as_lists=as_lists)


def _sound(arrow: Any, name: str, array: Any, rows: int, *, whole: bool) -> Any:
    """*array*, whose buffers hold as many rows as they should; checked value by value where Arrow will read them."""
    if _starts_before(arrow, array):
        raise ValueError(f"column {name!r} is damaged: it starts before its memory")
    try:
        array.validate(full=whole or _is_converted(arrow, array.type))
    except arrow.ArrowException as error:
        raise ValueError(f"column {name!r} is damaged: {error}") from None
    if len(array) != rows:
        raise ValueError(f"column {name!r} is damaged: it has {len(array)} rows, its batch has {rows}")
    return array


def _starts_before(arrow: Any, array: Any) -> bool:
    """Whether it, or an array within it, begins before its buffers: Arrow takes such an offset from others as it is."""
    types, within = arrow.types, []
    if types.is_dictionary(array.type):
        within = [array.indices, array.dictionary]
    elif types.is_list(array.type) or types.is_large_list(array.type):
        within = [array.values]
    elif types.is_map(array.type):
        within = [array.keys, array.items]
    elif types.is_struct(array.type):
        within = [array.field(at) for at in range(array.type.num_fields)]
    return array.offset < 0 or any(_starts_before(arrow, each) for each in within)


def digest(batch: Any, shares: int) -> tuple[int, int, int]:
    """The digest of a batch of rows that are to be sent, their columns named as parts of a record, and the lowest and
    highest share among *shares* that a row belongs to; see `row_hash`.

    Raises:
        ValueError: the offsets of a column are damaged.
    """
    arrow = _arrow()
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    key, value, topic = (_bytes(arrow, arrays.get(name)) for name in ("key", "value", "topic"))
    numbers = (_numbers(array.cast(arrow.int64())) for array in map(arrays.get, ("partition", "timestamp")) if array is not None)
    others = tuple(each for each in (topic, *numbers) if each is not None)
    return digest_rows(batch.num_rows, shares, key, value, others, _headers(arrow, arrays.get("headers")))


# --- types ----------------------------------------------------------------------------------------------------------


def _plain(arrow: Any, kind: Any) -> Any:
    return kind.value_type if arrow.types.is_dictionary(kind) else kind


def _is_text(arrow: Any, kind: Any) -> bool:
    kind, types = _plain(arrow, kind), arrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(arrow: Any, kind: Any) -> bool:
    plain, types = _plain(arrow, kind), arrow.types
    return _is_text(arrow, kind) or bool(
        types.is_binary(plain) or types.is_large_binary(plain) or types.is_binary_view(plain)
        or types.is_fixed_size_binary(plain) or types.is_null(plain))


def _is_plain(arrow: Any, kind: Any) -> bool:
    """Bytes or text behind offsets, which `arrow_columns` reads."""
    types = arrow.types
    return bool(types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind))


def _is_wide(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_large_binary(kind) or arrow.types.is_large_string(kind))


def _is_converted(arrow: Any, kind: Any) -> bool:
    """Bytes or text that Arrow copies, also within lists of headers."""
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        pair = kind.value_type
        return any(_is_converted(arrow, pair.field(index).type) for index in range(pair.num_fields))
    return _is_bytes(arrow, kind) and not _is_plain(arrow, kind)


def _check_bytes(arrow: Any, name: str, kind: Any) -> None:
    if not _is_bytes(arrow, kind):
        raise TypeError(f"column {name!r} is {kind}; keys and values are {_BYTES}: encode it first")


def _check_topic(arrow: Any, name: str, kind: Any) -> None:
    if not _is_text(arrow, kind):
        raise TypeError(f"column {name!r} is {kind}; a column of topics is string (also large, view, or a dictionary of them)")


def _check_timestamp(arrow: Any, name: str, kind: Any) -> None:
    types = arrow.types
    if not (types.is_timestamp(kind) or types.is_int64(kind) or types.is_null(kind)):
        raise TypeError(f"column {name!r} is {kind}; timestamps are Arrow timestamps of any unit, or int64 ms since the epoch")


def _check_partition(arrow: Any, name: str, kind: Any) -> None:
    types = arrow.types
    if not (types.is_integer(kind) or types.is_null(kind)) or types.is_uint64(kind):
        raise TypeError(f"column {name!r} is {kind}; partitions are integers of at most int64: cast it")


def _check_headers(arrow: Any, name: str, kind: Any) -> None:
    types = arrow.types
    if types.is_null(kind):
        return
    pair = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else None
    fields = {pair.field(index).name: pair.field(index).type for index in range(pair.num_fields)} if pair is not None and types.is_struct(pair) else {}
    if fields.keys() != {"key", "value"} or not _is_text(arrow, fields["key"]) or not _is_bytes(arrow, fields["value"]):
        raise TypeError(f"column {name!r} is {kind}; headers are list<struct<key: string, value: binary>>, as Records.to_arrow() gives them")


_CHECKS: Final = {
    "value": _check_bytes, "key": _check_bytes, "headers": _check_headers, "timestamp": _check_timestamp, "topic": _check_topic,
    "partition": _check_partition}


# --- addresses ------------------------------------------------------------------------------------------------------


def _address(buffer: Any) -> int:
    return 0 if buffer is None else int(buffer.address)


def _validity(array: Any) -> int:
    return _address(array.buffers()[0]) if array.null_count else 0


def _bytes(arrow: Any, array: Any, shift: int = 0) -> Column | None:
    """A column of bytes whose first row has the number *shift*."""
    if array is None:
        return None
    if not _is_plain(arrow, array.type):
        array = _binary(arrow, array)
    return bytes_column(array, shift, _is_wide(arrow, array.type))


def _binary(arrow: Any, array: Any) -> Any:
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(arrow.large_binary())


def _milliseconds(arrow: Any, array: Any) -> Any:
    if array is None:
        return None
    if arrow.types.is_timestamp(array.type) and array.type.unit == "s":
        array = _countable(arrow, array)
    if arrow.types.is_timestamp(array.type):
        array = array.cast(arrow.timestamp("ms", array.type.tz), safe=False)  # truncates finer units
    return array.cast(arrow.int64())


def _countable(arrow: Any, seconds: Any) -> Any:
    """A time beyond 64 bits of milliseconds becomes the earliest one, which is refused; it must not wrap."""
    compute = import_module("pyarrow.compute")
    counts = seconds.cast(arrow.int64())
    countable = compute.and_(compute.less_equal(counts, LAST_SECOND), compute.greater_equal(counts, -LAST_SECOND))
    return compute.if_else(countable, counts, -LAST_SECOND).cast(seconds.type)


def _numbers(array: Any) -> Column | None:
    if array is None:
        return None
    return Column(array, len(array), array.offset, _validity(array), 0, _address(array.buffers()[1]))


def _partitions(arrow: Any, array: Any) -> Any:
    return None if array is None else array.cast(arrow.int64())


def _topics(arrow: Any, array: Any) -> tuple[Any, tuple[str, ...]]:
    if array is None:
        return None, ()
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    coded = array.cast(arrow.string()).dictionary_encode()
    return coded.indices, tuple(coded.dictionary.to_pylist())


def _headers(arrow: Any, array: Any) -> Column | None:
    if array is None or arrow.types.is_null(array.type):
        return None
    pairs = array.values
    first, last = (array.offsets[at].as_py() for at in (0, -1)) if len(array) else (0, 0)
    first = min(max(first, 0), len(pairs))
    pairs = pairs.slice(first, max(last - first, 0))
    items = Column(pairs, len(pairs), pairs.offset - first, _validity(pairs), 0, 0)
    key, value = (_bytes(arrow, pairs.field(name), shift=first) for name in ("key", "value"))
    return Column(array, len(array), array.offset, _validity(array), _address(array.buffers()[1]), 0,
                  wide=arrow.types.is_large_list(array.type), low=first, high=first + len(pairs), items=items, key=key, value=value)
