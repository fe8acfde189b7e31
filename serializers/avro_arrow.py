"""Whole columns of Avro data: `AvroDecoder` for `Records.to_arrow`, `AvroEncoder` for `Producer.send_arrow`.

Rows with one writer's schema are read together by compiled code, without a Python object per value. Where a pair of
schemas allows no such plan, fastavro reads row by row. Needs the extras ``avro`` and ``arrow``.
"""
from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from pyclient.codec.avro_columns import AvroColumns, prefix_runs
from pyclient.codec.avro_defaults import number
from pyclient.codec.avro_input import AvroInput, MisfitError
from pyclient.codec.avro_program import AvroNode, arrow_type, finished, node_of
from pyclient.codec.avro_resolution import Plan, UnresolvedError, plan_of
from pyclient.codec.avro_rows import AvroRows
from pyclient.codec.avro_scan_program import ScanProgram
from pyclient.errors import ConfigurationError, KafkaError, SchemaRegistryError, SerializationError
from pyclient.records import Headers, TopicPartition
from pyclient.serializers.avro_codec import AvroWriter, ColumnSource, Prefix, is_bytes, reader_of
from pyclient.serializers.avro_schema import AvroSchema

if TYPE_CHECKING:
    from pyclient.records.record import Record
    from pyclient.serializers.avro import AvroSerde
    from pyclient.serializers.registry_avro import AvroRegistrySerde

RecordAt: TypeAlias = "Callable[[int], Record]"
MEMORY: Final = 2**31
GUID_SIZE: Final = 16


class AvroDecoder:
    """Decodes keys or values of `Records.to_arrow` to Arrow columns: a record becomes a struct, a null stays null.

    *serde* says which schema data was written with and which one it is read as, as for single records. Without a
    reader's schema all rows must have one writer's schema, or schemas of the same columns. A union must be of null and
    one other type, and no type may contain itself. In an async program call `Records.to_arrow` in a thread, which may
    ask the registry: ``await asyncio.to_thread(records.to_arrow, value=decoder)``.

    Args:
        serde: an `AvroSerde` or `AvroRegistrySerde`.
        on_error: ``raise`` (default): a row that cannot be decoded raises SerializationError with its topic, partition
            and offset. ``null``: it is null, and a column ``value_error`` or ``key_error`` says why.
        memory_limit_bytes: what the columns of one writer's schema in a table may take; a row that exceeds it cannot
            be decoded. Null structs of a hostile payload can take more than the payload.

    Raises:
        ConfigurationError: an argument is wrong, or the reader's schema has no Arrow columns.
    """

    def __init__(self, serde: AvroSerde | AvroRegistrySerde, *, on_error: Literal["raise", "null"] = "raise",
                 memory_limit_bytes: int = MEMORY) -> None:
        _check_serde(serde)
        if on_error not in ("raise", "null"):
            raise ConfigurationError(f"on_error = {on_error!r}: expected 'raise' or 'null'", option="on_error")
        if memory_limit_bytes <= 0:
            raise ConfigurationError(f"memory_limit_bytes = {memory_limit_bytes}: expected a positive number", option="memory_limit_bytes")
        self._serde: Final = serde
        self.keeps_errors: Final = on_error == "null"
        self._memory: Final = memory_limit_bytes
        self._sides: dict[bool, _Side] = {}

    def decode(self, data: Any, headers: Any, record: RecordAt, *, is_key: bool) -> tuple[Any, Any]:
        """The column of *data*, a pyarrow BinaryArray with a row for each record, and with ``on_error="null"`` a column
        of error messages.

        *headers* is the column of the records' headers; *record* returns the record of a row, for errors.

        Raises:
            SerializationError: with ``on_error="raise"``, a row cannot be decoded; in any case, the registry does not
                answer or the rows have no type in common.
        """
        side = self._sides.get(is_key)
        if side is None:
            side = self._sides[is_key] = _Side(_source(self._serde, is_key=is_key))
        work = _Decoding(side, data, record, self._memory, keeps_errors=self.keeps_errors)
        work.read(headers)
        return work.column(), work.errors()


