"""The admin client's two faces, sync and async: topics and the cluster. No protocol logic lives here."""
from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from typing_extensions import Unpack

from pyclient.codec.apis import Api
from pyclient.config import AdminConfig
from pyclient.core.admin import create_topics_call, delete_topics_call, metadata_call
from pyclient.core.cluster import Cluster
from pyclient.core.acl_errors import error_of
from pyclient.errors import PartialFailureError, KafkaError, UnknownServerError
from pyclient.option_types import AdminOptions
from pyclient.records import ClusterDescription, NewTopic, TopicDescription
from pyclient.client.core import ClientCore
from pyclient.client.facade_base import OPTION, AsyncFacade, Facade, seconds
from pyclient.runtime.loop_thread import Portal

T = TypeVar("T")
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1


class AsyncAdmin(AsyncFacade):
    """Topics and the cluster, for asyncio. Bound to the loop of ``async with``; for concurrent use.

    An item that fails raises its own error when it was asked for alone, and else `PartialFailureError` after all were tried.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        self._config = AdminConfig.parse(config, {**options})
        self._core = ClientCore(self._config)

    async def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Create topics; a name alone takes the broker's default partitions and replicas.

        The controller has them when this returns; the brokers learn of them a little later. Producers and consumers wait for that,
        while `describe_topics` may still say that there is no such topic.

        Raises:
            TopicExistsError, InvalidTopicError, …: of a single topic; PartialFailureError: of several.
        """
        wanted, limit = _new_topics(topics), self._limit(timeout)
        if wanted:
            _raise([topic.name for topic in wanted], await self._core.call(lambda finish, deadline: create_topics_call(
                wanted, validate_only=validate_only, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit))

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """Delete topics with all their records.

        Raises:
            UnknownTopicOrPartitionError, …: of a single topic; PartialFailureError: of several.
        """
        wanted, limit = _names(names), self._limit(timeout)
        if wanted:
            _raise(wanted, await self._core.call(lambda finish, deadline: delete_topics_call(
                wanted, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit))

    async def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """The names of all topics, sorted; with *internal*, Kafka's own too."""
        cluster = await self._describe(None, timeout)
        return sorted(name for name, topic in cluster.topics.items() if internal or not topic.internal)

    async def describe_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of topics, by name.

        Raises:
            UnknownTopicOrPartitionError, …: of a single topic; PartialFailureError: of several.
        """
        wanted = list(dict.fromkeys(_names(names)))
        cluster = await self._describe(wanted, timeout)
        _raise(wanted, {name: _topic_error(cluster, name) for name in wanted})
        return {name: cluster.topics[name].describe() for name in wanted}

    async def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        cluster = await self._describe([], timeout)
        return ClusterDescription(cluster.id, tuple(cluster.nodes.values()), cluster.controller)

    def metrics(self) -> dict[str, float]:
        """Figures by Kafka's names, as they stand now."""
        return self._core.figures()

    async def close(self) -> None:
        """Close; calls under way end with ClientClosedError. Idempotent."""
        self._core.check_process()
        await self._core.close()

    async def __aenter__(self) -> Self:
        await self._core.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._core.is_forked:
            await self.close()

    async def _describe(self, topics: list[str] | None, timeout: float | None) -> Cluster:
        found: Cluster = await self._core.call(
            lambda finish, deadline: metadata_call(topics, finish=finish, deadline=deadline), self._limit(timeout))
        return found

    def _limit(self, timeout: float | None) -> float | None:
        return seconds(timeout, self._config.default_api_timeout_ms)

    def _broker_limit(self, limit: float | None) -> float:
        """How long the broker may work on it: not longer than one request waits for its answer."""
        longest = self._config.request_timeout_ms / 1000
        return longest if limit is None else min(limit, longest)


class Admin(Facade):
    """Topics and the cluster; for any number of threads. As `AsyncAdmin`, without awaiting."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        self._admin = AsyncAdmin(config, **options)
        self._core = self._admin._core
        self._closing = threading.Lock()
        self._portal = Portal("pyclient-admin")
        self._portal.call(self._admin.__aenter__)

    def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """As `AsyncAdmin.create_topics`."""
        self._call(lambda: self._admin.create_topics(topics, validate_only=validate_only, timeout=timeout))

    def delete_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """As `AsyncAdmin.delete_topics`."""
        self._call(lambda: self._admin.delete_topics(names, timeout=timeout))

    def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """As `AsyncAdmin.list_topics`."""
        return self._call(lambda: self._admin.list_topics(internal=internal, timeout=timeout))

    def describe_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> dict[str, TopicDescription]:
        """As `AsyncAdmin.describe_topics`."""
        return self._call(lambda: self._admin.describe_topics(names, timeout=timeout))

    def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """As `AsyncAdmin.describe_cluster`."""
        return self._call(lambda: self._admin.describe_cluster(timeout=timeout))

    def metrics(self) -> dict[str, float]:
        """As `AsyncAdmin.metrics`."""
        return self._admin.metrics()

    def close(self) -> None:
        """Close; calls under way end with ClientClosedError. Idempotent."""
        self._core.check_process()
        with self._closing:
            if self._core.closed is None:
                self._portal.call(self._core.close)
                self._portal.stop()

    def __enter__(self) -> Self:
        self._open_core()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._core.is_forked:
            self.close()

    def _forget(self) -> None:
        self._portal.end_after(self._admin.close)

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._open_core()
        return self._portal.call(make)


def _names(given: Iterable[object]) -> list[str]:
    return [_name(each) for each in _several(given)]


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no topic's name: give a string")
    return given


def _several(given: Iterable[object]) -> Iterable[object]:
    """Not one string: it is a sequence too, of names that nobody means, and deleting them would be a loss."""
    if isinstance(given, str):
        raise TypeError(f"topics are given as a list, [{given!r}], not as one string")
    return given


def _new_topics(given: Iterable[object]) -> list[NewTopic]:
    return [_new_topic(each if isinstance(each, NewTopic) else NewTopic(_name(each))) for each in _several(given)]


def _new_topic(topic: NewTopic) -> NewTopic:
    """What cannot be sent is refused here, by the name of what is wrong."""
    _name(topic.name)
    _check_count(topic, "partitions", topic.partitions, INT32_MAX)
    _check_count(topic, "replication_factor", topic.replication_factor, INT16_MAX)
    for name, value in topic.configs.items():
        _check_config(topic, name, value)
    return topic


def _check_count(topic: NewTopic, what: str, number: object, most: int) -> None:
    if not isinstance(number, int) or not -1 <= number <= most:
        raise ValueError(f"{what} of topic {topic.name!r} is {number!r}: give a number up to {most}, or -1 for the broker's default")


def _check_config(topic: NewTopic, name: object, value: object) -> None:
    if not (isinstance(name, str) and isinstance(value, str)):
        raise TypeError(f"config {name!r} of topic {topic.name!r} is {value!r}: give strings")


def _raise(asked: Collection[str], errors: Mapping[str, KafkaError | None]) -> None:
    left_out = {name: UnknownServerError(f"the answer leaves out topic {name!r}: it may or may not be done")
                for name in asked if name not in errors}
    failed = {name: error for name, error in {**errors, **left_out}.items() if error is not None}
    if failed and len(asked) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise PartialFailureError(failed)


def _topic_error(cluster: Cluster, name: str) -> KafkaError | None:
    topic = cluster.topics.get(name)
    code = 3 if topic is None else topic.error
    return error_of(Api.METADATA, code, f"topic {name!r}", topics=[name]) if code else None
