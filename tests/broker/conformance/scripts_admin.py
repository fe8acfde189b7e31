"""Topics made, grown and deleted; their configuration; producer ids."""
from __future__ import annotations

from typing import Final
from uuid import UUID

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import topic, topic_id
from tests.broker.conformance.script import Script, Step, Value, all_ok, named

UNKNOWN_ID: Final = UUID(int=0x1234)
IDS_SINCE: Final = 6
TOPIC: Final = 2
BROKER: Final = 4
OURS: Final = named("topic")


def new(name: Value, partitions: int = 1, replicas: int = 1, placed: tuple[tuple[int, ...], ...] = (), **configs: str | None) -> Value:
    """One topic to make; *placed* are the brokers of each partition."""
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas,
            "assignments": [{"partition_index": index, "broker_ids": list(each)} for index, each in enumerate(placed)],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]}


def create(*topics: Value, only_check: bool = False, since: int = 0) -> Step:
    return Step(api=Api.CREATE_TOPICS, since=since, fields={"topics": list(topics), "timeout": 10_000, "validate_only": only_check})


CREATED: Final = Script(name="create-topics", api=Api.CREATE_TOPICS, acts=(
    create(new(named("one"))), create(new(named("one"))), create(new(named("two"), 3), new(named("three"), 2, cleanup_policy="compact")),
    create(new(named("checked")), only_check=True), create(new(named("checked"))),
    create(new(named("default"), -1, -1), since=4), create(new(named("none"), 0)), create(new(named("negative"), -5)),
    create(new(named("replicas"), 1, 9)), create(new(named("no replicas"), 1, 0)), create(new(named("less"), 1, -3)),
    create(new("")), create(new(".")), create(new("..")), create(new("a b")), create(new("x" * 250)),
    create(new(named("placed"), -1, -1, ((1,), (1,)))), create(new(named("both"), 2, 1, ((1,), (1,)))),
    create(new(named("elsewhere"), -1, -1, ((7,),))), create(new(named("uneven"), -1, -1, ((1,), ()))),
    create(new(named("twice there"), -1, -1, ((1, 1),))),
    create(new(named("odd"), nonsense_key="1")), create(new(named("bad"), retention_ms="soon")), create(new(named("null"), retention_ms=None)),
    create(new(named("low"), max_message_bytes="-1")), create(new(named("wrong"), cleanup_policy="burn")),
    create(new(named("high"), max_message_bytes="3000000000")), create(new(named("ratio"), min_cleanable_dirty_ratio="2")),
    create(new(named("switch"), preallocate="maybe")),
    create(new(named("same")), new(named("same"))), create(),
    create(new(named("x.y"))), create(new(named("x_y"))),
))


def delete(*names: Value, since: int = 0, **fields: Value) -> Step:
    return Step(api=Api.DELETE_TOPICS, since=since, fields={
        "topic_names": list(names), "timeout": 10_000, "topics": [{"name": each, "topic_id": None} for each in names], **fields})


DELETED: Final = Script(name="delete-topics", api=Api.DELETE_TOPICS, acts=(
    *topic("topic"), *topic("other"), *topic("third"),
    delete("unknown"), delete(), delete("a b"), delete(named("topic")), delete(named("topic")), delete(named("other"), "unknown"),
    delete(since=IDS_SINCE, topics=[{"name": None, "topic_id": topic_id("third")}]),
    delete(since=IDS_SINCE, topics=[{"name": None, "topic_id": topic_id("third")}, {"name": None, "topic_id": UNKNOWN_ID}]),
    delete(since=IDS_SINCE, topics=[{"name": "both", "topic_id": UNKNOWN_ID}]),
))


def grow(count: int, name: Value = OURS, placed: tuple[tuple[int, ...], ...] | None = None, *, only_check: bool = False) -> Step:
    return Step(api=Api.CREATE_PARTITIONS, fields={"timeout": 10_000, "validate_only": only_check, "topics": [
        {"name": name, "count": count, "assignments": None if placed is None else [{"broker_ids": list(each)} for each in placed]}]})


GROWN: Final = Script(name="create-partitions", api=Api.CREATE_PARTITIONS, acts=(
    *topic("topic"), grow(1), grow(0), grow(-1), grow(2, only_check=True), grow(2), grow(2), grow(1), grow(4, placed=((1,), (1,))),
    grow(6, placed=((1,),)), grow(5, placed=((7,),)), grow(5, placed=((1, 1),)), grow(5, placed=((),)), grow(2, "unknown"), grow(2, "a b"),
    Step(api=Api.CREATE_PARTITIONS, fields={"timeout": 10_000, "validate_only": False, "topics": []}),
    Step(api=Api.METADATA, fields={"topics": [{"topic_id": None, "name": named("topic")}], "allow_auto_topic_creation": False,
                                   "include_topic_authorized_operations": False, "include_cluster_authorized_operations": False},
         ready=lambda answer: len(answer["topics"][0]["partitions"]) == 4),
    Step(api=Api.DESCRIBE_TOPIC_PARTITIONS, fields={"topics": [{"name": named("topic")}], "response_partition_limit": 3, "cursor": None}),
))


