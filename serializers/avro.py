"""Avro without a registry: the schema comes from a file or a text. With a registry: `AvroRegistrySerde`."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyclient.errors import SerializationError
from pyclient.records import Headers
from pyclient.serializers.avro_codec import AvroReader, AvroWriter, ColumnSource, Prefix
from pyclient.serializers.avro_schema import AvroSchema, SchemaSource

SINGLE_OBJECT: Final = b"\xc3\x01"
"""Data in single-object encoding begins so; the schema's fingerprint follows."""
HEADER_SIZE: Final = 10


class AvroSerde:
    """Avro's binary encoding of one schema. None stays None.

    Data holds no schema, so writers and readers agree on it elsewhere. With *single_object*, data begins with the
    fingerprint of its schema; *writers* are then other schemas whose data is read too. Otherwise *written_with* is the
    schema that all data was written with. Values are always of *schema*: fields that the writer lacks get their
    defaults, aliases and promotions apply.

    Args:
        schema: JSON text, a Path of a file, the JSON's value, or an `AvroSchema`.
        written_with: the writer's schema, when it is another.
        writers: with *single_object*, the schemas of older or newer writers.
        single_object: begin data with a marker and the schema's fingerprint.
        strict: refuse fields that the schema does not have.
        validate: check types and ranges before writing.

    Raises:
        ConfigurationError: a schema is not valid, or the extra ``avro`` is missing.
    """

    def __init__(self, schema: SchemaSource, *, written_with: SchemaSource | None = None, writers: Iterable[SchemaSource] = (),
                 single_object: bool = False, strict: bool = True, validate: bool = True) -> None:
        self.schema: Final = AvroSchema.of(schema)
        self._single_object, self._strict = single_object, strict
        self._header = SINGLE_OBJECT + self.schema.fingerprint if single_object else b""
        self._writer = AvroWriter(self.schema, strict=strict, validate=validate)
        self._reader = AvroReader(AvroSchema.of(self.schema if written_with is None else written_with), self.schema)
        known = [self.schema, *map(AvroSchema.of, writers)]
        self._readers = {each.fingerprint: AvroReader(each, self.schema) for each in known} if single_object else {}

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        """The value's bytes.

        Raises:
            SerializationError: the value does not fit the schema; the message has the path of the field.
        """
        if value is None:
            return None
        try:
            return self._writer.encode(value, self._header)
        except SerializationError as error:
            raise SerializationError(f"topic {topic!r}: {error}") from error.__cause__

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> Any:
        """The value, of `schema`.

        Raises:
            SerializationError: the data is damaged, or of another schema.
        """
        if data is None:
            return None
        try:
            return self._decoded(data)
        except SerializationError as error:
            raise SerializationError(f"topic {topic!r}: {error}") from error.__cause__

    def column_source(self) -> ColumnSource:
        """What `AvroDecoder` and `AvroEncoder` need."""
        return ColumnSource(len(self._header), None, lambda: self.schema, self._writer_of, lambda topic: (self.schema, self._header),
                            lambda topic: (), lambda *_: True, self._strict)

    def _writer_of(self, topic: str, prefix: Prefix) -> AvroSchema:
        """The schema of data that begins with *prefix*."""
        return self._reader_of(prefix).writer if isinstance(prefix, bytes) and self._single_object else self._reader.writer

    def _decoded(self, data: bytes) -> Any:
        if not self._single_object:
            return self._reader.decode(data)
        return self._reader_of(data).decode(data[HEADER_SIZE:])

    def _reader_of(self, data: bytes) -> AvroReader:
        if data[:2] != SINGLE_OBJECT or len(data) < HEADER_SIZE:
            raise SerializationError(f"not in single-object encoding: {data[:HEADER_SIZE].hex(' ')}; expected c3 01 and a fingerprint of 8 B")
        reader = self._readers.get(data[2:HEADER_SIZE])
        if reader is None:
            raise SerializationError(f"the schema with the fingerprint {data[2:HEADER_SIZE].hex()} is unknown; add it to writers=")
        return reader
