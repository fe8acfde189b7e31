"""What is asked of a schema registry, and what is remembered of its answers.

Decides requests and reads answers; sends nothing. Each operation is a generator that yields a `Request` and receives a
`Response`: the sync and the async client run the same ones.
"""
from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

from pyclient.errors import SchemaRegistryError
from pyclient.redaction import in_one_line

T = TypeVar("T")
LATEST_FOR_S: Final = 60.0
"""How long a subject's latest schema is remembered: it changes when a newer one is registered."""
FOUND: Final = 200
MISSING: Final = 404
LONGEST_ID: Final = 2**32 - 1


class SchemaReference(NamedTuple):
    """A schema that another one uses, by the name that it uses: a type's full name in Avro, a file's in Protobuf."""

    name: str
    subject: str
    version: int


class RegistrySchema(NamedTuple):
    """A schema as registries know it: its text, its type (``AVRO``, ``JSON``, ``PROTOBUF``), what it refers to."""

    text: str
    type: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()


class SchemaRule(NamedTuple):
    """A rule of a schema, such as ``encryptPII`` of type ``ENCRYPT``, which clients are to carry out."""

    name: str
    type: str
    is_disabled: bool = False


class RegisteredSchema(NamedTuple):
    """A schema and its place in the registry. ``version``, ``guid``, ``rules``: None where the registry did not say."""

    id: int
    schema: RegistrySchema
    subject: str | None = None
    version: int | None = None
    guid: uuid.UUID | None = None
    rules: tuple[SchemaRule, ...] | None = None


class Compatibility(NamedTuple):
    """Whether a schema may be registered; ``messages`` say why not."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


class Request(NamedTuple):
    """An HTTP request to a registry; *path* is below the registry's URL."""

    method: str
    path: str
    body: Any = None
    subject: str | None = None

    @property
    def shown(self) -> str:
        """For errors; a path holds no secrets."""
        return f"{self.method} /{self.path}"


class Response(NamedTuple):
    """A registry's answer: JSON's value, and the URL without credentials that it came from."""

    status: int
    body: Any
    url: str


Steps: TypeAlias = Generator[Request, Response, T]


