"""`FakeSchemaRegistry` beside a real registry: the same script of requests, the same statuses, codes and values."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx
import pytest

from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.serializers.registry_json import JsonSchemaRegistrySerde
from pyclient.serializers.registry_protobuf import ProtobufRegistrySerde
from pyclient.testing import FakeSchemaRegistry
from tests.protobuf_messages import Detail, Money, Order
from tests.registry_server import real_registry


class Answers(NamedTuple):
    """What both registries answered, one line per request."""

    fake: list[str]
    real: list[str]


def record(*fields: tuple[str, str], **defaults: Any) -> str:
    made = [{"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": made})


A, A_B, A_B_DEFAULT, A_TEXT = record(("a", "int")), record(("a", "int"), ("b", "int")), record(("a", "int"), ("b", "int"), b=1), record(("a", "string"))
JSON: Final = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
PROTO: Final = 'syntax = "proto3"; message M { int32 a = 1; }'
SCRIPT: Final[list[tuple[str, str, Any]]] = [
    ("GET", "subjects", None),
    ("PUT", "config", {"compatibility": "BACKWARD"}),
    ("GET", "config", None),
    ("POST", "subjects/s/versions", {"schema": A}),
    ("POST", "subjects/s/versions", {"schema": A}),
    ("POST", "subjects/s/versions", {"schema": A, "schemaType": "AVRO"}),
    ("POST", "subjects/other/versions", {"schema": A}),
    ("POST", "subjects/s", {"schema": A}),
    ("POST", "subjects/s", {"schema": A_TEXT}),
    ("POST", "subjects/nothing", {"schema": A}),
    ("GET", "subjects", None),
    ("GET", "subjects/s/versions", None),
    ("GET", "subjects/s/versions/1", None),
    ("GET", "subjects/s/versions/latest", None),
    ("GET", "subjects/s/versions/9", None),
    ("GET", "subjects/nothing/versions", None),
    ("GET", "subjects/nothing/versions/latest", None),
    ("GET", "schemas/ids/1", None),
    ("GET", "schemas/ids/999", None),
    ("GET", "schemas/ids/1/versions", None),
    ("POST", "compatibility/subjects/s/versions/latest", {"schema": A_B_DEFAULT}),
    ("POST", "compatibility/subjects/s/versions/latest", {"schema": A_B}),
    ("POST", "compatibility/subjects/s/versions/latest", {"schema": A_TEXT}),
    ("POST", "compatibility/subjects/nothing/versions/latest", {"schema": A}),
    ("POST", "subjects/s/versions", {"schema": A_TEXT}),
    ("POST", "subjects/s/versions", {"schema": A_B_DEFAULT}),
    ("GET", "subjects/s/versions/latest", None),
    ("PUT", "config/s", {"compatibility": "FORWARD"}),
    ("GET", "config/s", None),
    ("POST", "compatibility/subjects/s/versions/latest", {"schema": record(("a", "long"), ("b", "int"))}),
    ("POST", "compatibility/subjects/s/versions/latest", {"schema": A}),
    ("PUT", "config/s", {"compatibility": "NONE"}),
    ("POST", "subjects/s/versions", {"schema": A_TEXT}),
    ("PUT", "config", {"compatibility": "SOMETIMES"}),
    ("POST", "subjects/s/versions", {"schema": "{"}),
    ("POST", "subjects/json/versions", {"schema": JSON, "schemaType": "JSON"}),
    ("GET", "subjects/json/versions/1", None),
    ("POST", "subjects/proto/versions", {"schema": PROTO, "schemaType": "PROTOBUF"}),
    ("GET", "subjects/proto/versions/1", None),
    ("POST", "subjects/list/versions", {"schema": '{"type":"record","name":"L","fields":[{"name":"o","type":"Order"}]}',
                                        "references": [{"name": "Order", "subject": "other", "version": 1}]}),
    ("GET", "subjects/list/versions/1", None),
    ("DELETE", "subjects/s", None),
    ("DELETE", "subjects/nothing", None),
    ("GET", "subjects", None),
    ("GET", "subjects/s/versions", None),
    ("GET", "elsewhere", None),
]


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with real_registry() as url:
        yield url


@pytest.fixture(scope="module")
def answers(real: str) -> Answers:
    with FakeSchemaRegistry() as fake:
        return Answers(_played(fake.url), _played(real))


def _played(url: str) -> list[str]:
    with httpx.Client() as client:
        ids: list[int] = []
        return [_shown(client.request(method, f"{url}/{path}", json=body), ids) for method, path, body in SCRIPT]


def _shown(answer: httpx.Response, ids: list[int]) -> str:
    """Status and value, without what may differ: texts of errors, GUIDs, spaces of schemas, the configuration's extras.

    Ids are numbered in the order in which they appear: a refused schema takes one in some registries.
    """
    value = answer.json() if answer.content else None
    if isinstance(value, dict):
        value = {key: _normal(key, each, ids) for key, each in value.items() if key not in ("message", "guid", "normalize", "messages")}
    if answer.status_code == httpx.codes.NOT_FOUND and (value is None or value.get("error_code") == 404):
        value = None  # no such path: some registries answer it with a body
    return f"{answer.status_code} {json.dumps(value, sort_keys=True)}"


def _normal(key: str, value: Any, ids: list[int]) -> Any:
    if key == "id":
        ids += [] if value in ids else [value]
        return ids.index(value)
    return value if key != "schema" or not value.startswith(("{", "[")) else json.loads(value)


@pytest.mark.parametrize("at", range(len(SCRIPT)), ids=[f"{at}-{method}-{path}".replace("/", "-") for at, (method, path, _) in enumerate(SCRIPT)])
def test_the_fake_registry_answers_as_a_real_one(answers: Answers, at: int) -> None:
    assert answers.fake[at] == answers.real[at]


def test_serdes_work_with_a_real_registry(real: str) -> None:
    with SchemaRegistryClient(real) as registry:
        for serde, value in ((AvroRegistrySerde(registry, A), {"a": 1}), (JsonSchemaRegistrySerde(registry, JSON), {"a": 1}),
                             (ProtobufRegistrySerde(registry, Order), Order(id=1, total=Money(cents=2))), (ProtobufRegistrySerde(registry, Detail), Detail(text="x"))):
            topic = f"{serde.TYPE}-{type(value).__name__}"
            reader = type(serde)(registry, type(value)) if isinstance(serde, ProtobufRegistrySerde) else serde
            assert reader.deserialize(topic, serde.serialize(topic, value)) == value
