"""Avro with a schema registry: the writer's schema is found by the id in the data."""
from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Final, NamedTuple

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.serializers.avro_codec import AvroReader, AvroWriter, ColumnSource, Prefix, is_bytes, reader_of
from pyclient.serializers.avro_schema import AvroSchema, SchemaSource
from pyclient.serializers.registry import RegisteredSchema, RegistrySchema, SchemaReference, SchemaRegistryClient
from pyclient.serializers.registry_serde import KEY_HEADER, PREFIX, VALUE_HEADER, Framed, RegistrySerde, SubjectName


class _Ready(NamedTuple):
    """What a topic's values are written with; an empty prefix marks what is not common."""

    writer: AvroWriter
    prefix: bytes
    found: RegisteredSchema


class AvroRegistrySerde(RegistrySerde):
    """Avro values with the id of their schema.

    With *schema*, values are written with it, and read as it: defaults, aliases and promotions apply to data of other
    versions. Without, values are read as they were written, and written only with ``use_latest``. The other arguments
    are those of `RegistrySerde`; *strict* and *validate* are those of `AvroSerde`.
    """

    TYPE: ClassVar[str] = "AVRO"

    def __init__(self, registry: SchemaRegistryClient, schema: SchemaSource | None = None, *, strict: bool = True, validate: bool = True,
                 subject: str | SubjectName = "topic", auto_register: bool = True, use_latest: bool = False, normalize: bool = False,
                 id_in: str = "value", references: Iterable[SchemaReference] = (), ignore_rules: Collection[str] = ()) -> None:
        super().__init__(registry, subject=subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize, id_in=id_in,
                         references=references, ignore_rules=ignore_rules)
        self._source: Final = schema
        self._strict, self._validate = strict, validate
        self._parsed: dict[RegistrySchema, AvroSchema] = {}
        self._writers_made: dict[RegistrySchema, AvroWriter] = {}
        self._ready: dict[str, _Ready] = {}
        self._readers: dict[int | uuid.UUID, AvroReader] = {}
        if schema is not None and not self._references:
            _ = self.schema  # an invalid one is an error here; with references it needs the registry

    @functools.cached_property
    def schema(self) -> AvroSchema | None:
        """The schema of values; its references are read from the registry."""
        if self._source is None or isinstance(self._source, AvroSchema):
            return self._source
        return AvroSchema(self._source, references=self._referenced(self._references))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> Any:
        """The schema's id and the value's bytes.

        Raises:
            SerializationError: the value does not fit the schema, with the path of the field.
            SchemaRegistryError: the registry refuses the schema, or does not answer at its first use.
        """
        if value is None:
            return None
        ready = self._ready.get(topic) or self._made_ready(topic)
        try:
            return ready.writer.encode(value, ready.prefix) if ready.prefix else self._uncommon(ready, value)
        except SerializationError as error:
            raise SerializationError(f"topic {topic!r}: {error}") from error.__cause__

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> Any:
        """The value.

        Raises:
            SerializationError: the data is damaged, or does not fit `schema`.
            SchemaRegistryError: the registry does not know the id, or does not answer and the id is new.
        """
        if data is None:
            return None
        framed = self._unframed(topic, data, headers)
        reader = self._readers.get(framed.schema_id) or self._reader(topic, framed)
        try:
            return framed.payload if reader is None else reader.decode(framed.payload)
        except SerializationError as error:
            raise SerializationError(f"topic {topic!r}, schema {framed.schema_id}: {error}") from error.__cause__

    def column_source(self) -> ColumnSource:
        """What `AvroDecoder` and `AvroEncoder` need."""
        return ColumnSource(PREFIX.size, KEY_HEADER if self.is_key else VALUE_HEADER, lambda: self.schema, self._writer_of, self._written_as,
                            self._headers_for, self._knows, self._strict)

    def _writer_of(self, topic: str, prefix: Prefix) -> AvroSchema:
        return self._avro(self._writers(topic, self._framed_as(topic, prefix)))

    def _framed_as(self, topic: str, prefix: Prefix) -> Framed:
        return Framed(prefix, b"") if isinstance(prefix, uuid.UUID) else self._unframed(topic, prefix, ())

    def _written_as(self, topic: str) -> tuple[AvroSchema, bytes]:
        ready = self._ready.get(topic) or self._made_ready(topic)
        if is_bytes(ready.writer.schema):
            raise ConfigurationError("the plain type bytes has no columns: send them as they are")
        return ready.writer.schema, ready.prefix

    def _headers_for(self, topic: str) -> Headers:
        if not self._in_headers:
            return ()
        ready = self._ready.get(topic) or self._made_ready(topic)
        return (self._header_of(ready.found),)

    def _knows(self, topic: str, prefix: Prefix | None) -> bool:
        if prefix is None:
            return self._has_writer(topic)
        if self._references and "schema" not in self.__dict__:
            return False
        found = self.registry.core.known(self._framed_as(topic, prefix).schema_id)
        return found is not None and (found.schema in self._parsed or not found.schema.references)

    def configure(self, *, is_key: bool) -> None:
        """As in `RegistrySerde`."""
        super().configure(is_key=is_key)
        self._ready = {}  # clients configure a copy, which would share it: keys have other schemas in the same topic

    def _has_writer(self, topic: str) -> bool:
        if topic in self._ready:
            return True
        is_parsed = not self._references or "schema" in self.__dict__  # else the subject's name needs the registry
        found = self._known(topic) if is_parsed else None
        return found is not None and found.schema in self._writers_made

    def _make_writer(self, topic: str) -> None:
        self._made_ready(topic)

    def _has_reader(self, framed: Framed) -> bool:
        return framed.schema_id in self._readers

    def _make_reader(self, topic: str, framed: Framed) -> None:
        self._reader(topic, framed)

    def _made_ready(self, topic: str) -> _Ready:
        """Kept for the topic, unless the latest schema may become another one."""
        found = self._schema_for(topic)
        writer = self._writers_made.get(found.schema) or self._writer(found)
        is_common = not self._in_headers and not is_bytes(writer.schema)
        ready = _Ready(writer, self._prefix(found) if is_common else b"", found)
        if not self._use_latest:
            self._ready[topic] = ready
        return ready

    def _uncommon(self, ready: _Ready, value: Any) -> Any:
        """The id in a header, or plain bytes."""
        is_plain = isinstance(value, bytes) and is_bytes(ready.writer.schema)
        return self._framed(ready.found, value if is_plain else ready.writer.encode(value))

    def _own_schema(self) -> RegistrySchema | None:
        return None if self.schema is None else RegistrySchema(self.schema.text, self.TYPE, self._references)

    def _name(self) -> str | None:
        return None if self.schema is None else self.schema.name

    def _reader(self, topic: str, framed: Framed) -> AvroReader | None:
        """None for plain bytes."""
        writer = self._avro(self._writers(topic, framed))
        if is_bytes(writer):
            return None
        made = self._readers[framed.schema_id] = reader_of(writer, self.schema)
        return made

    def _writer(self, found: RegisteredSchema) -> AvroWriter:
        schema = self._avro(found) if self._use_latest or self.schema is None else self.schema
        made = self._writers_made[found.schema] = AvroWriter(schema, strict=self._strict, validate=self._validate)
        return made

    def _avro(self, found: RegisteredSchema) -> AvroSchema:
        if (known := self._parsed.get(found.schema)) is None:
            known = self._parsed[found.schema] = AvroSchema(found.schema.text, references=self._referenced(found.schema.references))
        return known

    def _referenced(self, references: Iterable[SchemaReference]) -> list[AvroSchema]:
        return [self._avro(self.registry.version(each.subject, each.version)) for each in references]
