"""Topics: create, delete, add partitions, list, describe."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pyclient.admin.calls import AsyncCalls, BlockingCalls, raise_failed
from pyclient.client.facade_base import OPTION
from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.topics import create_partitions_call, create_topics_call, delete_topics_call
from pyclient.core.cluster import Cluster
from pyclient.descriptions.topics import NewPartitions, NewTopic, TopicDescription
from pyclient.errors import KafkaError

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1


class AsyncTopicCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern topics."""

    async def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Create *topics*; a name alone takes the broker's default partitions and replicas.

        The controller has created them when this returns; the brokers learn of them a little later. Producers and
        consumers wait for that; `describe_topics` may still raise UnknownTopicOrPartitionError.

        With *validate_only* the controller checks them and creates nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            TopicExistsError, InvalidTopicError, …: for a single topic; PartialFailureError: for several.
        """
        wanted, limit = _new_topics(topics), self._limit(timeout)
        if wanted:
            raise_failed([topic.name for topic in wanted], await self._core.call(lambda finish, deadline: create_topics_call(
                wanted, validate_only=validate_only, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit))

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """Delete the topics *names* with all their records.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …: for a single topic; PartialFailureError: for several.
        """
        wanted, limit = list(dict.fromkeys(_names(names))), self._limit(timeout)  # a broker refuses one that is there twice
        if wanted:
            raise_failed(wanted, await self._core.call(lambda finish, deadline: delete_topics_call(
                wanted, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit))

    async def create_partitions(self, totals: Mapping[str, NewPartitions | int], *, validate_only: bool = False,
                                timeout: float | None = OPTION) -> None:
        """Add partitions to topics: *totals* maps a topic to the number that it shall have in total (KIP-195).

        Partitions can be added, never removed. Stored records stay where they are, so keys may hash to another
        partition than before. When an answer is lost after the controller has added the partitions, the retry raises
        InvalidPartitionsError: `describe_topics` shows how many there are.

        With *validate_only* the controller checks them and adds nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidPartitionsError: the topic has that many already, or more.
            UnknownTopicOrPartitionError, InvalidReplicaAssignmentError, TopicAuthorizationError, …: for a single
                topic; PartialFailureError: for several.
        """
        wanted, limit = _totals(totals), self._limit(timeout)
        if wanted:
            raise_failed(list(wanted), await self._core.call(lambda finish, deadline: create_partitions_call(
                wanted, validate_only=validate_only, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit))

    async def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """The names of all topics, sorted; with *internal*, Kafka's internal topics too.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        cluster = await self._describe(None, timeout)
        return sorted(name for name, topic in cluster.topics.items() if internal or not topic.internal)

    async def describe_topics(self, names: Iterable[str], *, include_authorized_operations: bool = False,
                              timeout: float | None = OPTION) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of the topics *names*, by name.

        With *include_authorized_operations* also what this client's user may do with each.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …: for a single topic; PartialFailureError: for several.
        """
        wanted = list(dict.fromkeys(_names(names)))
        return described(await self._describe(wanted, timeout, operations=include_authorized_operations), wanted)


class TopicCalls(BlockingCalls):
    """Calls of `Admin` that concern topics."""

    _admin: AsyncTopicCalls

    def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Create *topics*; a name alone takes the broker's default partitions and replicas.

        The controller has created them when this returns; the brokers learn of them a little later. Producers and
        consumers wait for that; `describe_topics` may still raise UnknownTopicOrPartitionError.

        With *validate_only* the controller checks them and creates nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            TopicExistsError, InvalidTopicError, …: for a single topic; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.create_topics(topics, validate_only=validate_only, timeout=timeout))

    def delete_topics(self, names: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """Delete the topics *names* with all their records.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …: for a single topic; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.delete_topics(names, timeout=timeout))

    def create_partitions(self, totals: Mapping[str, NewPartitions | int], *, validate_only: bool = False,
                          timeout: float | None = OPTION) -> None:
        """Add partitions to topics: *totals* maps a topic to the number that it shall have in total (KIP-195).

        Partitions can be added, never removed. Stored records stay where they are, so keys may hash to another
        partition than before. When an answer is lost after the controller has added the partitions, the retry raises
        InvalidPartitionsError: `describe_topics` shows how many there are.

        With *validate_only* the controller checks them and adds nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidPartitionsError: the topic has that many already, or more.
            UnknownTopicOrPartitionError, InvalidReplicaAssignmentError, TopicAuthorizationError, …: for a single
                topic; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.create_partitions(totals, validate_only=validate_only, timeout=timeout))

    def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """The names of all topics, sorted; with *internal*, Kafka's internal topics too.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        return self._call(lambda: self._admin.list_topics(internal=internal, timeout=timeout))

    def describe_topics(self, names: Iterable[str], *, include_authorized_operations: bool = False,
                        timeout: float | None = OPTION) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of the topics *names*, by name.

        With *include_authorized_operations* also what this client's user may do with each.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …: for a single topic; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.describe_topics(names, include_authorized_operations=include_authorized_operations, timeout=timeout))