def partitions_of(*names: Value, limit: int = 2000, cursor: Value = None) -> Step:
    return Step(api=Api.DESCRIBE_TOPIC_PARTITIONS, fields={
        "topics": [{"name": each} for each in names], "response_partition_limit": limit, "cursor": cursor})


PAGED: Final = Script(name="describe-topic-partitions", api=Api.DESCRIBE_TOPIC_PARTITIONS, acts=(
    *topic("a", 3), *topic("b", 2),
    partitions_of(named("a"), named("b")), partitions_of(named("b"), named("a")), partitions_of(named("a"), named("b"), limit=2),
    partitions_of(named("a"), named("b"), limit=4), partitions_of(named("a"), named("b"), limit=3), partitions_of(named("a"), limit=0),
    partitions_of(named("a"), named("b"), cursor={"topic_name": named("a"), "partition_index": 1}),
    partitions_of(named("a"), named("b"), cursor={"topic_name": named("b"), "partition_index": 0}),
    partitions_of("unknown"), partitions_of(named("a"), "unknown", "a b"), partitions_of(named("a"), named("a")),
))


def configs(kind: int, name: Value, *keys: str, synonyms: bool = False) -> Step:
    return Step(api=Api.DESCRIBE_CONFIGS, fields={"include_synonyms": synonyms, "include_documentation": False, "resources": [
        {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}]})


SOME: Final = ("retention.bytes", "cleanup.policy", "min.insync.replicas", "max.message.bytes", "message.timestamp.type")
CONFIGURED: Final = Script(name="describe-configs", api=Api.DESCRIBE_CONFIGS, acts=(
    *topic("topic", cleanup_policy="compact", max_message_bytes="12345"),
    *(configs(TOPIC, named("topic"), each) for each in SOME),
    configs(TOPIC, named("topic"), "cleanup.policy", synonyms=True), configs(TOPIC, named("topic"), "retention.bytes", synonyms=True),
    configs(TOPIC, named("topic"), "nonsense"), configs(TOPIC, "unknown", "cleanup.policy"), configs(TOPIC, "a b"), configs(TOPIC, ""),
    configs(BROKER, "1", "message.max.bytes"), configs(BROKER, "7", "message.max.bytes"), configs(BROKER, "x", "message.max.bytes"),
    configs(BROKER, "1", "log.message.timestamp.after.max.ms"), configs(BROKER, "1", "replica.lag.time.max.ms"),
    configs(BROKER, "1", "auto.create.topics.enable"), configs(77, "x"),
))


def alter(*changes: tuple[str, int, str | None], name: Value = OURS, kind: int = TOPIC, only_check: bool = False) -> Step:
    return Step(api=Api.INCREMENTAL_ALTER_CONFIGS, fields={"validate_only": only_check, "resources": [
        {"resource_type": kind, "resource_name": name, "configs": [
            {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]}]})


SET, DELETE, APPEND, SUBTRACT = range(4)
ALTERED: Final = Script(name="alter-configs", api=Api.INCREMENTAL_ALTER_CONFIGS, acts=(
    *topic("topic"),
    alter(("retention.bytes", SET, "1000"), only_check=True), alter(("retention.bytes", SET, "1000")), alter(("cleanup.policy", APPEND, "compact")),
    alter(("cleanup.policy", SUBTRACT, "delete")), alter(("retention.bytes", DELETE, None)), alter(("retention.bytes", SET, None)),
    alter(("retention.bytes", SET, "much")), alter(("nonsense", SET, "1")), alter(("retention.bytes", APPEND, "1")),
    alter(("retention.bytes", 9, "1")), alter(("retention.bytes", SET, "1"), ("retention.bytes", SET, "2")), alter(),
    alter(("retention.bytes", SET, "1"), name="unknown"), alter(("retention.bytes", SET, "1"), name="a b"),
    alter(("retention.bytes", SET, "1"), kind=77),
    Step(api=Api.DESCRIBE_CONFIGS, fields=configs(TOPIC, named("topic"), "cleanup.policy").fields,
         ready=lambda answer: answer["results"][0]["configs"][0]["value"] == "compact"),
    configs(TOPIC, named("topic"), "cleanup.policy"),
))


def ids(producer_id: int = -1, epoch: int = -1, timeout: int = 60_000, transactional: str | None = None, since: int = 0) -> Step:
    return Step(api=Api.INIT_PRODUCER_ID, since=since, fields={
        "transactional_id": transactional, "transaction_timeout": timeout, "producer_id": producer_id, "producer_epoch": epoch,
        "enable2_pc": False, "keep_prepared_txn": False})


IDS: Final = Script(name="init-producer-id", api=Api.INIT_PRODUCER_ID, acts=(
    Step(api=Api.INIT_PRODUCER_ID, fields=ids().fields, ready=all_ok),
    ids(), ids(), ids(timeout=-1), ids(timeout=0), ids(timeout=2**31 - 1), ids(transactional=""), ids(5, 3, since=3), ids(-1, 3, since=3), ids(5, since=3),
))
SCRIPTS: Final = (CREATED, DELETED, GROWN, PAGED, CONFIGURED, ALTERED, IDS)
