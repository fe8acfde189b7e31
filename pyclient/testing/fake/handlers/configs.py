"""DescribeConfigs and IncrementalAlterConfigs: a topic's settings can be changed, a broker's are only shown."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.handlers.topics import has_eligible_leaders, name_problem
from pyclient.testing.fake.model.kafka import Kafka, Topic
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.settings import Settings
from pyclient.testing.fake.model.topic_config import (
    APPEND,
    BOOLEAN,
    DEFAULT,
    DELETE,
    DOUBLE,
    INT,
    LONG,
    SET,
    STATIC_BROKER,
    STRING,
    SUBTRACT,
    Effective,
    InvalidConfigError,
    altered,
    effective,
    text,
)

OPERATIONS: Final = (SET, DELETE, APPEND, SUBTRACT)
TOPIC: Final = 2
BROKER: Final = 4
OWN: Final = ("replica_lag_ms", "failure_detection_ms", "coordinator_load_ms", "regex_refresh_min_ms")
"""Settings that no real broker has."""
DYNAMIC: Final = frozenset({
    "message.max.bytes", "min.insync.replicas", "unclean.leader.election.enable", "log.message.timestamp.type",
    "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms", "producer.id.expiration.ms", "log.retention.bytes"})
"""Broker settings that are dynamic in a real broker. The model cannot change them either, but does not say so."""
LONGS: Final = frozenset({
    "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms", "log.retention.bytes", "replica.lag.time.max.ms"})
KINDS: Final = {bool: BOOLEAN, int: INT, float: DOUBLE, str: STRING}
MALFORMED: Final = ("This most likely occurs because of a request being malformed by the client library or the message was sent to an "
                    "incompatible broker. See the broker logs for more details.")


# ---- describing ------------------------------------------------------------------------------------------------------


def describe_configs(kafka: Kafka, request: Request) -> Fields:
    """Every setting of each resource, or those named."""
    return {"throttle_time": 0, "results": [_described(kafka, request, each) for each in request.body.resources]}


def refuse_describe_configs(request: Request, code: int) -> Fields:
    """The error for every resource."""
    return {"throttle_time": 0, "results": [_result(each, code, None, []) for each in request.body.resources]}


def _described(kafka: Kafka, request: Request, resource: Any) -> Fields:
    try:
        found = list(_configs(kafka, request, resource))
    except RefusalError as refused:
        return _result(resource, refused.code, refused.message, [])
    return _result(resource, 0, "", found)


def _result(resource: Any, code: int, message: str | None, configs: list[Fields]) -> Fields:
    return {"error_code": code, "error_message": message, "resource_type": resource.resource_type,
            "resource_name": resource.resource_name, "configs": configs}


def _configs(kafka: Kafka, request: Request, resource: Any) -> Iterator[Fields]:
    wanted: Collection[str] = resource.configuration_keys or ()
    if resource.resource_type == TOPIC:
        topic = _topic(kafka, resource.resource_name, "")
        for each in effective(topic.config, kafka.settings, eligible_leaders=has_eligible_leaders(kafka)):
            if not wanted or each.setting.name in wanted:
                yield _topic_config(each, synonyms=request.body.include_synonyms)
    elif resource.resource_type == BROKER:
        _check_broker(request, resource.resource_name, "Broker id", f"{request.broker} or empty string")
        yield from (each for each in _broker_configs(kafka, resource.resource_name, synonyms=request.body.include_synonyms)
                    if not wanted or each["name"] in wanted)
    else:
        raise RefusalError(ErrorCode.invalid_request, MALFORMED)


def _topic(kafka: Kafka, name: str, unknown: str) -> Topic:
    problem = name_problem(name)
    if problem is not None:
        raise RefusalError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")
    topic = kafka.topics.get(name)
    if topic is None:
        raise RefusalError(ErrorCode.unknown_topic_or_partition, unknown)
    return topic


def _check_broker(request: Request, name: str, what: str, expected: str) -> None:
    if name and not name.isdecimal():
        raise RefusalError(ErrorCode.invalid_request, f"{what} must be an integer, but it is: {name}")
    if name and int(name) != request.broker:
        raise RefusalError(ErrorCode.invalid_request, f"Unexpected broker id, expected {expected}, but received {name}")


def _topic_config(each: Effective, *, synonyms: bool) -> Fields:
    return {"name": each.setting.name, "value": each.value, "read_only": False, "config_source": each.source, "is_sensitive": False,
            "synonyms": [{"name": name, "value": value, "source": source} for name, value, source in each.synonyms] if synonyms else [],
            "config_type": each.setting.kind, "documentation": None}


def _broker_configs(kafka: Kafka, name: str, *, synonyms: bool) -> Iterator[Fields]:
    """Those the model knows; the cluster's defaults (no name) are not set here."""
    for field in attrs.fields(Settings) if name else ():
        if field.name not in OWN:
            yield _broker_config(field.name.replace("_", "."), getattr(kafka.settings, field.name), field.default, synonyms=synonyms)