class RegistryCore:
    """Requests, answers and their cache. The cache serves what it has when no registry answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_id: dict[tuple[str | None, int], RegisteredSchema] = {}
        self._by_guid: dict[uuid.UUID, RegisteredSchema] = {}
        self._by_schema: dict[tuple[str, RegistrySchema, bool], RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], RegisteredSchema] = {}
        self._latest: dict[str, tuple[float, RegisteredSchema]] = {}

    # ---- registering -------------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: RegistrySchema, normalize: bool) -> Steps[RegisteredSchema]:
        key = (subject, schema, normalize)
        if (known := self._by_schema.get(key)) is not None:
            return known
        request = Request("POST", f"subjects/{_quoted(subject)}/versions{'?normalize=true' if normalize else ''}", _body(schema), subject)
        answer = _accepted(request, (yield request))
        found = _registered(request, answer, schema, subject)
        with self._lock:
            self._by_schema[key] = found
            self._latest.pop(subject, None)
        return self._remember(found)

    def lookup(self, subject: str, schema: RegistrySchema, normalize: bool) -> Steps[RegisteredSchema]:
        key = (subject, schema, normalize)
        known = self._by_schema.get(key)
        if known is not None and known.version is not None:
            return known
        request = Request("POST", f"subjects/{_quoted(subject)}{'?normalize=true' if normalize else ''}", _body(schema), subject)
        found = _registered(request, _accepted(request, (yield request)), schema, subject)
        with self._lock:
            self._by_schema[key] = found
        return self._remember(found)

    def compatibility(self, subject: str, schema: RegistrySchema, version: int | str) -> Steps[Compatibility]:
        request = Request("POST", f"compatibility/subjects/{_quoted(subject)}/versions/{version}?verbose=true", _body(schema), subject)
        answer = _accepted(request, (yield request))
        messages = answer.body.get("messages") or () if isinstance(answer.body, dict) else ()
        return Compatibility(bool(_field(request, answer, "is_compatible", bool)), tuple(in_one_line(str(each)) for each in messages))

    # ---- finding -----------------------------------------------------------------------------------------------------

    def known(self, schema_id: int | uuid.UUID, subject: str | None = None) -> RegisteredSchema | None:
        """The schema if it is in the cache."""
        return self._by_guid.get(schema_id) if isinstance(schema_id, uuid.UUID) else self._by_id.get((subject, schema_id))

    def known_version(self, subject: str, schema: RegistrySchema | None, normalize: bool) -> RegisteredSchema | None:
        """What `register` or, without *schema*, `latest` returned, if it is in the cache and fresh."""
        if schema is not None:
            return self._by_schema.get((subject, schema, normalize))
        when, found = self._latest.get(subject, (-LATEST_FOR_S, None))
        return found if self._clock() - when < LATEST_FOR_S else None

    def by_id(self, schema_id: int, subject: str | None) -> Steps[RegisteredSchema]:
        if (known := self._by_id.get((subject, schema_id))) is not None:
            return known
        request = Request("GET", f"schemas/ids/{schema_id}{f'?subject={_quoted(subject)}' if subject else ''}", None, subject)
        answer = _accepted(request, (yield request))
        read = RegisteredSchema(schema_id, _schema(request, answer), subject, None, _guid(answer.body), _rules(request, answer))
        found = yield from self._placed(read)
        with self._lock:
            self._by_id[subject, schema_id] = found
        return found

    def by_guid(self, guid: uuid.UUID) -> Steps[RegisteredSchema]:
        if (known := self._by_guid.get(guid)) is not None:
            return known
        request = Request("GET", f"schemas/guids/{guid}")
        answer = _accepted(request, (yield request))
        number = answer.body.get("id") if isinstance(answer.body, dict) else None
        read = RegisteredSchema(number if isinstance(number, int) else -1, _schema(request, answer), guid=guid, rules=_rules(request, answer))
        found = yield from self._placed(read)
        with self._lock:
            self._by_guid[guid] = found
        return found

    def _placed(self, found: RegisteredSchema) -> Steps[RegisteredSchema]:
        """A schema that was read by its id; with rules it gets a subject and version, which errors about these name."""
        if not found.rules or found.id < 0:
            return found
        answer = yield Request("GET", f"schemas/ids/{found.id}/versions")
        try:
            places = {str(each["subject"]): int(each["version"]) for each in answer.body}
        except (LookupError, TypeError, ValueError):
            return found  # an old registry; the id must do
        subject = found.subject if found.subject in places else next(iter(places), None)
        return found if subject is None else found._replace(subject=subject, version=places[subject])

    def version(self, subject: str, version: int) -> Steps[RegisteredSchema]:
        if (known := self._by_version.get((subject, version))) is not None:
            return known
        return (yield from self._version(subject, version))

    def latest(self, subject: str) -> Steps[RegisteredSchema]:
        if (known := self.known_version(subject, None, False)) is not None:
            return known
        found = yield from self._version(subject, "latest")
        with self._lock:
            self._latest[subject] = self._clock(), found
        return found

    def extend_latest(self, subject: str) -> RegisteredSchema | None:
        """Remember the latest schema for longer, however old it is; None if it was never read."""
        with self._lock:
            _, found = self._latest.get(subject, (0.0, None))
            if found is not None:
                self._latest[subject] = self._clock(), found
        return found

    def _version(self, subject: str, version: int | str) -> Steps[RegisteredSchema]:
        request = Request("GET", f"subjects/{_quoted(subject)}/versions/{version}", None, subject)
        answer = _accepted(request, (yield request))
        return self._remember(_registered(request, answer, _schema(request, answer), subject))

    def _remember(self, found: RegisteredSchema) -> RegisteredSchema:
        with self._lock:
            if found.subject is not None and found.version is not None:
                self._by_version[found.subject, found.version] = found
            if found.guid is not None and found.rules is not None:
                self._by_guid[found.guid] = found
        return found

    # ---- subjects and settings ---------------------------------------------------------------------------------------

    def list_of(self, request: Request, kind: type[T]) -> Steps[list[T]]:
        answer = _accepted(request, (yield request))
        if not isinstance(answer.body, list) or not all(isinstance(each, kind) for each in answer.body):
            raise _invalid(request, answer, "a list")
        return answer.body

    def compatibility_level(self, subject: str | None) -> Steps[str]:
        request = Request("GET", f"config/{_quoted(subject)}?defaultToGlobal=true" if subject else "config", None, subject)
        return str(_field(request, _accepted(request, (yield request)), "compatibilityLevel", str))

    def set_compatibility_level(self, level: str, subject: str | None) -> Steps[None]:
        path = f"config/{_quoted(subject)}" if subject else "config"
        request = Request("PUT", path, {"compatibility": level.upper()}, subject)
        _accepted(request, (yield request))

    def delete(self, subject: str, permanent: bool) -> Steps[list[int]]:
        with self._lock:
            self._latest.pop(subject, None)
            self._by_schema = {key: found for key, found in self._by_schema.items() if key[0] != subject}
        path = f"subjects/{_quoted(subject)}{'?permanent=true' if permanent else ''}"
        return (yield from self.list_of(Request("DELETE", path, None, subject), int))


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _body(schema: RegistrySchema) -> dict[str, Any]:
    """The type is left out for Avro: registries before 5.5 know no other."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type != "AVRO":
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [each._asdict() for each in schema.references]
    return body


