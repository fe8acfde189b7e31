"""Rules of schemas: this client carries out none, so a schema that has one is refused, writing and reading."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import pytest

from pyclient.errors import ConfigurationError, SchemaRegistryError, SerializationError
from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder
from pyclient.serializers.registry import RegisteredSchema, SchemaRegistryClient, SchemaRule
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeSchemaRegistry
from tests.unit.test_registry_serdes import KINDS, serdes

ENCRYPT = {"name": "encryptPII", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}
RENAME = {"name": "renamed", "kind": "TRANSFORM", "type": "JSONATA", "mode": "UPGRADE"}
REFUSED = r"version 2 of subject 't-value' \(schema \d+\) has the rule 'encryptPII' of type ENCRYPT.*ignore_rules=\{'encryptPII'\}"


@pytest.fixture
def server() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


@pytest.fixture
def registry(server: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(server.url) as client:
        yield client


def ruled(server: FakeSchemaRegistry, kind: int, rules: dict[str, Any]) -> tuple[Any, Any]:
    """Data without rules of one kind of serde; then *rules* become version 2, and data of that is returned too."""
    with SchemaRegistryClient(server.url) as client:
        serde, value = serdes(client)[kind]
        plain = serde.serialize("t", value)
        latest = client.latest("t-value")
        body = {"schema": latest.schema.text, "schemaType": latest.schema.type, "ruleSet": rules,
                "references": [each._asdict() for each in latest.schema.references]}
        made = httpx.post(f"{server.url}/subjects/t-value/versions", json=body).json()["id"]
    return plain, plain[:1] + made.to_bytes(4, "big") + plain[5:]


def everything(registry: SchemaRegistryClient, kind: int, **options: Any) -> tuple[Any, Any]:
    return serdes(registry, **options)[kind]


@KINDS
@pytest.mark.parametrize("options", [{"use_latest": True}, {}, {"auto_register": False}, {"use_latest": True, "id_in": "headers"}])
def test_values_are_not_written_with_a_schema_that_has_a_rule(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind: int, options: dict[str, Any]) -> None:
    ruled(server, kind, {"domainRules": [ENCRYPT]})
    serde, value = everything(registry, kind, **options)
    for _ in range(2):
        with pytest.raises(SchemaRegistryError, match=REFUSED):
            serde.serialize("t", value)
    ignoring, _ = everything(registry, kind, ignore_rules={"encryptPII"}, **options)
    assert ignoring.serialize("t", value) is not None
    with pytest.raises(SchemaRegistryError, match=REFUSED):
        serde.serialize("t", value)


@KINDS
def test_data_of_a_schema_that_has_a_rule_is_not_read(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind: int) -> None:
    plain, data = ruled(server, kind, {"domainRules": [ENCRYPT]})
    serde, value = everything(registry, kind)
    for _ in range(2):
        with pytest.raises(SchemaRegistryError, match=REFUSED):
            serde.deserialize("t", data)
    with SchemaRegistryClient(server.url) as other, pytest.raises(SchemaRegistryError, match=REFUSED):
        asyncio.run(everything(other, kind)[0].prepare_deserialize_async("t", data))
    assert serde.deserialize("t", plain) == value
    assert everything(registry, kind, ignore_rules={"encryptPII"})[0].deserialize("t", data) == value
    with pytest.raises(SchemaRegistryError, match="'encryptPII'"):
        everything(registry, kind, ignore_rules={"other"})[0].deserialize("t", data)


@KINDS
def test_data_whose_header_names_a_schema_with_a_rule_is_not_read(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind: int) -> None:
    ruled(server, kind, {"domainRules": [ENCRYPT]})
    made = everything(registry, kind, use_latest=True, id_in="headers", ignore_rules={"encryptPII"})
    found = made[0].serialize("t", made[1])
    with SchemaRegistryClient(server.url) as other, pytest.raises(SchemaRegistryError, match=REFUSED):
        everything(other, kind)[0].deserialize("t", found.data, found.headers)
    with pytest.raises(SchemaRegistryError, match="'encryptPII'"):
        everything(registry, kind)[0].deserialize("t", found.data, found.headers)


@KINDS
def test_a_schema_that_was_registered_without_an_answer_about_rules_is_asked_for(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind: int) -> None:
    """Older registries answer a registration with the id, and perhaps the GUID, alone."""
    ruled(server, kind, {"domainRules": [ENCRYPT]})
    made, value = everything(registry, kind, id_in="headers", ignore_rules={"encryptPII"})
    found = made.serialize("t", value)
    known = registry.core.known_version("t-value", made._own_schema(), False)
    assert known is not None
    assert known.rules is None
    with pytest.raises(SchemaRegistryError, match="'encryptPII'"):
        everything(registry, kind)[0].deserialize("t", found.data, found.headers)


@pytest.mark.parametrize("kind_of_rules", ["domainRules", "migrationRules", "encodingRules"])
def test_rules_of_every_kind_count_and_all_must_be_ignored(server: FakeSchemaRegistry, registry: SchemaRegistryClient, kind_of_rules: str) -> None:
    _, data = ruled(server, 0, {kind_of_rules: [ENCRYPT, RENAME]})
    with pytest.raises(SchemaRegistryError, match="'renamed' of type JSONATA"):
        everything(registry, 0, ignore_rules={"encryptPII"})[0].deserialize("t", data)
    assert everything(registry, 0, ignore_rules=["encryptPII", "renamed"])[0].deserialize("t", data) == {"id": 7}


def test_disabled_rules_and_empty_sets_do_not_count(server: FakeSchemaRegistry, registry: SchemaRegistryClient) -> None:
    _, data = ruled(server, 0, {"domainRules": [{**ENCRYPT, "disabled": True}], "migrationRules": [], "encodingRules": None})
    assert registry.latest("t-value").rules == (SchemaRule("encryptPII", "ENCRYPT", is_disabled=True),)
    assert everything(registry, 0)[0].deserialize("t", data) == {"id": 7}


@pytest.mark.parametrize("rules", [[ENCRYPT], {"domainRules": [{"type": "ENCRYPT"}]}, {"domainRules": ["encrypt"]}, {"domainRules": 5}, "ENCRYPT"])
def test_a_set_of_rules_that_cannot_be_read_is_refused(server: FakeSchemaRegistry, registry: SchemaRegistryClient, rules: Any) -> None:
    _, data = ruled(server, 0, rules)
    with pytest.raises(SchemaRegistryError, match="a ruleSet of rules with names"):
        everything(registry, 0)[0].deserialize("t", data)


def test_a_registry_that_names_no_places_of_a_schema_gets_the_id_named(server: FakeSchemaRegistry, registry: SchemaRegistryClient) -> None:
    made = RegisteredSchema(7, registry_schema := registry.register("x", serdes(registry)[0][0]._own_schema()).schema, rules=(SchemaRule("r", "CEL"),))
    registry.core._by_id[None, 7] = made
    assert registry_schema.type == "AVRO"
    with pytest.raises(SchemaRegistryError, match="^schema 7 has the rule 'r' of type CEL"):
        everything(registry, 0)[0].deserialize("t", b"\x00\x00\x00\x00\x07\x0e")


def test_columns_are_neither_read_nor_written_and_never_null(server: FakeSchemaRegistry, registry: SchemaRegistryClient) -> None:
    pa = pytest.importorskip("pyarrow")
    _, data = ruled(server, 0, {"domainRules": [ENCRYPT]})
    serde = everything(registry, 0)[0]
    record: Any = lambda row: type("Row", (), {"topic": "t", "partition": 0, "offset": row})  # noqa: E731 all that is asked of a record
    modes: tuple[Literal["raise", "null"], ...] = ("raise", "null")
    for on_error in modes:
        with pytest.raises(SchemaRegistryError, match=REFUSED):
            AvroDecoder(serde, on_error=on_error).decode(pa.array([data]), None, record, is_key=False)
    with pytest.raises(SchemaRegistryError, match=REFUSED):
        AvroEncoder(AvroRegistrySerde(registry, use_latest=True)).prepare("t", is_key=False)
    values, _ = AvroDecoder(everything(registry, 0, ignore_rules={"encryptPII"})[0]).decode(pa.array([data]), None, record, is_key=False)
    assert values.to_pylist() == [{"id": 7}]


def test_one_name_that_is_no_set_is_refused(registry: SchemaRegistryClient) -> None:
    with pytest.raises(ConfigurationError, match=r"ignore_rules = 'a': expected a set of names, such as \{'a'\}"):
        everything(registry, 0, ignore_rules="a")


def test_protobuf_without_a_check_of_ids_reads_without_the_registry(server: FakeSchemaRegistry, registry: SchemaRegistryClient) -> None:
    from pyclient.serializers.registry_protobuf import ProtobufRegistrySerde
    from tests.protobuf_messages import Order

    _, data = ruled(server, 2, {"domainRules": [ENCRYPT]})
    read = ProtobufRegistrySerde(registry, Order, check_id=False).deserialize("t", data)
    assert read is not None
    assert read.id == 7
    with pytest.raises(SerializationError, match="Schema 99 not found"):
        ProtobufRegistrySerde(registry, Order).deserialize("t", b"\x00\x00\x00\x00\x63\x00")
