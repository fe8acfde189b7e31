"""Avro schemas: parsed and checked by the reference implementation, prepared for fastavro.

Decides which schemas are valid and which of them read each other's data; knows neither topics nor registries. Needs the
extra ``avro``.
"""
from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyclient.errors import ConfigurationError

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
SchemaSource: TypeAlias = "AvroSchema | str | Path | Mapping[str, Any] | list[Any]"
"""A schema: parsed, as JSON text or the name of a primitive type, as a file (a Path), or as the value of the JSON."""


def _packages() -> tuple[Any, Any]:
    try:
        import avro.schema
        import fastavro
    except ImportError as error:
        raise ConfigurationError(f"Avro needs the packages avro and fastavro ({error}); install them with pip install 'pyclient-kafka[avro]'") from error
    return avro, fastavro


class AvroSchema:
    """A valid schema. *references* are schemas whose named types it uses.

    Attributes:
        text: the schema's JSON text.
        parsed: the schema as fastavro's functions take it.

    Raises:
        ConfigurationError: the text or the file is not a valid Avro schema, or the extra ``avro`` is missing.
    """

    def __init__(self, source: str | Path | Mapping[str, Any] | list[Any], *, references: Iterable[AvroSchema] = ()) -> None:
        self.text: Final = _text(source)
        self.references: Final = tuple(references)
        value = _json(self.text)
        self._reference_check(value)
        self.parsed: Final[Any] = self._parsed(value)

    def __repr__(self) -> str:
        return f"AvroSchema({self.text if len(self.text) <= 120 else self.text[:117] + '...'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.text, self.references)

    @classmethod
    def of(cls, source: SchemaSource) -> AvroSchema:
        """*source* itself if it is parsed already."""
        return source if isinstance(source, AvroSchema) else cls(source)

    @property
    def name(self) -> str | None:
        """The full name of a record, enum or fixed type; None for other types."""
        found = self.parsed.get("name") if isinstance(self.parsed, dict) else None
        return str(found) if found else None

    @cached_property
    def canonical(self) -> str:
        """The Parsing Canonical Form: equal for schemas that read and write the same bytes."""
        return str(self.reference.canonical_form)

    @cached_property
    def fingerprint(self) -> bytes:
        """The 8 bytes of CRC-64-AVRO by which single-object encoding names the schema, in their order there."""
        found: bytes = self.reference.fingerprint("CRC-64-AVRO")
        return found

    @cached_property
    def reference(self) -> Any:
        """The schema as an object of the package ``avro``."""
        return self._reference_check(_json(self.text))

    def incompatibilities(self, writer: AvroSchema) -> list[str]:
        """Why this schema cannot read data that *writer* wrote; empty if it can read all of it."""
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

        checker: Any = ReaderWriterCompatibilityChecker
        result = checker().get_compatibility(self.reference, writer.reference)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        places = sorted(str(place) for place in result.locations)
        return [*sorted(str(message) for message in result.messages if message), *(f"at {place}" for place in places)]

    def _reference_check(self, value: Any) -> Any:
        """Parse it with the reference implementation: it is the stricter one in names, defaults and symbols."""
        avro, _ = _packages()
        names = avro.name.Names()
        try:
            with warnings.catch_warnings():  # it warns of logical types that it does not know; readers ignore those
                warnings.simplefilter("ignore")
                for reference in self._all_references():
                    avro.schema.make_avsc_object(_json(reference.text), names)
                return avro.schema.make_avsc_object(value, names)
        except RecursionError:
            raise ConfigurationError("the Avro schema is nested too deeply") from None
        except Exception as error:
            raise ConfigurationError(f"not a valid Avro schema: {error}: {self.text[:200]}") from error

    def _all_references(self) -> Iterable[AvroSchema]:
        """Each schema after those that it refers to, once."""
        seen: dict[str, AvroSchema] = {}
        for reference in self.references:
            for each in (*reference._all_references(), reference):
                seen.setdefault(each.text, each)
        return seen.values()

    def _parsed(self, value: Any) -> Any:
        _, fastavro = _packages()
        named: dict[str, Any] = {}
        if self.references and not (isinstance(value, dict) and value.get("type") == "record"):
            raise ConfigurationError(f"an Avro schema with references must be a record, not {self.text[:80]}: make it a field of one")
        try:
            for reference in self._all_references():
                fastavro.parse_schema(_json(reference.text), named_schemas=named)
            return fastavro.parse_schema(value, named_schemas=named)
        except Exception as error:
            raise ConfigurationError(f"not a valid Avro schema: {error}: {self.text[:200]}") from error


def _restored(text: str, references: tuple[AvroSchema, ...]) -> AvroSchema:
    return AvroSchema(text, references=references)


def _text(source: str | Path | Mapping[str, Any] | list[Any]) -> str:
    if isinstance(source, Path):
        try:
            return source.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the Avro schema {source} cannot be read: {error}") from error
    if isinstance(source, str):
        return json.dumps(source) if source in PRIMITIVES else source
    try:
        return json.dumps(source)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the Avro schema is not JSON: {error}") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; give a file as pathlib.Path" if text.endswith((".avsc", ".json")) else ""
        raise ConfigurationError(f"the Avro schema is not JSON: {error}{hint}: {text[:200]}") from error
