"""What serdes of a schema registry share: the subject's name, the schema's id in the data or a header, the cache.

Decides when the registry is asked: once per topic and new schema. Independent of the format of values.
"""
from __future__ import annotations

import asyncio
import logging
import struct
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from pyclient.errors import ConfigurationError, SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError
from pyclient.plugins import Serialized
from pyclient.records import Headers
from pyclient.serializers.registry import RegisteredSchema, RegistrySchema, SchemaReference, SchemaRegistryClient, SchemaRule

log = logging.getLogger(__name__)
MAGIC: Final = 0
"""Data begins with it, and the id of 4 bytes follows."""
MAGIC_GUID: Final = 1
"""A header's value begins with it, and the GUID of 16 bytes follows."""
PREFIX: Final = struct.Struct(">BI")
GUID_SIZE: Final = 17
KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

SubjectName: TypeAlias = Callable[[str, bool, str | None], str]
"""The subject for a topic, whether it is of keys, and the record's name (None if it has none)."""


def topic_subject(topic: str, is_key: bool, name: str | None) -> str:
    """``orders-key`` or ``orders-value``: one schema for each topic."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_subject(topic: str, is_key: bool, name: str | None) -> str:
    """The record's full name: one schema wherever the record is sent."""
    return _named(name)


def topic_record_subject(topic: str, is_key: bool, name: str | None) -> str:
    """``orders-com.example.Order``: several kinds of records in a topic."""
    return f"{topic}-{_named(name)}"


def _named(name: str | None) -> str:
    if not name:
        raise SerializationError("the schema has no name, which the subject is named after; use subject='topic'")
    return name


SUBJECTS: Final[dict[str, SubjectName]] = {"topic": topic_subject, "record": record_subject, "topic-record": topic_record_subject}


def _place(topic: str) -> str:
    return f"topic {topic!r}: " if topic else ""  # whole columns of Spark know no topic


class Framed(NamedTuple):
    """What the data of a record holds beside the value's bytes."""

    schema_id: int | uuid.UUID
    payload: bytes


