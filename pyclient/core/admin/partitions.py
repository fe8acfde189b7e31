"""Requests and responses that are ordered by topic and partition."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import CallOutcome, Done
from pyclient.records import TopicPartition

T = TypeVar("T")


def by_topic(parts: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    """What belongs to each partition, by topic."""
    topics: dict[str, list[T]] = {}
    for tp, part in parts:
        topics.setdefault(tp.topic, []).append(part)
    return topics


def per_partition(api: Api, topics: Iterable[Any], result: Callable[[Any], object]) -> CallOutcome:
    """Each partition of a response with its *result* or its error."""
    answers = {TopicPartition(topic.name, part.partition_index): part for topic in topics for part in topic.partitions}
    return Done({tp: _error(api, part, tp) if part.error_code else result(part) for tp, part in answers.items()})


def _error(api: Api, part: Any, tp: TopicPartition) -> object:
    return error_of(api, part.error_code, getattr(part, "error_message", None), tp=tp)
