"""Values to Avro's binary encoding and back, for one schema or a pair of writer's and reader's.

fastavro does the work. Every failure is a SerializationError that names the field; knows no topics and no registry.
"""
from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from pyclient.codec.avro_defaults import encoded_default
from pyclient.codec.avro_scan_program import ScanProgram
from pyclient.errors import SerializationError, with_article
from pyclient.records import Headers
from pyclient.redaction import in_one_line
from pyclient.serializers.avro_logical import Unfit, for_promotion, for_writing
from pyclient.serializers.avro_parts import is_recursive, part_of
from pyclient.serializers.avro_schema import AvroSchema

MOST_SHOWN: Final = 5
"""Fields that an error lists."""
DEEPEST: Final = 500
"""Containers inside each other that are written; fastavro's compiled code overflows the stack at some thousand."""
PARTS: Final = ("type", "items", "values", "fields")
"""Where a schema holds others."""
Prefix: TypeAlias = bytes | uuid.UUID
"""What names the schema of data: its first bytes, or a header's GUID."""


class ColumnSource(NamedTuple):
    """How a serde finds the schemas of whole columns (`pyclient.serializers.avro_arrow`)."""

    prefix_size: int
    """Bytes before the value's own."""
    header: str | None
    """The header that may hold a GUID instead."""
    reader: Callable[[], AvroSchema | None]
    """The schema that values are read as; None: as they were written."""
    writer_of: Callable[[str, Prefix], AvroSchema]
    """(topic, prefix) → the writer's schema, or SerializationError."""
    written: Callable[[str], tuple[AvroSchema, bytes]]
    """Topic → the schema to write with, and its prefix."""
    added: Callable[[str], Headers]
    """Topic → the headers of what is written; called behind *written*."""
    knows: Callable[[str, Prefix | None], bool]
    """(topic, prefix; None: to write) → whether the schema is known without asking a registry."""
    strict: bool
    """Whether fields that the schema does not have are refused."""


class AvroWriter:
    """Encodes values of one schema: common ones by compiled code, which leaves all others to fastavro.

    *strict* refuses fields that the schema does not have. *validate* checks types and ranges before anything is
    written; without it a number out of range is written as it is, and other clients may not be able to read it.
    """

    def __init__(self, schema: AvroSchema, *, strict: bool = True, validate: bool = True) -> None:
        from fastavro import schemaless_writer
        from fastavro.validation import validate as validated

        self.schema: Final = schema
        self._parsed = for_writing(_with_defaults(schema.parsed), validate=validate)
        self._strict = strict
        self._write = schemaless_writer
        self._validated = validated
        self._validate = validate
        self._quick: Final = part_of(self._parsed, strict=strict)
        program = ScanProgram(schema.parsed)
        self._scan: Final = program.scan(is_bounded=False) if validate and program.has_checked else None
        self._is_recursive: Final = is_recursive(schema.parsed)

    def encode(self, value: Any, prefix: bytes = b"") -> bytes:
        """*prefix* and the value's bytes.

        Raises:
            SerializationError: the value does not fit the schema; the message has the path of the field.
        """
        data = self._quick.encode(value, prefix) or self._by_fastavro(value, prefix)
        if self._scan is not None and (wrong := self._scan.wrong(data[len(prefix):])):
            raise SerializationError(f"{with_article(type(value).__name__)} does not fit the Avro schema {self._shown}: {wrong}")
        return data

    def _by_fastavro(self, value: Any, prefix: bytes) -> bytes:
        out = io.BytesIO()
        if self._is_recursive and _is_deep(value):
            raise SerializationError(f"the value has more than {DEEPEST} containers inside each other; the Avro schema {self._shown} is recursive")
        try:
            if not self._validate or self._validated(value, self._parsed, raise_errors=False):
                out.write(prefix)
                self._write(out, self._parsed, value, strict_allow_default=self._strict)
                return out.getvalue()
            self._validated(value, self._parsed)
        except Exception as error:
            raise SerializationError(f"{with_article(type(value).__name__)} does not fit the Avro schema {self._shown}: {_reason(error)}") from error
        raise SerializationError(f"{with_article(type(value).__name__)} does not fit the Avro schema {self._shown}")

    @property
    def _shown(self) -> str:
        return self.schema.name or self.schema.text[:80]


