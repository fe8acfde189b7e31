"""A schema registry in this process, for tests: the REST API that `pyclient.serializers.registry` uses.

A small HTTP server in a thread. Subjects, versions, ids, references and compatibility behave as in a real registry;
compatibility is decided for Avro, and every JSON Schema and Protobuf schema counts as compatible.
"""
from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
MOST_BODY_BYTES: Final = 16 * 1024 * 1024
_END_TIMEOUT_S: Final = 5.0


class RegistryRequest(NamedTuple):
    """A request that the registry got, and the status of its answer."""

    method: str
    path: str
    status: int


class _RefusedError(Exception):
    """An answer with an error: HTTP status, the registry's own code, text."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Content(NamedTuple):
    """What makes two schemas the same one."""

    type: str
    text: str
    references: tuple[tuple[str, str, int], ...]
    rules: str = "null"
    """The JSON of the ruleSet."""

    @property
    def key(self) -> str:
        """JSON is the same whatever its spaces are; in Avro a type is the same by its name and in an object."""
        text = self.text if self.type == "PROTOBUF" else json.dumps(_plain(json.loads(self.text)) if self.type == "AVRO" else json.loads(self.text))
        return repr((self.type, text, self.references, self.rules))

    @property
    def guid(self) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, self.key)

    def fields(self) -> dict[str, Any]:
        """As answers have it: Avro's type and empty references are left out."""
        found: dict[str, Any] = {"schema": self.text, "guid": str(self.guid)}
        if self.type != "AVRO":
            found["schemaType"] = self.type
        if self.references:
            found["references"] = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in self.references]
        if self.rules != "null":
            found["ruleSet"] = json.loads(self.rules)
        return found


