"""ApiVersions, Metadata, DescribeCluster."""
from __future__ import annotations

from typing import Final

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import topic
from tests.broker.conformance.script import Script, Step, Value, got, named
from uuid import UUID

UNKNOWN_ID: Final = UUID(int=0x1234)


def versions(name: str = "", **fields: object) -> dict[str, object]:
    return {"client_software_name": "pyclient", "client_software_version": "1.0", **fields}


API_VERSIONS: Final = Script(name="api-versions", api=Api.API_VERSIONS, acts=(
    Step(api=Api.API_VERSIONS, fields=versions()),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(client_software_name="")),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(client_software_name="-pyclient")),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(client_software_name="py client")),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(client_software_version="1.0-")),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(client_software_version="1.0+local")),
    Step(api=Api.API_VERSIONS, since=3, fields=versions(), announced=99, answered_in=0),
    Step(api=Api.API_VERSIONS, fields=versions()),
))


def metadata(topics: Value, *, creates: bool = False, operations: bool = False) -> dict[str, Value]:
    return {"topics": topics, "allow_auto_topic_creation": creates, "include_cluster_authorized_operations": operations,
            "include_topic_authorized_operations": operations}


def by_name(*names: Value) -> list[dict[str, Value]]:
    return [{"topic_id": None, "name": name} for name in names]


def by_id(*ids: Value) -> list[dict[str, Value]]:
    return [{"topic_id": each, "name": None} for each in ids]


METADATA: Final = Script(name="metadata", api=Api.METADATA, acts=(
    *topic("one"), *topic("three", partitions=3),
    Step(api=Api.METADATA, fields=metadata(None), since=1),
    Step(api=Api.METADATA, fields=metadata([])),
    Step(api=Api.METADATA, name="known", fields=metadata(by_name(named("one"), named("three")))),
    Step(api=Api.METADATA, fields=metadata(by_name(named("three"), named("one"), named("three")))),
    Step(api=Api.METADATA, since=4, fields=metadata(by_name(named("unknown"), named("one")))),
    Step(api=Api.METADATA, fields=metadata(by_name("", ".", "..", "a b", "x" * 250, "x" * 249 + "é"), creates=True)),
    Step(api=Api.METADATA, since=4, fields=metadata(by_name("y" * 249))),
    Step(api=Api.METADATA, since=8, fields=metadata(by_name(named("one")), operations=True)),
    Step(api=Api.METADATA, since=12, fields=metadata(by_id(got("known", "topics", 0, "topic_id"), UNKNOWN_ID))),
    Step(api=Api.METADATA, since=12, fields=metadata([*by_name(named("three")), *by_id(got("known", "topics", 0, "topic_id"))])),
    Step(api=Api.METADATA, since=10, until=11, fields=metadata([{"topic_id": UNKNOWN_ID, "name": "both"}])),
    Step(api=Api.METADATA, since=12, fields=metadata([{"topic_id": got("known", "topics", 0, "topic_id"), "name": named("one")}])),
))
CREATED_BY_METADATA: Final = Script(name="auto-create", api=Api.METADATA, acts=(
    Step(api=Api.METADATA, fields=metadata(by_name(named("new"), "_.bad name"), creates=True)),
    Step(api=Api.METADATA, fields=metadata(by_name(named("new")), creates=False),
         ready=lambda answer: answer["topics"][0]["error_code"] == "none"),
    Step(api=Api.METADATA, fields=metadata(by_name(named("new")), creates=True)),
))
DESCRIBE_CLUSTER: Final = Script(name="describe-cluster", api=Api.DESCRIBE_CLUSTER, acts=(
    *(Step(api=Api.DESCRIBE_CLUSTER, fields={
        "include_cluster_authorized_operations": operations, "endpoint_type": 1, "include_fenced_brokers": False})
      for operations in (False, True)),
    Step(api=Api.DESCRIBE_CLUSTER, since=1, fields={
        "include_cluster_authorized_operations": False, "endpoint_type": 2, "include_fenced_brokers": False}),
    Step(api=Api.DESCRIBE_CLUSTER, since=1, fields={
        "include_cluster_authorized_operations": False, "endpoint_type": 77, "include_fenced_brokers": False}),
    Step(api=Api.DESCRIBE_CLUSTER, since=2, fields={
        "include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}),
))
SCRIPTS: Final = (API_VERSIONS, METADATA, CREATED_BY_METADATA, DESCRIBE_CLUSTER)
