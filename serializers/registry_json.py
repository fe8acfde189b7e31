"""JSON values that are validated by a JSON Schema of a registry."""
from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.redaction import in_one_line
from pyclient.serializers.registry import RegisteredSchema, RegistrySchema, SchemaReference, SchemaRegistryClient
from pyclient.serializers.registry_serde import Framed, RegistrySerde, SubjectName
from pyclient.serializers.texts import JsonSerde



class JsonSchemaRegistrySerde(RegistrySerde):
    """JSON with the id of its schema, validated when it is written and read (``validate=False``: not).

    Without *schema*, values are validated by the schema that they were written with. Formats such as ``date-time`` are
    not checked. The other arguments are those of `RegistrySerde`.
    """

    TYPE: ClassVar[str] = "JSON"

    def __init__(self, registry: SchemaRegistryClient, schema: str | Path | Mapping[str, Any] | None = None, *, validate: bool = True,
                 subject: str | SubjectName = "topic", auto_register: bool = True, use_latest: bool = False, normalize: bool = False,
                 id_in: str = "value", references: Iterable[SchemaReference] = (), ignore_rules: Collection[str] = ()) -> None:
        super().__init__(registry, subject=subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize, id_in=id_in,
                         references=references, ignore_rules=ignore_rules)
        self._text: Final = _text(schema)
        self._title = None if self._text is None else _value(self._text).get("title")
        self._validate = validate
        self._json = JsonSerde()
        self._validators: dict[RegistrySchema, Any] = {}
        if self._text is not None and not self._references:
            self._validator(RegistrySchema(self._text, self.TYPE))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> Any:
        """The schema's id and the JSON text.

        Raises:
            SerializationError: the value does not fit the schema, with the path of the field, or is not JSON.
            SchemaRegistryError: the registry refuses the schema, or does not answer at its first use.
        """
        if value is None:
            return None
        found = self._schema_for(topic)
        self._check(topic, found.schema, value)
        return self._framed(found, self._json.serialize(topic, value) or b"")

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> Any:
        """The value.

        Raises:
            SerializationError: the data is not JSON, or does not fit the schema.
            SchemaRegistryError: the registry does not know the id, or does not answer and the id is new.
        """
        if data is None:
            return None
        framed = self._unframed(topic, data, headers)
        found = self._writers(topic, framed)
        value = self._json.deserialize(topic, framed.payload)
        self._check(topic, self._own_schema() or found.schema, value)
        return value

    def _has_writer(self, topic: str) -> bool:
        found = self._known(topic)
        return found is not None and (not self._validate or found.schema in self._validators)

    def _make_writer(self, topic: str) -> None:
        found = self._schema_for(topic)
        if self._validate:
            self._validator(found.schema)

    def _has_reader(self, framed: Framed) -> bool:
        found = self.registry.core.known(framed.schema_id)
        return found is not None and (not self._validate or (self._own_schema() or found.schema) in self._validators)

    def _make_reader(self, topic: str, framed: Framed) -> None:
        found = self._writers(topic, framed)
        if self._validate:
            self._validator(self._own_schema() or found.schema)

    def _own_schema(self) -> RegistrySchema | None:
        return None if self._text is None else RegistrySchema(self._text, self.TYPE, self._references)

    def _name(self) -> str | None:
        return self._title

    def _check(self, topic: str, schema: RegistrySchema, value: Any) -> None:
        if not self._validate:
            return
        from jsonschema.exceptions import best_match

        try:
            wrong = best_match(self._validator(schema).iter_errors(value))
        except ConfigurationError:
            raise
        except Exception as error:  # a reference that leads nowhere, a value that is nested too deeply
            raise SerializationError(f"topic {topic!r}: the value cannot be validated: {type(error).__name__}: {in_one_line(str(error), 300)}") from error
        if wrong is not None:
            raise SerializationError(f"topic {topic!r}: {wrong.json_path} does not fit the JSON Schema: {in_one_line(wrong.message, 300)}")

    def _validator(self, schema: RegistrySchema) -> Any:
        if (known := self._validators.get(schema)) is None:
            known = self._validators[schema] = _made_validator(schema.text, self._resources(schema))
        return known

    def _resources(self, schema: RegistrySchema) -> dict[str, Any]:
        """Schemas that are referred to, by the name that they are referred to by."""
        found: dict[str, Any] = {}
        for each in schema.references:
            registered: RegisteredSchema = self.registry.version(each.subject, each.version)
            found |= {**self._resources(registered.schema), each.name: _value(registered.schema.text)}
        return found


def _text(schema: str | Path | Mapping[str, Any] | None) -> str | None:
    if schema is None or isinstance(schema, str):
        return schema
    if isinstance(schema, Path):
        try:
            return schema.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the JSON Schema {schema} cannot be read: {error}") from error
    return json.dumps(schema)


def _value(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the JSON Schema is not JSON: {error}: {text[:200]}") from error
    return found if isinstance(found, dict) else {"not": {}} if found is False else {}


def _made_validator(text: str, resources: Mapping[str, Any]) -> Any:
    try:
        import jsonschema
        import referencing
        from referencing.jsonschema import DRAFT202012
    except ImportError as error:
        raise ConfigurationError(f"JSON Schema needs the package jsonschema ({error}); install it with pip install 'pyclient-kafka[jsonschema]'") from error
    schema = _value(text)
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        found = [(name, referencing.Resource.from_contents(each, default_specification=DRAFT202012)) for name, each in resources.items()]
        registry: Any = referencing.Registry().with_resources(found)  # without a function to fetch others: nothing is downloaded
        return kind(schema, registry=registry)
    except jsonschema.SchemaError as error:
        raise ConfigurationError(f"not a valid JSON Schema: {in_one_line(error.message, 300)}") from error