def _accepted(request: Request, answer: Response) -> Response:
    if answer.status == FOUND:
        return answer
    body = answer.body if isinstance(answer.body, dict) else {}
    code, message = body.get("error_code"), body.get("message")
    why = f" ({in_one_line(str(message))})" if message else ""
    hint = {401: "; check basic_auth, bearer_token or oauth", 403: "; check the rights of this user"}.get(answer.status, "")
    about = f", subject {request.subject!r}" if request.subject else ""
    raise SchemaRegistryError(f"the schema registry {answer.url} answered {request.shown} with HTTP {answer.status}{why}{about}{hint}",
                              status=answer.status, error_code=code if isinstance(code, int) else None, subject=request.subject)


def _invalid(request: Request, answer: Response, expected: str) -> SchemaRegistryError:
    shown = in_one_line(json.dumps(answer.body), 100)
    return SchemaRegistryError(f"the schema registry {answer.url} answered {request.shown} with {shown}; expected {expected}. Is it the URL of a schema registry?",
                               status=answer.status, subject=request.subject)


def _field(request: Request, answer: Response, name: str, kind: type) -> Any:
    found = answer.body.get(name) if isinstance(answer.body, dict) else None
    if not isinstance(found, kind):
        raise _invalid(request, answer, f"an object with {name!r}")
    return found


def _registered(request: Request, answer: Response, schema: RegistrySchema, subject: str) -> RegisteredSchema:
    schema_id = _field(request, answer, "id", int)
    if not 0 <= schema_id <= LONGEST_ID:
        raise _invalid(request, answer, "an id of 32 bits")
    version = answer.body.get("version")
    return RegisteredSchema(schema_id, schema, subject, version if isinstance(version, int) else None, _guid(answer.body), _rules_said(request, answer))


def _rules_said(request: Request, answer: Response) -> tuple[SchemaRule, ...] | None:
    """None: the answer lacks the schema, so that it says nothing about rules."""
    return _rules(request, answer) if "schema" in answer.body or "ruleSet" in answer.body else None


def _rules(request: Request, answer: Response) -> tuple[SchemaRule, ...]:
    """Rules of all kinds: of the domain, of migrations, of encodings."""
    kinds = answer.body.get("ruleSet") or {}
    try:
        return tuple(SchemaRule(str(each["name"]), str(each.get("type")), each.get("disabled") is True) for rules in kinds.values() for each in rules or ())
    except (LookupError, TypeError, AttributeError):
        raise _invalid(request, answer, "a ruleSet of rules with names") from None


def _guid(body: Any) -> uuid.UUID | None:
    try:
        return uuid.UUID(body["guid"])
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _schema(request: Request, answer: Response) -> RegistrySchema:
    text = _field(request, answer, "schema", str)
    try:
        references = tuple(SchemaReference(each["name"], each["subject"], int(each["version"])) for each in answer.body.get("references") or ())
    except (LookupError, TypeError, ValueError):
        raise _invalid(request, answer, "references with name, subject and version") from None
    return RegistrySchema(text, str(answer.body.get("schemaType") or "AVRO"), references)