def _broker_config(name: str, value: object, default: object, *, synonyms: bool) -> Fields:
    source = DEFAULT if value == default else STATIC_BROKER
    others = dict.fromkeys([(source, text(value)), (DEFAULT, text(default))]) if synonyms else ()
    return {"name": name, "value": text(value), "read_only": name not in DYNAMIC, "config_source": source, "is_sensitive": False,
            "synonyms": [{"name": name, "value": each, "source": origin} for origin, each in others],
            "config_type": LONG if name in LONGS else KINDS[type(default)], "documentation": None}


# ---- altering --------------------------------------------------------------------------------------------------------


def incremental_alter_configs(kafka: Kafka, request: Request) -> Fields:
    """All changes of a resource, or none."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.body.resources)
    return {"throttle_time": 0, "responses": [
        _altered(kafka, request, each) if counts[each.resource_type, each.resource_name] == 1
        else _changed(each, ErrorCode.invalid_request, "Each resource must appear at most once.") for each in request.body.resources]}


def refuse_incremental_alter_configs(request: Request, code: int) -> Fields:
    """The error for every resource."""
    return {"throttle_time": 0, "responses": [_changed(each, code, None) for each in request.body.resources]}


def _changed(resource: Any, code: int, message: str | None) -> Fields:
    return {"error_code": code, "error_message": message, "resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _altered(kafka: Kafka, request: Request, resource: Any) -> Fields:
    try:
        _alter(kafka, request, resource)
    except RefusalError as refused:
        return _changed(resource, refused.code, refused.message)
    except InvalidConfigError as invalid:
        return _changed(resource, ErrorCode.invalid_config, str(invalid))
    return _changed(resource, 0, None)


def _alter(kafka: Kafka, request: Request, resource: Any) -> None:
    names = [each.name for each in resource.configs]
    nulls = [each.name for each in resource.configs if each.config_operation != DELETE and each.value is None]
    if any(each.config_operation not in OPERATIONS for each in resource.configs):
        raise RefusalError(ErrorCode.unknown_server_error)
    if len(set(names)) < len(names):
        raise RefusalError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    if nulls:
        raise RefusalError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type == BROKER:
        _check_broker(request, resource.resource_name, "Node id", str(request.broker))
        raise RefusalError(ErrorCode.invalid_request, f"Cannot update these configs dynamically: [{', '.join(names)}]")
    if resource.resource_type != TOPIC:
        raise RefusalError(ErrorCode.invalid_request, f"Unknown resource type {resource.resource_type}")
    if not resource.resource_name:
        raise RefusalError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    topic = _topic(kafka, resource.resource_name, f"The topic '{resource.resource_name}' does not exist.")
    config = altered(topic.config, [(each.name, each.config_operation, each.value) for each in resource.configs])
    if not request.body.validate_only:
        topic.config = config
        kafka.report("config altered", topic=topic.name, config=config)
