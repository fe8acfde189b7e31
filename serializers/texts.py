"""Bytes, text, UUIDs and JSON. Each is Java's format where Java has one."""
from __future__ import annotations

from typing import Any
from uuid import UUID

from pyclient.errors import SerializationError, with_article
from pyclient.records import Headers
from pyclient.serializers.json_engines import UNREADABLE, EngineName, json_engine


class BytesSerde:
    """Bytes as they are; bytearray and memoryview are copied."""

    def serialize(self, topic: str, value: bytes | bytearray | memoryview | None, headers: Headers = ()) -> bytes | None:
        """The bytes. Raises SerializationError for anything that is not bytes, text included."""
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise SerializationError(
            f"{with_article(type(value).__name__)} of topic {topic!r} is not bytes: encode it, or choose a serializer such as 'string'"
        )

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> bytes | None:
        """The bytes themselves."""
        return data


class StringSerde:
    """Text in UTF-8, or another encoding by its Python name."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, value: str | None, headers: Headers = ()) -> bytes | None:
        """The encoded text. Raises SerializationError for anything but a str, or a character the encoding lacks."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerializationError(f"{with_article(type(value).__name__)} of topic {topic!r} is not text")
        try:
            return value.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise SerializationError(f"text of topic {topic!r} is not {self.encoding}: {error}") from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> str | None:
        """The text. Raises SerializationError when the bytes are not of this encoding."""
        if data is None:
            return None
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise SerializationError(f"bytes of topic {topic!r} are not {self.encoding}: {error}") from error


class UUIDSerde:
    """A UUID as its 36-character text, as Java's UUIDSerializer writes it."""

    def serialize(self, topic: str, value: UUID | None, headers: Headers = ()) -> bytes | None:
        """The text of the UUID. Raises SerializationError for anything but a uuid.UUID."""
        if value is None:
            return None
        if not isinstance(value, UUID):
            raise SerializationError(f"{with_article(type(value).__name__)} of topic {topic!r} is not a uuid.UUID")
        return str(value).encode("ascii")

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> UUID | None:
        """The UUID. Raises SerializationError when the bytes are not its text."""
        if data is None:
            return None
        try:
            return UUID(data.decode("ascii"))
        except ValueError as error:
            raise SerializationError(f"{data[:64]!r} of topic {topic!r} is not the text of a UUID") from error


class JsonSerde:
    """JSON in UTF-8, without spaces. None is Kafka's null (a tombstone), never the text ``null``.

    *engine* is ``"json"``, Python's own, or ``"orjson"``, which is several times faster and has to be installed. Orjson
    writes dataclasses, dates and UUIDs too, but only texts as keys of dicts; whole numbers beyond 64 bits it does not
    write, and reads as floats.

    Raises:
        ConfigurationError: the engine is not installed, or there is none of that name.
    """

    def __init__(self, engine: EngineName = "json") -> None:
        self._engine = json_engine(engine)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        """The JSON text. Raises SerializationError for what JSON cannot hold, NaN and infinity included."""
        if value is None:
            return None
        try:
            return self._engine.write(value)
        except UNREADABLE as error:
            raise SerializationError(f"{with_article(type(value).__name__)} of topic {topic!r} is not JSON: {error}") from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> Any:
        """The value. Raises SerializationError when the bytes are not JSON in UTF-8."""
        if data is None:
            return None
        try:
            return self._engine.read(data)
        except UNREADABLE as error:
            raise SerializationError(f"{data[:64]!r} of topic {topic!r} is not JSON: {error}") from error