def described(cluster: Cluster, names: Collection[str]) -> dict[str, TopicDescription]:
    """Topics as a view of the cluster has them; raises as `AsyncTopicCalls.describe_topics`."""
    raise_failed(names, {name: _topic_error(cluster, name) for name in names})
    return {name: cluster.topics[name].describe() for name in names}


def _names(given: Iterable[object]) -> list[str]:
    return [_name(each) for each in _several(given)]


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"expected a topic name as str, got {type(given).__name__}: {given!r}")
    return given


def _several(given: Iterable[object]) -> Iterable[object]:
    """Refuse a single string: taken as a sequence, each of its letters would name a topic to delete."""
    if isinstance(given, str):
        raise TypeError(f"expected a list of topics, got the str {given!r}: write [{given!r}]")
    return given


def _new_topics(given: Iterable[object]) -> list[NewTopic]:
    return [_new_topic(each if isinstance(each, NewTopic) else NewTopic(_name(each))) for each in _several(given)]


def _new_topic(topic: NewTopic) -> NewTopic:
    """Refuse what no request can carry, and name the wrong field."""
    _name(topic.name)
    _check_count(topic, "partitions", topic.partitions, INT32_MAX)
    _check_count(topic, "replication_factor", topic.replication_factor, INT16_MAX)
    return topic._replace(configs={name: _config_text(topic, name, value) for name, value in topic.configs.items()})


def _totals(given: object) -> dict[str, NewPartitions]:
    if not isinstance(given, Mapping):
        raise TypeError(f'expected the number of partitions by topic, as {{"orders": 12}}, got {type(given).__name__}: {given!r}')
    return {_name(name): _total(name, value) for name, value in given.items()}


def _total(name: str, given: object) -> NewPartitions:
    """Refuse what no request can carry."""
    wanted = given if isinstance(given, NewPartitions) else NewPartitions(given)  # type: ignore[arg-type]
    total: object = wanted.total
    if isinstance(total, bool) or not isinstance(total, int) or not 1 <= total <= INT32_MAX:
        raise ValueError(f"partitions of topic {name!r} are {total!r}: expected their total number, from 1 to {INT32_MAX}")
    for nodes in wanted.replica_assignments:
        _check_nodes(name, nodes)
    return wanted


def _check_nodes(name: str, nodes: object) -> None:
    if not isinstance(nodes, Sequence) or not all(isinstance(node, int) and 0 <= node <= INT32_MAX for node in nodes):
        raise TypeError(f"replicas of a new partition of topic {name!r} are {nodes!r}: expected a list of node ids for each partition that is added, as [[1, 2], [2, 3]]")


def _check_count(topic: NewTopic, what: str, number: object, most: int) -> None:
    if not isinstance(number, int) or not -1 <= number <= most:
        raise ValueError(f"{what} of topic {topic.name!r} is {number!r}: expected a number up to {most}, or -1 for the broker's default")


def _config_text(topic: NewTopic, name: object, value: object) -> str:
    """A config's value as brokers read it: ``true`` for True, decimal digits for a number."""
    if not (isinstance(name, str) and isinstance(value, (str, int))):
        raise TypeError(f"config {name!r} of topic {topic.name!r} is {value!r}: expected a name as str, and str, int or bool as value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic_error(cluster: Cluster, name: str) -> KafkaError | None:
    topic = cluster.topics.get(name)
    code = 3 if topic is None else topic.error
    return error_of(Api.METADATA, code, f"topic {name!r}", topics=[name]) if code else None