class RegistrySerde:
    """Base of the serdes. None stays None, and the registry is not asked for it.

    Args:
        registry: the client, which several serdes may share.
        subject: ``topic`` (default), ``record``, ``topic-record``, or a function of topic, is_key and record name.
        auto_register: register the schema at its first use. Otherwise it must be registered already.
        use_latest: write with the subject's latest schema, which is looked up again after a minute.
        normalize: let the registry normalize schemas before it compares them.
        id_in: ``value``: the data begins with the schema's id. ``headers``: a header has the schema's GUID, and the
            data is the value's bytes alone. Both are read.
        ignore_rules: names of schemas' rules to ignore. A schema with any other rule that is not disabled, such as
            field encryption, is refused when writing and when reading: no rule is carried out.
    """

    TYPE: ClassVar[str]
    adds_headers: ClassVar[bool] = True

    def __init__(self, registry: SchemaRegistryClient, *, subject: str | SubjectName = "topic", auto_register: bool = True, use_latest: bool = False,
                 normalize: bool = False, id_in: str = "value", references: Iterable[SchemaReference] = (), ignore_rules: Collection[str] = ()) -> None:
        if not isinstance(registry, SchemaRegistryClient):
            raise ConfigurationError(f"registry: expected a SchemaRegistryClient, got {type(registry).__name__}; async clients take one too, and "
                                     "call it outside of their loop")
        if isinstance(subject, str) and subject not in SUBJECTS:
            raise ConfigurationError(f"subject = {subject!r}: expected {', '.join(SUBJECTS)}, or a function", option="subject")
        if id_in not in ("value", "headers"):
            raise ConfigurationError(f"id_in = {id_in!r}: expected 'value' or 'headers'", option="id_in")
        if isinstance(ignore_rules, str):
            raise ConfigurationError(f"ignore_rules = {ignore_rules!r}: expected a set of names, such as {{{ignore_rules!r}}}", option="ignore_rules")
        self.registry: Final = registry
        self.is_key = False
        self._subject = SUBJECTS[subject] if isinstance(subject, str) else subject
        self._auto_register, self._use_latest, self._normalize = auto_register, use_latest, normalize
        self._in_headers = id_in == "headers"
        self._references: Final = tuple(references)
        self._ignored_rules: Final = frozenset(ignore_rules)
        self._written: dict[str, RegisteredSchema] = {}

    def configure(self, *, is_key: bool) -> None:
        """Called when the client is made: subjects and headers of keys have other names."""
        self.is_key = is_key
        self._written = {}  # clients configure a shallow copy: the one for keys writes other schemas to the same topic

    # ---- what formats define -----------------------------------------------------------------------------------------

    def _own_schema(self) -> RegistrySchema | None:
        """The schema to register; None: only the latest one can be written."""
        raise NotImplementedError

    def _name(self) -> str | None:
        """The record's name for subjects."""
        raise NotImplementedError

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def prepare_async(self, topic: str, value: Any) -> None:
        """Ask the registry in a worker thread, if `serialize` would have to ask it."""
        if value is not None and not self._has_writer(topic):
            await asyncio.to_thread(self._make_writer, topic)

    def _has_writer(self, topic: str) -> bool:
        return self._known(topic) is not None

    def _make_writer(self, topic: str) -> None:
        """Ask the registry for all that writing needs, references included."""
        self._schema_for(topic)

    def _known(self, topic: str) -> RegisteredSchema | None:
        if not self._use_latest:
            return self._written.get(topic)
        return self.registry.core.known_version(self.subject(topic), None, self._normalize)

    def subject(self, topic: str) -> str:
        """The subject of the schema for *topic*."""
        return self._subject(topic, self.is_key, self._name())

    def _schema_for(self, topic: str) -> RegisteredSchema:
        """The schema to write with; asks the registry at its first use."""
        if (known := self._known(topic)) is not None:
            return self._allowed(known)
        subject = self.subject(topic)
        if self._use_latest:
            return self._allowed(self._latest(subject))
        schema = self._own_schema()
        if schema is None:
            raise SerializationError(f"{type(self).__name__} has no schema to write topic {topic!r} with: give one, or set use_latest")
        ask = self.registry.register if self._auto_register else self.registry.lookup
        found = self._with_guid(ask(subject, schema, normalize=self._normalize))
        self._allowed(found if found.rules is not None else self.registry.schema(found.id, subject=subject))
        self._written[topic] = found
        return found

    def _allowed(self, found: RegisteredSchema) -> RegisteredSchema:
        """*found*, unless it has a rule that would have to be carried out: this client carries out none."""
        for rule in found.rules or ():
            if not rule.is_disabled and rule.name not in self._ignored_rules:
                raise _has_rule(found, rule)
        return found

    def _latest(self, subject: str) -> RegisteredSchema:
        """If no registry answers, the one of before is used for another minute."""
        try:
            return self._with_guid(self.registry.latest(subject))
        except SchemaRegistryUnavailableError as error:
            if (old := self.registry.core.extend_latest(subject)) is None:
                raise
            log.warning("%s; version %s of subject %s is used for another minute", error, old.version, subject)
            return old

    def _with_guid(self, found: RegisteredSchema) -> RegisteredSchema:
        if self._in_headers and found.guid is None:
            raise SerializationError(f"the schema registry gives schemas no GUID (subject {found.subject!r}), which id_in='headers' needs; use id_in='value'")
        return found

    def _prefix(self, found: RegisteredSchema) -> bytes:
        """What data begins with."""
        return b"" if self._in_headers else PREFIX.pack(MAGIC, found.id)

    def _framed(self, found: RegisteredSchema, payload: bytes, indexes: bytes = b"") -> Any:
        if not self._in_headers:
            return PREFIX.pack(MAGIC, found.id) + indexes + payload
        return Serialized(payload, (self._header_of(found, indexes),))

    def _header_of(self, found: RegisteredSchema, indexes: bytes = b"") -> tuple[str, bytes]:
        assert found.guid is not None, "checked when it was read"
        return KEY_HEADER if self.is_key else VALUE_HEADER, bytes([MAGIC_GUID]) + found.guid.bytes + indexes

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def prepare_deserialize_async(self, topic: str, data: bytes | None, headers: Headers = ()) -> None:
        """Ask the registry in a worker thread, if `deserialize` would have to ask it."""
        if data is not None and not self.is_prepared(topic, data, headers):
            await asyncio.to_thread(self._make_reader, topic, self._unframed(topic, data, headers))

    def is_prepared(self, topic: str, data: bytes | None, headers: Headers = ()) -> bool:
        """Whether `deserialize` need not ask the registry: all schemas that it needs are known."""
        return data is None or self._has_reader(self._unframed(topic, data, headers))

    def _has_reader(self, framed: Framed) -> bool:
        return self.registry.core.known(framed.schema_id) is not None

    def _make_reader(self, topic: str, framed: Framed) -> None:
        """Ask the registry for all that reading needs, references included."""
        self._writers(topic, framed)

    def _unframed(self, topic: str, data: bytes, headers: Headers) -> Framed:
        """Id or GUID, and the rest. A header counts more than the data, which could begin like an id by chance."""
        header = self._header(headers)
        if header is not None:
            if len(header) < GUID_SIZE or header[0] != MAGIC_GUID:
                raise SerializationError(f"{_place(topic)}the header of the schema's id is not valid: {header[:GUID_SIZE].hex(' ')}")
            return Framed(uuid.UUID(bytes=header[1:GUID_SIZE]), header[GUID_SIZE:] + data)
        if len(data) < PREFIX.size or data[0] != MAGIC:
            raise SerializationError(
                f"{_place(topic)}the data was not written with a schema registry: it begins with {data[:PREFIX.size].hex(' ') or 'nothing'}, not with 00 and an id of 4 B")
        return Framed(PREFIX.unpack_from(data)[1], data[PREFIX.size:])

    def _header(self, headers: Headers) -> bytes | None:
        wanted = KEY_HEADER if self.is_key else VALUE_HEADER
        for name, value in headers:
            if name == wanted:
                return value
        return None

    def _writers(self, topic: str, framed: Framed) -> RegisteredSchema:
        """The schema that the data was written with."""
        found = self.registry.core.known(framed.schema_id) or self.registry.schema(framed.schema_id)
        if found.schema.type != self.TYPE:
            raise SerializationError(f"{_place(topic)}the data was written with the {found.schema.type} schema {framed.schema_id}, not with one of type {self.TYPE}")
        return self._allowed(found)


def _has_rule(found: RegisteredSchema, rule: SchemaRule) -> SchemaRegistryError:
    number = found.guid if found.id < 0 else found.id
    place = f"schema {number}" if found.subject is None else f"version {found.version} of subject {found.subject!r} (schema {number})"
    return SchemaRegistryError(f"{place} has the rule {rule.name!r} of type {rule.type}, and this client carries out no rules; "
                               f"ignore_rules={{{rule.name!r}}} writes and reads without it", subject=found.subject)