def _plain(value: Any) -> Any:
    """Avro's JSON with ``"string"`` in place of ``{"type": "string"}``."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    return value["type"] if set(value) == {"type"} and isinstance(value["type"], str) else {key: _plain(each) for key, each in value.items()}


class _Model:
    """Subjects and schemas. Called by one thread at a time."""

    def __init__(self) -> None:
        self._schemas: list[_Content] = []
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, dict[int, int]] = {}
        self._next_version: dict[str, int] = {}
        self._levels: dict[str | None, str] = {None: "BACKWARD"}

    # ---- reading -----------------------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return sorted(subject for subject, versions in self._subjects.items() if versions)

    def versions(self, subject: str) -> dict[int, int]:
        found = self._subjects.get(subject)
        if not found:
            raise _RefusedError(404, 40401, f"Subject '{subject}' not found.")
        return found

    def content(self, schema_id: int) -> _Content:
        if not 1 <= schema_id <= len(self._schemas):
            raise _RefusedError(404, 40403, f"Schema {schema_id} not found.")
        return self._schemas[schema_id - 1]

    def by_guid(self, guid: str) -> tuple[int, _Content]:
        for number, content in enumerate(self._schemas, 1):
            if str(content.guid) == guid.lower():
                return number, content
        raise _RefusedError(404, 40403, f"Schema {guid} not found.")

    def uses(self, schema_id: int) -> list[dict[str, Any]]:
        self.content(schema_id)
        return [{"subject": subject, "version": version} for subject, versions in sorted(self._subjects.items())
                for version, used in versions.items() if used == schema_id]

    def version(self, subject: str, version: str) -> dict[str, Any]:
        versions = self.versions(subject)
        number = max(versions) if version in ("latest", "-1") else int(version) if version.isdecimal() else 0
        if number < 1:
            raise _RefusedError(422, 42202, f"The specified version '{version}' is not a valid version id.")
        if number not in versions:
            raise _RefusedError(404, 40402, f"Version {number} not found.")
        return {"subject": subject, "version": number, "id": versions[number], **self.content(versions[number]).fields()}

    # ---- writing -----------------------------------------------------------------------------------------------------

    def parse(self, body: Any) -> _Content:
        fields = body if isinstance(body, dict) else {}
        text, kind = fields.get("schema"), fields.get("schemaType") or "AVRO"
        if not isinstance(text, str) or kind not in TYPES:
            raise _RefusedError(422, 42201, f"Invalid schema of type {kind}")
        references = tuple((each["name"], each["subject"], int(each["version"])) for each in fields.get("references") or ())
        content = _Content(kind, text, references, json.dumps(fields.get("ruleSet")))
        try:
            self._check(content)
        except _RefusedError:
            raise
        except Exception as error:
            raise _RefusedError(422, 42201, f"Invalid schema: {error}") from error
        return content

    def _check(self, content: _Content) -> None:
        if content.type == "AVRO":
            self._avro(content)
        elif content.type == "JSON":
            json.loads(content.text)
        for _, subject, version in content.references:
            self.version(subject, str(version))

    def _avro(self, content: _Content) -> Any:
        from pyclient.serializers.avro_schema import AvroSchema

        found = [self.content(self.version(subject, str(version))["id"]) for _, subject, version in content.references]
        return AvroSchema(content.text, references=[self._avro(each) for each in found])

    def register(self, subject: str, content: _Content) -> dict[str, Any]:
        content = self._inherited(subject, content)
        versions = self._subjects.setdefault(subject, {})
        schema_id = self._ids.get(content.key)
        if schema_id is None or schema_id not in versions.values():
            level = self.level(subject)
            if why := self.conflicts(subject, content, transitive=level.endswith("TRANSITIVE")):
                raise _RefusedError(409, 409, f"Schema being registered is incompatible with an earlier schema for subject '{subject}': {why}")
            schema_id = self._add(versions, subject, content)
        return {"id": schema_id, "guid": str(content.guid)}

    def _add(self, versions: dict[int, int], subject: str, content: _Content) -> int:
        schema_id = self._ids.get(content.key)
        if schema_id is None:
            self._schemas.append(content)
            schema_id = self._ids[content.key] = len(self._schemas)
        number = self._next_version.get(subject, 1)
        versions[number], self._next_version[subject] = schema_id, number + 1
        return schema_id

    def lookup(self, subject: str, content: _Content) -> dict[str, Any]:
        versions, content = self.versions(subject), self._inherited(subject, content)
        for number, schema_id in reversed(versions.items()):
            if self.content(schema_id).key == content.key:
                return self.version(subject, str(number))
        raise _RefusedError(404, 40403, f"The given schema does not match any schema under the subject {subject}")

    def _inherited(self, subject: str, content: _Content) -> _Content:
        """A schema without rules gets those of the subject's latest version."""
        versions = self._subjects.get(subject)
        return content if not versions or content.rules != "null" else content._replace(rules=self.content(versions[max(versions)]).rules)

    def delete(self, subject: str, *, permanent: bool) -> list[int]:
        if permanent and subject in self._subjects and not self._subjects[subject]:
            self._next_version.pop(subject, None)
            return [*map(int, self._subjects.pop(subject))]
        removed = list(self.versions(subject))
        self._subjects[subject] = {}
        return removed

    def delete_version(self, subject: str, version: str) -> int:
        number = int(self.version(subject, version)["version"])
        del self._subjects[subject][number]
        return number

    # ---- compatibility -----------------------------------------------------------------------------------------------

    def level(self, subject: str | None) -> str:
        return self._levels.get(subject, self._levels[None])

    def set_level(self, subject: str | None, level: object) -> None:
        if level not in LEVELS:
            raise _RefusedError(422, 42203, f"Invalid compatibility level: {level}")
        self._levels[subject] = str(level)

    def conflicts(self, subject: str, content: _Content, *, transitive: bool = False, version: str = "latest") -> list[str]:
        """Why *content* may not follow what *subject* has; empty if it may."""
        versions = self._subjects.get(subject) or {}
        if not versions:
            return []
        last = int(self.version(subject, version)["version"])
        compared = [each for each in versions if transitive or each == last]
        return [why for number in compared for why in self._conflict(self.level(subject), self.content(versions[number]), content)]

    def _conflict(self, level: str, old: _Content, new: _Content) -> list[str]:
        if level == "NONE" or new.type != "AVRO":
            return []
        if old.type != new.type:
            return [f"schema type {new.type} instead of {old.type}"]
        before, after = self._avro(old), self._avro(new)
        backward = [] if level.startswith("FORWARD") else after.incompatibilities(before)
        return [*backward, *([] if level.startswith("BACKWARD") else before.incompatibilities(after))]


_Handler = Callable[[_Model, Mapping[str, str], Mapping[str, str], Any], Any]
_SUBJECT: Final = "subjects/(?P<subject>[^/]+)"


def _check_compatibility(model: _Model, at: Mapping[str, str], query: Mapping[str, str], body: Any) -> dict[str, Any]:
    why = model.conflicts(at["subject"], model.parse(body), version=at["version"])
    return {"is_compatible": not why, **({"messages": why} if query.get("verbose") == "true" else {})}


def _by_guid(model: _Model, at: Mapping[str, str], _query: Mapping[str, str], _body: Any) -> dict[str, Any]:
    number, content = model.by_guid(at["guid"])
    return {"id": number, **content.fields()}


def _set_level(model: _Model, at: Mapping[str, str], _query: Mapping[str, str], body: Any) -> dict[str, Any]:
    level = body.get("compatibility") if isinstance(body, dict) else None
    model.set_level(at.get("subject"), level)
    return {"compatibility": level}