def _check_serde(serde: object) -> None:
    if not hasattr(serde, "column_source"):
        raise ConfigurationError(f"serde: expected an AvroSerde or AvroRegistrySerde, got {type(serde).__name__}")


def _source(serde: Any, *, is_key: bool) -> ColumnSource:
    role = serde
    if hasattr(serde, "configure"):
        role = copy.copy(serde)
        role.configure(is_key=is_key)
    source: ColumnSource = role.column_source()
    return source


class _Way(NamedTuple):
    """How data of one writer's schema is read: by *plan*, after *translate* wrote each row again as the plan's node.

    *wrong* says what is wrong with a row that the columns refuse, as for single records.
    """

    name: str
    plan: Plan
    translate: Callable[[bytes], bytes] | None
    wrong: Callable[[bytes], str]


class _Side:
    """What is known of keys or of values: the ways by prefix, shared by all tables."""

    def __init__(self, source: ColumnSource) -> None:
        self.source = source
        self._ways: dict[Prefix, _Way] = {}
        self._wanted: tuple[AvroSchema, AvroNode] | None = None

    def wanted(self) -> tuple[AvroSchema, AvroNode] | None:
        """The reader's schema and its columns."""
        if self._wanted is None and (schema := self.source.reader()) is not None:
            self._wanted = schema, node_of(schema.parsed)
        return self._wanted

    def way(self, topic: str, prefix: Prefix) -> _Way:
        """How data that begins with *prefix* is read.

        Raises:
            SerializationError: its schema is unknown, or has no Arrow columns.
        """
        found = self._ways.get(prefix)
        if found is None:
            if not self.source.knows(topic, prefix) and _is_on_loop():
                raise _AskedOnLoopError("the schema registry must be asked, which would block the event loop: call to_arrow in a thread, with "
                                        "await asyncio.to_thread(records.to_arrow, value=...)")
            writer = self.source.writer_of(topic, prefix)
            found = self._ways[prefix] = _way(writer, self.wanted(), raw=self.source.header is not None)
        return found


class _AskedOnLoopError(SerializationError):
    """Never the fault of a row."""


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _way(writer: AvroSchema, wanted: tuple[AvroSchema, AvroNode] | None, *, raw: bool) -> _Way:
    """*raw*: data of the plain type bytes has no length, as serializers of a registry write it."""
    name = writer.name or writer.text[:80]
    try:
        node = node_of(writer.parsed)
        plan = Plan(node, None) if wanted is None else plan_of(node, wanted[1])
        return _Way(name, plan, _with_length if raw and is_bytes(writer) else None, ScanProgram(writer.parsed).scan().wrong)
    except (UnresolvedError, ConfigurationError) as error:
        if wanted is None:
            raise SerializationError(str(error)) from error
    reader, rewritten = reader_of(writer, wanted[0]), AvroWriter(wanted[0], validate=False)
    return _Way(name, Plan(wanted[1], None), lambda data: rewritten.encode(reader.decode(data)), ScanProgram(wanted[0].parsed).scan().wrong)


def _with_length(data: bytes) -> bytes:
    return number(len(data)) + data


class _Group:
    """The rows of one way, in one table."""

    def __init__(self, way: _Way, memory: int) -> None:
        self.way = way
        self.node: Final = way.plan.node
        self.columns: Final = AvroColumns(self.node.program(), memory)

    def array(self) -> Any:
        found, change = finished(self.node, self.columns), self.way.plan.change
        return found if change is None else change(found)

    def fault(self, row: bytes) -> SerializationError:
        """What was wrong with *row*, the last one."""
        return SerializationError(f"not valid Avro data of {self.way.name}: {self.way.wrong(row) or self._unfit()}")

    def _unfit(self) -> str:
        """Why valid data has no place in the columns: their memory, or what the reader's logical type limits."""
        path = list(self.node.walk())[self.columns.fault_node].path
        return f"{'.'.join(path)}: {self.columns.fault}" if path else self.columns.fault


