"""CreateTopics, DeleteTopics, CreatePartitions: with the checks, their order and the messages of a real controller."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.handlers.metadata import TOPIC_NAME
from pyclient.testing.fake.model.kafka import Kafka, Topic
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.topic_config import InvalidConfigError, check, effective

LONGEST_NAME: Final = 249
OMITTED: Final = -1
DELETE_BY_ID_SINCE: Final = 6
DUPLICATE: Final = "Duplicate topic name."


# ---- creating --------------------------------------------------------------------------------------------------------


def create_topics(kafka: Kafka, request: Request) -> Fields:
    """All or nothing for each topic, not for all of them."""
    counts = Counter(each.name for each in request.body.topics)
    return {"throttle_time": 0, "topics": [
        _created(kafka, request, each) if counts[each.name] == 1 else _not_created(each.name, ErrorCode.invalid_request, DUPLICATE)
        for each in _once(request.body.topics)]}


def refuse_create_topics(request: Request, code: int) -> Fields:
    """The error for every topic."""
    return {"throttle_time": 0, "topics": [_not_created(each.name, code, None) for each in request.body.topics]}


def _once(topics: Iterable[Any]) -> list[Any]:
    return list({each.name: each for each in topics}.values())


def _created(kafka: Kafka, request: Request, wanted: Any) -> Fields:
    try:
        _check_new_name(kafka, wanted.name)
        replicas = _new_replicas(kafka, wanted)
        config = {each.name: each.value for each in wanted.configs}
        check(config)
    except RefusalError as refused:
        return _not_created(wanted.name, refused.code, refused.message)
    except InvalidConfigError as invalid:
        return _not_created(wanted.name, ErrorCode.invalid_config, str(invalid))
    if request.body.validate_only:
        topic_id = UUID(int=kafka.random.getrandbits(128), version=4)
    else:
        topic_id = kafka.create_topic(wanted.name, replicas=replicas, config=config).id
    return {"name": wanted.name, "topic_id": topic_id, "error_code": 0, "error_message": None, "topic_config_error_code": 0,
            "num_partitions": len(replicas), "replication_factor": len(replicas[0]), "configs": [
                {"name": each.setting.name, "value": each.value, "read_only": False, "config_source": each.source, "is_sensitive": False}
                for each in effective(config, kafka.settings, eligible_leaders=has_eligible_leaders(kafka))]}


def _not_created(name: str, code: int, message: str | None) -> Fields:
    return {"name": name, "topic_id": None, "error_code": code, "error_message": message, "topic_config_error_code": 0,
            "num_partitions": OMITTED, "replication_factor": OMITTED, "configs": []}


def has_eligible_leaders(kafka: Kafka) -> bool:
    """Whether eligible leader replicas (KIP-966) are on."""
    return kafka.profile.features.get("eligible.leader.replicas.version", (0, 0, 0))[2] > 0


def _check_new_name(kafka: Kafka, name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise RefusalError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")
    if name in kafka.topics:
        raise RefusalError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    folded = name.replace(".", "_")
    twin = next((each for each in kafka.topics if each.replace(".", "_") == folded), None) if "_" in folded else None
    if twin is not None:
        raise RefusalError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {twin}")


def name_problem(name: str) -> str | None:
    """Why no topic can have this name."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > LONGEST_NAME:
        return f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    if TOPIC_NAME.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def _new_replicas(kafka: Kafka, wanted: Any) -> list[list[int]]:
    if wanted.assignments:
        return _assigned(kafka, wanted)
    if wanted.replication_factor < OMITTED or wanted.replication_factor == 0:
        raise RefusalError(ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0, or -1 to use the default value.")
    if wanted.num_partitions < OMITTED or wanted.num_partitions == 0:
        raise RefusalError(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    count = kafka.settings.num_partitions if wanted.num_partitions == OMITTED else wanted.num_partitions
    if wanted.replication_factor > len(kafka.brokers):
        raise RefusalError(ErrorCode.invalid_replication_factor, _too_few_brokers(kafka, wanted.replication_factor))
    factor = kafka.settings.default_replication_factor if wanted.replication_factor == OMITTED else wanted.replication_factor
    return kafka.placed(len(kafka.topics), count, factor)


def _too_few_brokers(kafka: Kafka, factor: int) -> str:
    return (f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be reached because only "
            f"{len(kafka.brokers)} broker(s) are registered or some brokers have all their log directories cordoned.")


def _assigned(kafka: Kafka, wanted: Any) -> list[list[int]]:
    if wanted.replication_factor != OMITTED:
        raise RefusalError(ErrorCode.invalid_request, "A manual partition assignment was specified, but replication factor was not set to -1.")
    if wanted.num_partitions != OMITTED:
        raise RefusalError(ErrorCode.invalid_request, "A manual partition assignment was specified, but numPartitions was not set to -1.")
    replicas: dict[int, list[int]] = {}
    for each in wanted.assignments:
        if each.partition_index in replicas:
            raise RefusalError(ErrorCode.invalid_replica_assignment, f"Found multiple manual partition assignments for partition {each.partition_index}")
        size = len(next(iter(replicas.values()))) if replicas else None
        replicas[each.partition_index] = _checked_replicas(kafka, each.broker_ids, size)
    if sorted(replicas) != list(range(len(replicas))):
        raise RefusalError(ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence")
    return [replicas[index] for index in range(len(replicas))]


def _checked_replicas(kafka: Kafka, brokers: Sequence[int], size: int | None = None) -> list[int]:
    if not brokers:
        raise RefusalError(ErrorCode.invalid_replica_assignment, "The manual partition assignment includes an empty replica list.")
    for place, broker in enumerate(ordered := sorted(brokers)):
        if broker not in kafka.brokers:
            raise RefusalError(ErrorCode.invalid_replica_assignment,
                          f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
        if place and ordered[place - 1] == broker:
            raise RefusalError(ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes the broker {broker} more than once.")
    if size is not None and len(brokers) != size:
        raise RefusalError(ErrorCode.invalid_replica_assignment,
                      f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not consistent "
                      f"with previous partitions, which have {size} replica(s).")
    return list(brokers)


# ---- deleting --------------------------------------------------------------------------------------------------------


def delete_topics(kafka: Kafka, request: Request) -> Fields:
    """By name, or since version 6 by id."""
    wanted = _to_delete(request)
    counts = Counter(wanted)
    return {"throttle_time": 0, "responses": [
        _deleted(kafka, name, topic_id) if counts[name, topic_id] == 1 else _not_deleted(name, topic_id, ErrorCode.invalid_request, DUPLICATE)
        for name, topic_id in dict.fromkeys(wanted)]}


def refuse_delete_topics(request: Request, code: int) -> Fields:
    """The error for every topic."""
    return {"throttle_time": 0, "responses": [_not_deleted(name, topic_id, code, None) for name, topic_id in _to_delete(request)]}


def _to_delete(request: Request) -> list[tuple[Any, Any]]:
    if request.version < DELETE_BY_ID_SINCE:
        return [(name, None) for name in request.body.topic_names]
    return [(each.name, each.topic_id) for each in request.body.topics]


def _deleted(kafka: Kafka, name: Any, topic_id: Any) -> Fields:
    if name is None and topic_id is None:
        return _not_deleted(None, None, ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        return _not_deleted(name, topic_id, ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    topic = kafka.topics.get(name) if name is not None else kafka.topics_by_id.get(topic_id)
    if topic is None and name is not None:
        return _not_deleted(name, None, ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
    if topic is None:
        return _not_deleted(None, topic_id, ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
    kafka.delete_topic(topic.name)
    return _not_deleted(topic.name, topic.id, 0, None)


def _not_deleted(name: Any, topic_id: Any, code: int, message: str | None) -> Fields:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}


# ---- more partitions -------------------------------------------------------------------------------------------------


def create_partitions(kafka: Kafka, request: Request) -> Fields:
    """``count`` is how many the topic is to have in all."""
    counts = Counter(each.name for each in request.body.topics)
    repeated = [each for each in _once(request.body.topics) if counts[each.name] > 1]
    return {"throttle_time": 0, "results": [
        *(_grown(each.name, ErrorCode.invalid_request, DUPLICATE) for each in repeated),
        *(_grow(kafka, request, each) for each in request.body.topics if counts[each.name] == 1)]}


def refuse_create_partitions(request: Request, code: int) -> Fields:
    """The error for every topic."""
    return {"throttle_time": 0, "results": [_grown(each.name, code, None) for each in request.body.topics]}


def _grown(name: str, code: int, message: str | None) -> Fields:
    return {"name": name, "error_code": code, "error_message": message}


def _grow(kafka: Kafka, request: Request, wanted: Any) -> Fields:
    topic = kafka.topics.get(wanted.name)
    if topic is None:
        return _grown(wanted.name, ErrorCode.unknown_topic_or_partition, None)
    try:
        replicas = _more_replicas(kafka, topic, wanted)
    except RefusalError as refused:
        return _grown(wanted.name, refused.code, refused.message)
    if not request.body.validate_only:
        kafka.add_partitions(topic, replicas)
        kafka.report("partitions added", topic=topic.name, partitions=len(topic.partitions))
    return _grown(wanted.name, 0, None)


def _more_replicas(kafka: Kafka, topic: Topic, wanted: Any) -> list[list[int]]:
    have = len(topic.partitions)
    if wanted.count == have:
        raise RefusalError(ErrorCode.invalid_partitions, f"Topic already has {have} partition(s).")
    if wanted.count < have:
        raise RefusalError(ErrorCode.invalid_partitions,
                      f"The topic {topic.name} currently has {have} partition(s); {wanted.count} would not be an increase.")
    more, factor = wanted.count - have, len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return kafka.placed(have, more, factor)
    if len(wanted.assignments) != more:
        raise RefusalError(ErrorCode.invalid_replica_assignment, f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} "
                                                  "assignment(s) were specified.")
    return [_checked_replicas(kafka, each.broker_ids, factor) for each in wanted.assignments]