class AvroReader:
    """Decodes data of the schema *writer*, into values of *reader*: defaults, aliases and promotions apply."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        from fastavro import schemaless_reader

        self.writer: Final = writer
        self.reader: Final = reader
        other = None if reader is None or reader.text == writer.text else reader
        self._writer = writer.parsed if other is None or "float" not in other.text else for_promotion(writer.parsed)
        self._reader = None if other is None else _with_defaults(other.parsed)
        self._read = schemaless_reader
        self._scan: Final = ScanProgram(writer.parsed).scan()

    def decode(self, data: bytes) -> Any:
        """The value.

        Raises:
            SerializationError: the data is damaged, longer than one value, nested too deeply, or does not fit the
                reader's schema.
        """
        whole = data if type(data) is bytes else bytes(data)  # also what Spark gives to functions: bytearray
        if wrong := self._scan.wrong(whole):
            raise self._error(wrong)
        try:
            return self._read(io.BytesIO(whole), self._writer, self._reader)
        except Exception as error:  # of the reader's schema, or of a logical type
            raise self._error(f"{type(error).__name__}: {_reason(error)}") from error

    def _error(self, why: object) -> SerializationError:
        reader = f", read as {_shown(self.reader)}" if self.reader is not None and self._reader is not None else ""
        return SerializationError(f"not valid Avro data of {_shown(self.writer)}{reader}: {why}")


@lru_cache(maxsize=1000)
def reader_of(writer: AvroSchema, reader: AvroSchema | None) -> AvroReader:
    """The reader for a pair of schemas; pairs are few, and preparing one takes longer than reading a value."""
    return AvroReader(writer, reader)


def is_bytes(schema: AvroSchema) -> bool:
    """Whether it is the plain type bytes: Java's and other serializers write those as they are, without length."""
    parsed = schema.parsed
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes" and "logicalType" not in parsed)


def _with_defaults(parsed: Any) -> Any:
    """A schema whose defaults are values, as fastavro returns them: bytes, which are text in JSON, dates, decimals."""
    named: dict[str, Any] = {}
    _collect(parsed, named)
    return _marked(_with_values(parsed, named), {name: _with_values(each, named) for name, each in named.items()})


def _marked(schema: Any, named: dict[str, Any]) -> Any:
    """*schema* so that fastavro does not parse it again: it would refuse defaults that are no JSON."""
    if isinstance(schema, list):
        return [_marked(each, named) for each in schema]
    return {**schema, "__fastavro_parsed": True, "__named_schemas": named} if isinstance(schema, dict) else schema


def _collect(part: Any, named: dict[str, Any]) -> None:
    """Find the named types of a schema."""
    if isinstance(part, dict):
        named.update(part.get("__named_schemas", {}))
        if "name" in part and part.get("type") in ("record", "error", "enum", "fixed"):
            named.setdefault(part["name"], part)
    for each in part if isinstance(part, list) else [part[name] for name in PARTS if name in part] if isinstance(part, dict) else ():
        _collect(each, named)


def _with_values(part: Any, named: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_with_values(each, named) for each in part]
    if not isinstance(part, dict):
        return part
    made = {name: _with_values(each, named) if name in PARTS else each for name, each in part.items()}
    if "default" in part and "symbols" not in part:
        made["default"] = _value_of(part, named)
    return made


def _value_of(field: dict[str, Any], named: dict[str, Any]) -> Any:
    from fastavro import schemaless_reader

    alone = {"type": "record", "name": "default", "fields": [{"name": "value", "type": field["type"]}], "__named_schemas": named, "__fastavro_parsed": True}
    try:
        read: Any = schemaless_reader(io.BytesIO(encoded_default(field, named)), alone, None)
    except (ValueError, ArithmeticError):  # its logical type has no such value: only a record that needs it is refused
        return field["default"]
    return read["value"]


def _shown(schema: AvroSchema) -> str:
    return schema.name or schema.text[:80]


def _is_deep(value: Any) -> bool:
    """Whether it has more than `DEEPEST` containers inside each other; each is looked at once per level."""
    level = [value]
    for _ in range(DEEPEST + 1):
        within = {id(each): each for outer in level for each in _held(outer)}
        if not within:
            return False
        level = list(within.values())
    return True


def _held(value: Any) -> Iterable[Any]:
    """The values in a container; a text or bytes is none."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)) else ()


def _reason(error: Exception) -> str:
    return _fields(error) or in_one_line(" ".join(str(error).split())) or type(error).__name__


def _fields(error: Exception) -> str:
    """The fields that fastavro's validation names. A union lists what each branch lacks: the innermost comes last."""
    found = getattr(error, "errors", ())
    lines = [in_one_line(f"{each.field or 'the value'} {_misfit(each)}") for each in reversed(found) if hasattr(each, "field")]
    return "; ".join(dict.fromkeys(lines[:MOST_SHOWN]))


def _misfit(error: Any) -> str:
    """Why a value does not fit, behind the field's name."""
    if isinstance(error.datum, Unfit):
        return error.datum.why
    return f"is {with_article(type(error.datum).__name__)} ({error.datum!r:.60}), not {_kind(error.schema)}"


def _kind(schema: Any) -> str:
    kind = schema.get("name", schema["type"]) if isinstance(schema, dict) else schema
    return " or ".join(map(_kind, kind)) if isinstance(kind, list) else str(kind)