class _Decoding:
    """One column while it is decoded: rows go to the group of their schema, and come back in their order."""

    def __init__(self, side: _Side, data: Any, record: RecordAt, memory: int, *, keeps_errors: bool) -> None:
        self._arrow = import_module("pyarrow")
        self._side, self._record, self._memory, self._keeps_errors = side, record, memory, keeps_errors
        valid, offsets, content = data.buffers()
        self._data = data
        self._at: int = data.offset
        self._addresses = _address(offsets), _address(content), _address(valid) if data.null_count else 0
        self._groups: dict[Prefix, _Group] = {}
        self._pieces: list[tuple[_Group | None, int]] = []
        """Runs of rows in their order: group (None: nulls) and number."""
        self._errors: dict[int, str] = {}
        self._unknown: dict[Prefix, SerializationError] = {}
        """Prefixes whose schema was not found: a registry is asked once for each."""

    # ---- reading ----------------------------------------------------------------------------------------------------

    def read(self, headers: Any) -> None:
        """Read all rows."""
        start = 0
        for row, guid in self._in_headers(headers):
            self._framed(start, row)
            self._run(row, row + 1, guid, 0)
            start = row + 1
        self._framed(start, len(self._data))

    def _in_headers(self, headers: Any) -> list[tuple[int, Prefix]]:
        """The rows whose schema a header names."""
        name = self._side.source.header
        if name is None or headers is None or not len(headers.values):
            return []
        compute = import_module("pyarrow.compute")
        if not compute.any(compute.equal(headers.values.field("key"), name)).as_py():
            return []
        found = ((row, next((each["value"] for each in pairs or () if each["key"] == name), None)) for row, pairs in enumerate(headers.to_pylist()))
        return [(row, _guid(value)) for row, value in found if value is not None and self._data[row].is_valid]

    def _framed(self, start: int, stop: int) -> None:
        """Read rows that begin with their schema's name, run by run."""
        if start >= stop:
            return
        size = self._side.source.prefix_size
        for end, prefix in prefix_runs(*self._addresses, start + self._at, stop + self._at, size):
            if prefix is None:
                self._add_nulls(end - self._at - start)
            else:
                self._run(start, end - self._at, prefix, size)
            start = end - self._at

    def _run(self, start: int, stop: int, prefix: Prefix, skip: int) -> None:
        """Read rows of one schema; null rows may be among them."""
        group = self._groups.get(prefix) or self._group(start, prefix)
        if group is None:
            for row in range(start, stop):
                if self._data[row].is_valid:
                    self._fail(row, self._unknown[prefix])
            self._add_nulls(stop - start)
            return
        self._pieces.append((group, stop - start))
        if group.way.translate is None:
            self._fast(group, start, stop, skip)
        else:
            self._one_by_one(group, group.way.translate, range(start, stop), skip)

    def _group(self, row: int, prefix: Prefix) -> _Group | None:
        """None: its schema is not known."""
        if prefix in self._unknown:
            return None
        try:
            way = self._side.way(self._record(row).topic, prefix)
        except SerializationError as error:
            if isinstance(error, _AskedOnLoopError) or (isinstance(error, SchemaRegistryError) and not error.is_unknown_schema):
                raise
            self._unknown[prefix] = error
            return None
        made = self._groups[prefix] = _Group(way, self._memory)
        return made

    def _fast(self, group: _Group, start: int, stop: int, skip: int) -> None:
        at, end = start + self._at, stop + self._at
        while (at := group.columns.add_rows(*self._addresses, at, end, skip)) < end:
            self._fail(at - self._at, group.fault(self._data[at - self._at].as_py()[skip:]))
            group.columns.add_null()
            at += 1

    def _one_by_one(self, group: _Group, translate: Callable[[bytes], bytes], rows: range, skip: int) -> None:
        for row in rows:
            data = self._data[row].as_py()
            try:
                if data is not None and not group.columns.add(data := translate(data[skip:])):
                    raise group.fault(data)
            except SerializationError as error:
                self._fail(row, error)
                data = None
            if data is None:
                group.columns.add_null()

    def _add_nulls(self, count: int) -> None:
        self._pieces.append((None, count))

    def _fail(self, row: int, error: SerializationError) -> None:
        if self._keeps_errors:
            self._errors[row] = error.message
            return
        raise located(self._record(row), error)

    # ---- the column -------------------------------------------------------------------------------------------------

    def column(self) -> Any:
        """All rows, in their order."""
        arrow, groups = self._arrow, list(self._groups.values())
        if len(groups) == 1 and all(group is not None for group, _ in self._pieces):
            return groups[0].array()
        wanted = self._side.wanted()
        arrays = [group.array() for group in groups]
        kind = arrow_type(wanted[1]) if wanted else arrays[0].type if arrays else arrow.null()
        for group, array in zip(groups, arrays, strict=True):
            if array.type != kind:
                raise SerializationError(
                    f"the records were written with schemas of other columns, {groups[0].way.name} as {kind} and {group.way.name} as {array.type}: give "
                    "the serde a schema to read all as")
        return arrow.concat_arrays([*arrays, arrow.nulls(1, kind)]).take(self._order(groups))

    def _order(self, groups: list[_Group]) -> Any:
        """For each row its place among the rows of all groups, behind which is one null."""
        starts, total = {}, 0
        for group in groups:
            starts[id(group)] = total
            total += group.columns.rows
        places: list[int] = []
        for piece, count in self._pieces:
            if piece is None:
                places += [total] * count
            else:
                places += range(starts[id(piece)], starts[id(piece)] + count)
                starts[id(piece)] += count
        return self._arrow.array(places, self._arrow.int64())

    def errors(self) -> Any:
        """The column of messages; None if errors are raised."""
        if not self._keeps_errors:
            return None
        if not self._errors:
            return self._arrow.nulls(len(self._data), self._arrow.string())
        return self._arrow.array(map(self._errors.get, range(len(self._data))), self._arrow.string())


