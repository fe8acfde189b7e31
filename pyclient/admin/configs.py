"""Configs of topics, brokers, groups and client metrics: list what has any, describe and alter."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes, raise_failed
from pyclient.admin.routing import by_broker
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.configs import alter_configs_call, by_node, by_release, changes_by_node, describe_configs_call, list_resources_call
from pyclient.core.calls import Call, Finish
from pyclient.descriptions.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigValue, ResourceType
from pyclient.reactor.tasks import gather

Changes: TypeAlias = Mapping[ConfigResource, Mapping[str, ConfigValue | ConfigChange]]


class AsyncConfigCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern configs."""

    async def list_config_resources(self, types: Iterable[ResourceType] | None = None, *, timeout: float | None = OPTION) -> list[ConfigResource]:
        """What has configs of *types*, sorted by type and name: topics, brokers and their loggers, groups and
        subscriptions to clients' metrics with configs of their own; None: of all types (KIP-1142).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: brokers before 4.1 list client metrics only. ClusterAuthorizationError, …
        """
        wanted = _types(types)
        found: list[ConfigResource] = await self._core.call(
            lambda finish, deadline: list_resources_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
        return sorted(found)

    async def describe_configs(self, resources: Iterable[ConfigResource], *, names: Collection[str] | None = None, synonyms: bool = False,
                               documentation: bool = False, timeout: float | None = OPTION) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each of *resources*, by name: all, or those in *names*. The values of sensitive ones are None.

        *synonyms* adds every place that could set a value, in order of precedence (KIP-226); *documentation* adds the
        text of Kafka's documentation (KIP-569). A broker's configs are asked of that broker itself, with
        ``bootstrap_controllers`` of that controller.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, BrokerNotAvailableError, TopicAuthorizationError, UnsupportedVersionError
                (configs of groups, of brokers before 4.0), …: for a single resource; PartialFailureError: for several.
        """
        wanted, keys, limit = _resources(resources), _keys(names), self._limit(timeout)

        def ask(node: int | None, those: Sequence[ConfigResource], finish: Finish, deadline: float | None) -> Call:
            return describe_configs_call(those, node=node, names=keys, synonyms=synonyms, documentation=documentation, finish=finish, deadline=deadline)

        parts = await gather(self._core.reactor, [by_broker(self._core, by_node(part), ask, limit) for part in by_release(wanted)])
        return outcomes(wanted, {resource: answer for part in parts for resource, answer in part.items()}, what="resource")

    async def alter_configs(self, changes: Changes, *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Change the configs that are named, and no others (IncrementalAlterConfigs, KIP-339).

        *changes* maps each resource to its configs: a value sets it, `ConfigChange.delete()` returns to the default,
        `ConfigChange.append("…")` and `ConfigChange.subtract("…")` change a list. All changes of a resource are made,
        or none. A broker's configs are sent to that broker itself. Brokers apply changes a little later.

        With *validate_only* the brokers check them and change nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidConfigurationError, UnknownTopicOrPartitionError, BrokerNotAvailableError, UnsupportedVersionError
                (configs of groups, of brokers before 4.0), …: for a single resource; PartialFailureError: for several.
        """
        wanted = _changes(changes)
        nodes = changes_by_node(wanted, of_controllers=self._core.of_controllers)
        answers = await by_broker(self._core, nodes, lambda node, those, finish, deadline: alter_configs_call(
            {each: wanted[each] for each in those}, node=node, validate_only=validate_only, finish=finish, deadline=deadline), self._limit(timeout))
        raise_failed(list(wanted), answers, what="resource")


class ConfigCalls(BlockingCalls):
    """Calls of `Admin` that concern configs."""

    _admin: AsyncConfigCalls

    def list_config_resources(self, types: Iterable[ResourceType] | None = None, *, timeout: float | None = OPTION) -> list[ConfigResource]:
        """What has configs of *types*, sorted by type and name: topics, brokers and their loggers, groups and
        subscriptions to clients' metrics with configs of their own; None: of all types (KIP-1142).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: brokers before 4.1 list client metrics only. ClusterAuthorizationError, …
        """
        return self._call(lambda: self._admin.list_config_resources(types, timeout=timeout))

    def describe_configs(self, resources: Iterable[ConfigResource], *, names: Collection[str] | None = None, synonyms: bool = False,
                         documentation: bool = False, timeout: float | None = OPTION) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each of *resources*, by name: all, or those in *names*. The values of sensitive ones are None.

        *synonyms* adds every place that could set a value, in order of precedence (KIP-226); *documentation* adds the
        text of Kafka's documentation (KIP-569). A broker's configs are asked of that broker itself, with
        ``bootstrap_controllers`` of that controller.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, BrokerNotAvailableError, TopicAuthorizationError, UnsupportedVersionError
                (configs of groups, of brokers before 4.0), …: for a single resource; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.describe_configs(
            resources, names=names, synonyms=synonyms, documentation=documentation, timeout=timeout))

    def alter_configs(self, changes: Changes, *, validate_only: bool = False, timeout: float | None = OPTION) -> None:
        """Change the configs that are named, and no others (IncrementalAlterConfigs, KIP-339).

        *changes* maps each resource to its configs: a value sets it, `ConfigChange.delete()` returns to the default,
        `ConfigChange.append("…")` and `ConfigChange.subtract("…")` change a list. All changes of a resource are made,
        or none. A broker's configs are sent to that broker itself. Brokers apply changes a little later.

        With *validate_only* the brokers check them and change nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidConfigurationError, UnknownTopicOrPartitionError, BrokerNotAvailableError, UnsupportedVersionError
                (configs of groups, of brokers before 4.0), …: for a single resource; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.alter_configs(changes, validate_only=validate_only, timeout=timeout))


def _types(given: Iterable[Any] | None) -> list[ResourceType]:
    if isinstance(given, int | str):
        raise TypeError(f"expected a list of resource types, got {given!r}: write [ResourceType.GROUP]")
    return list(ResourceType) if given is None else list(dict.fromkeys(ResourceType(each) for each in given))


def _resources(given: Iterable[object]) -> list[ConfigResource]:
    if isinstance(given, str | ConfigResource):
        raise TypeError(f'expected a list of resources, got {given!r}: write [ConfigResource.topic("orders")]')
    return list(dict.fromkeys(_resource(each) for each in given))


def _resource(given: object) -> ConfigResource:
    if not isinstance(given, ConfigResource) or not isinstance(given.name, str):
        raise TypeError(f'expected a ConfigResource, such as ConfigResource.topic("orders") or ConfigResource.broker(1), got {given!r}')
    resource = ConfigResource(ResourceType(given.type), given.name)
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name and not resource.name.isdecimal():
        raise ValueError(f"{resource}: expected a broker's node id, such as ConfigResource.broker(1)")
    return resource


def _keys(names: object) -> list[str] | None:
    if isinstance(names, str) or not (names is None or (isinstance(names, Collection) and all(isinstance(each, str) for each in names))):
        raise TypeError(f'names are {names!r}: expected a list of config names, as ["retention.ms"]')
    return None if names is None else list(names)


def _changes(given: object) -> dict[ConfigResource, dict[str, ConfigChange]]:
    if not isinstance(given, Mapping):
        raise TypeError(f'expected changes by resource, as {{ConfigResource.topic("orders"): {{"retention.ms": 3600000}}}}, got {type(given).__name__}')
    return {resource: _changes_of(resource, configs) for resource, configs in zip(map(_resource, given), given.values(), strict=True)}


def _changes_of(resource: ConfigResource, configs: object) -> dict[str, ConfigChange]:
    if not isinstance(configs, Mapping) or not all(isinstance(name, str) for name in configs):
        raise TypeError(f'changes of {resource} are of type {type(configs).__name__}: expected them by config name, as {{"retention.ms": 3600000}}')
    return {name: _change(resource, name, change) for name, change in configs.items()}


def _change(resource: ConfigResource, name: str, given: Any) -> ConfigChange:
    change = given if isinstance(given, ConfigChange) else ConfigChange(ConfigOperation.SET, given)
    operation = ConfigOperation(change.operation)
    if operation is ConfigOperation.DELETE:
        return ConfigChange.delete()
    if not isinstance(change.value, str | int | float):  # the value may be a secret, so it is not shown
        raise TypeError(f"the new value of {name} of {resource} is of type {type(change.value).__name__}: expected str, int, float or bool, "
                        "or ConfigChange.delete() to return to the default")
    return ConfigChange(operation, str(change.value).lower() if isinstance(change.value, bool) else str(change.value))