ROUTES: Final[tuple[tuple[str, str, _Handler], ...]] = (
    ("GET", "subjects", lambda model, at, query, body: model.subjects()),
    ("GET", "schemas/types", lambda model, at, query, body: list(TYPES)),
    ("GET", r"schemas/ids/(?P<id>\d+)", lambda model, at, query, body: model.content(int(at["id"])).fields()),
    ("GET", r"schemas/ids/(?P<id>\d+)/versions", lambda model, at, query, body: model.uses(int(at["id"]))),
    ("GET", "schemas/guids/(?P<guid>[^/]+)", _by_guid),
    ("GET", f"{_SUBJECT}/versions", lambda model, at, query, body: list(model.versions(at["subject"]))),
    ("GET", f"{_SUBJECT}/versions/(?P<version>[^/]+)", lambda model, at, query, body: model.version(at["subject"], at["version"])),
    ("POST", f"{_SUBJECT}/versions", lambda model, at, query, body: model.register(at["subject"], model.parse(body))),
    ("POST", _SUBJECT, lambda model, at, query, body: model.lookup(at["subject"], model.parse(body))),
    ("DELETE", _SUBJECT, lambda model, at, query, body: model.delete(at["subject"], permanent=query.get("permanent") == "true")),
    ("DELETE", f"{_SUBJECT}/versions/(?P<version>[^/]+)", lambda model, at, query, body: model.delete_version(at["subject"], at["version"])),
    ("POST", f"compatibility/{_SUBJECT}/versions/(?P<version>[^/]+)", _check_compatibility),
    ("GET", "config", lambda model, at, query, body: {"compatibilityLevel": model.level(None)}),
    ("GET", "config/(?P<subject>[^/]+)", lambda model, at, query, body: {"compatibilityLevel": model.level(at["subject"])}),
    ("PUT", "config", _set_level),
    ("PUT", "config/(?P<subject>[^/]+)", _set_level),
)


class FakeSchemaRegistry:
    """A schema registry for tests; a context manager.

    Args:
        users: names and passwords; left out, anyone may use it. A name may also be ``Bearer`` with a token.
        ssl_context: serve https with this server context.

    Attributes:
        requests: what was asked, oldest first.
        delay_s: how long it waits before it answers.
    """

    def __init__(self, *, users: Mapping[str, str] | None = None, ssl_context: ssl.SSLContext | None = None) -> None:
        self._users = dict(users or {})
        self._model = _Model()
        self._lock = threading.Lock()
        self._failures: list[int] = []
        self._ended = threading.Event()
        self.requests: list[RegistryRequest] = []
        self.delay_s = 0.0
        self._server = _Server(self)
        self._scheme = "http"
        if ssl_context is not None:
            self._scheme = "https"
            self._server.socket = ssl_context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="pyclient-schema-registry", daemon=True)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it: connections are refused from now on."""
        self._ended.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(_END_TIMEOUT_S)
        self._server.server_close()

    def fail(self, status: int, times: int = 1) -> None:
        """Answer the next *times* requests with an HTTP *status* and do nothing else."""
        with self._lock:
            self._failures += [status] * times

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: open connections end too."""
        return self._ended.is_set()

    def answer(self, method: str, target: str, login: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON value for a request."""
        self._ended.wait(self.delay_s)
        with self._lock:
            try:
                status, value = 200, self._answer(method, target, login, body)
            except _RefusedError as refused:
                status, value = refused.status, {"error_code": refused.code, "message": str(refused)}
            self.requests.append(RegistryRequest(method, target, status))
        return status, value

    def _answer(self, method: str, target: str, login: str, body: bytes) -> Any:
        if self._failures:
            status = self._failures.pop(0)
            raise _RefusedError(status, status * 100 + 1, "a failure that the test asked for")
        if self._users and not self._may_enter(login):
            raise _RefusedError(401, 40101, "User cannot access the resource.")
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        for verb, pattern, handler in ROUTES:
            if verb == method and (found := re.fullmatch(pattern, parts.path.lstrip("/"))):
                return handler(self._model, {name: unquote(value) for name, value in found.groupdict().items()}, query, _json(body))
        raise _RefusedError(404, 404, "HTTP 404 Not Found")

    def _may_enter(self, login: str) -> bool:
        scheme, _, rest = login.partition(" ")
        if scheme == "Bearer":
            return self._users.get("Bearer") == rest
        pair = base64.b64decode(rest, validate=False).decode("utf-8", "replace").partition(":")
        return scheme == "Basic" and self._users.get(pair[0]) == pair[2]


def _json(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _RefusedError(400, 400, "the body is not JSON") from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, registry: FakeSchemaRegistry) -> None:
        super().__init__(("127.0.0.1", 0), _RequestHandler)
        self.registry = registry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of tests."""


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _handle(self) -> None:
        size = min(int(self.headers.get("Content-Length") or 0), MOST_BODY_BYTES)
        body = self.rfile.read(size)
        status, value = self.server.registry.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
        if self.server.registry.is_closed:
            self.close_connection = True
            return
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 names of the standard library

    def log_message(self, *_: object) -> None:
        """Requests are in `FakeSchemaRegistry.requests`."""