def _address(buffer: Any) -> int:
    return 0 if buffer is None else int(buffer.address)


def located(record: Record, error: KafkaError) -> SerializationError:
    """*error* with the record's place."""
    tp = TopicPartition(record.topic, record.partition)
    raised = SerializationError(f"{tp}, offset {record.offset}: {error.message}", topic_partition=tp, record=record)
    raised.__cause__ = error
    return raised


def _guid(header: bytes) -> Prefix:
    """The GUID behind the magic byte 1; a damaged header is no schema's prefix, and refused as such."""
    is_sound = len(header) == 1 + GUID_SIZE and header[0] == 1
    return uuid.UUID(bytes=header[1:]) if is_sound else b"\x01" + header[:GUID_SIZE]


# --- writing --------------------------------------------------------------------------------------------------------


class _Written(NamedTuple):
    """What rows of a topic are written with."""

    schema: AvroSchema
    node: AvroNode
    prefix: bytes


class AvroEncoder:
    """Encodes keys or values of `Producer.send_arrow`: a struct becomes a record, a null a tombstone.

    Types that hold the same values fit, such as int32 for an Avro long, if each value does; anything else must be cast
    first. A missing field gets its default. The names of fields count, not their order.

    Args:
        serde: an `AvroSerde` or `AvroRegistrySerde`. Its *strict* refuses fields that the schema does not have.
        column: the column's name; left out, it is ``value`` or ``key``.

    Raises:
        ConfigurationError: *serde* is none of these.
    """

    def __init__(self, serde: AvroSerde | AvroRegistrySerde, column: str | None = None) -> None:
        _check_serde(serde)
        self.column: Final = column
        self._serde: Final = serde
        self._sources: dict[bool, ColumnSource] = {}
        self._written: dict[tuple[str, bool], _Written] = {}

    def is_prepared(self, topic: str, *, is_key: bool) -> bool:
        """Whether `prepare` need not ask a registry."""
        return self._source(is_key=is_key).knows(topic, None)

    def prepare(self, topic: str, *, is_key: bool) -> None:
        """Find the schema to write to *topic* with; may ask the registry, which blocks.

        Raises:
            ConfigurationError: the schema has no Arrow columns.
            SchemaRegistryError: the registry refuses the schema, or does not answer.
        """
        schema, prefix = self._source(is_key=is_key).written(topic)
        known = self._written.get((topic, is_key))
        node = known.node if known is not None and known.schema is schema else node_of(schema.parsed)
        self._written[topic, is_key] = _Written(schema, node, prefix)

    def encode(self, data: Any, *, topics: Sequence[str], places: Sequence[int] | None, first: int, is_key: bool) -> Any:
        """The encoded rows, a pyarrow LargeBinaryArray. Each row's topic is that at its place in *topics*; None: the
        first.

        Rows of the topic "" become null. Every other topic was prepared. *first* is the first row's index, for errors.

        Raises:
            SerializationError: a field is missing or has another type, or a row does not fit; nothing is encoded.
        """
        written = [self._written[topic, is_key] if topic else None for topic in topics]
        schemas = {each.schema for each in written if each is not None}
        if not schemas:
            return import_module("pyarrow").nulls(len(data), import_module("pyarrow").large_binary())
        if len(schemas) > 1:
            raise SerializationError("the topics have different schemas: send the rows of each topic by a call of its own")
        node = next(each.node for each in written if each is not None)
        column = self.column or ("key" if is_key else "value")
        strict = self._source(is_key=is_key).strict
        try:
            fitted = AvroInput(node, data, strict=strict)
        except MisfitError as error:
            at = _first_misfit(node, data, strict=strict)
            where = f"column {column!r}" if at is None else f"column {column!r}, row {first + at}"
            raise SerializationError(f"{where}: {error}") from error
        rows = AvroRows(node.program(), fitted.buffers, len(data))
        if (at := self._write(rows, len(data), [None if each is None else each.prefix for each in written], places)) < len(data):
            raise SerializationError(f"column {column!r}, row {first + at}: {list(node.walk())[rows.fault_node].where} {rows.fault}")
        return large_binary(rows, len(data))

    def headers(self, topic: str, *, is_key: bool) -> Headers:
        """The header with the schema's GUID (``id_in="headers"``), for each record of *topic* but tombstones."""
        return self._source(is_key=is_key).added(topic)

    def _write(self, rows: AvroRows, count: int, prefixes: Sequence[bytes | None], places: Sequence[int] | None) -> int:
        """The first row that does not fit; *count*: there is none."""
        start = 0
        while start < count:
            place = 0 if places is None else places[start]
            stop = count if places is None else start + 1
            prefix = prefixes[place]
            if prefix is None:
                rows.skip(stop)
            elif (at := rows.write(stop, prefix)) < stop:
                return at
            start = stop
        return count

    def _source(self, *, is_key: bool) -> ColumnSource:
        found = self._sources.get(is_key)
        if found is None:
            found = self._sources[is_key] = _source(self._serde, is_key=is_key)
        return found


def _first_misfit(node: AvroNode, data: Any, *, strict: bool) -> int | None:
    """The first row whose value cannot be converted, found by halving; None: the whole column has another type."""
    def misfits(start: int, stop: int) -> bool:
        places = import_module("pyarrow").array(range(start, stop), "int64")
        try:
            AvroInput(node, data.take(places), strict=strict)  # a copy: a slice would share its children
        except MisfitError:
            return True
        return False

    low, high = 0, len(data)
    if misfits(0, 0):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if misfits(low, middle) else (middle, high)
    return low


def large_binary(rows: AvroRows, count: int) -> Any:
    """The first *count* rows, in the memory of *rows*."""
    arrow = import_module("pyarrow")
    valid, offsets, data, size = rows.buffers()
    content = arrow.foreign_buffer(data, size, rows) if size else arrow.py_buffer(b"")
    return arrow.Array.from_buffers(arrow.large_binary(), count, [
        arrow.foreign_buffer(valid, count // 8 + 1, rows), arrow.foreign_buffer(offsets, (count + 1) * 8, rows), content])
