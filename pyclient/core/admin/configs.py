"""Configs as calls: what has any, describe, change one by one."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused, settled
from pyclient.core.calls import Anywhere, Broker, Call, CallOutcome, Done, Finish
from pyclient.descriptions.configs import ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ConfigSynonym, ConfigType, ResourceType
from pyclient.errors import InvalidRequestError, KafkaError, UnsupportedVersionError

DOCUMENTATION_SINCE: Final = 3
TYPES_SINCE: Final = 1
"""The version of ListConfigResources that has other types than client metrics (KIP-1142)."""
AT_THEIR_BROKER: Final = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
SINCE: Final[Mapping[ResourceType, str]] = {ResourceType.CLIENT_METRICS: "3.7", ResourceType.GROUP: "4.0"}
"""The release of Kafka whose brokers first have configs of a kind."""
NO_SUCH_KIND: Final = ("Unknown resource type", "This most likely occurs because of a request being malformed")
"""How brokers refuse a kind that they do not know, if they say anything. Where one is wrong otherwise, they name it."""


def by_node(resources: Iterable[ConfigResource], *, own: Collection[ResourceType] = AT_THEIR_BROKER) -> dict[int | None, list[ConfigResource]]:
    """Resources by the node that must be asked about them, if their type is one of *own*; None: any node."""
    nodes: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        nodes.setdefault(int(resource.name) if resource.type in own and resource.name else None, []).append(resource)
    return nodes


def changes_by_node(resources: Iterable[ConfigResource], *, of_controllers: bool) -> dict[int | None, list[ConfigResource]]:
    """As `by_node`, for changes: of controllers the active one changes a broker's configs, and each its own loggers."""
    return by_node(resources, own=(ResourceType.BROKER_LOGGER,) if of_controllers else AT_THEIR_BROKER)


def by_release(resources: Iterable[ConfigResource]) -> list[list[ConfigResource]]:
    """What one request may describe together: brokers refuse all of one that has a kind they do not know."""
    parts: dict[str | None, list[ConfigResource]] = {}
    for resource in resources:
        parts.setdefault(SINCE.get(resource.type), []).append(resource)
    return list(parts.values())


def list_resources_call(types: Collection[ResourceType], *, finish: Finish, deadline: float | None) -> Call:
    """What has configs, of some types, as `ConfigResource`."""
    def classify(message: Any) -> CallOutcome:
        return refused(Api.LIST_CONFIG_RESOURCES, message) or Done([ConfigResource(
            ResourceType(getattr(each, "resource_type", ResourceType.CLIENT_METRICS)), each.resource_name) for each in message.config_resources])

    versions = None if set(types) == {ResourceType.CLIENT_METRICS} else VersionRange(TYPES_SINCE, SPOKEN[Api.LIST_CONFIG_RESOURCES].high)
    return Call(what="listing config resources", api=Api.LIST_CONFIG_RESOURCES, target=Anywhere.ANY_NODE, classify=classify, finish=finish,
                deadline=deadline, versions=versions, fields=lambda version: {"resource_types": list(types)})


def describe_configs_call(resources: Collection[ConfigResource], *, node: int | None, names: Collection[str] | None, synonyms: bool,
                          documentation: bool, finish: Finish, deadline: float | None) -> Call:
    """Describe configs (*names* None: all); the result maps each resource to its entries by name, or its error."""
    wanted = [{"resource_type": each.type, "resource_name": each.name, "configuration_keys": None if names is None else list(names)}
              for each in resources]

    def fields(version: int) -> dict[str, object]:
        return {"resources": wanted, "include_synonyms": synonyms, "include_documentation": documentation}

    def classify(message: Any) -> CallOutcome:
        return _per_resource(Api.DESCRIBE_CONFIGS, message.results, _entries)

    versions = VersionRange(DOCUMENTATION_SINCE, SPOKEN[Api.DESCRIBE_CONFIGS].high) if documentation else None
    return Call(what=f"describing the configs of {_those(resources)}", api=Api.DESCRIBE_CONFIGS, target=_target(node), fields=fields,
                classify=classify, finish=finish, deadline=deadline, versions=versions)


def alter_configs_call(changes: Mapping[ConfigResource, Mapping[str, ConfigChange]], *, node: int | None, validate_only: bool,
                       finish: Finish, deadline: float | None) -> Call:
    """Change configs; values are text. The result maps each resource to None or its error."""
    wanted = [{"resource_type": resource.type, "resource_name": resource.name, "configs": [
        {"name": name, "config_operation": change.operation, "value": change.value} for name, change in configs.items()]}
        for resource, configs in changes.items()]

    def fields(version: int) -> dict[str, object]:
        return {"resources": wanted, "validate_only": validate_only}

    def classify(message: Any) -> CallOutcome:
        return _per_resource(Api.INCREMENTAL_ALTER_CONFIGS, message.responses, lambda answer: None)

    return Call(what=f"altering the configs of {_those(changes)}", api=Api.INCREMENTAL_ALTER_CONFIGS, target=_target(node), fields=fields,
                classify=classify, finish=finish, deadline=deadline)


def _target(node: int | None) -> Anywhere | Broker:
    return Anywhere.ANY_NODE if node is None else Broker(node)


def _those(resources: Collection[ConfigResource]) -> str:
    return str(next(iter(resources))) if len(resources) == 1 else f"{len(resources)} resources"


def _per_resource(api: Api, answers: Iterable[Any], result: Any) -> CallOutcome:
    outcome: dict[ConfigResource, Any] = {}
    for answer in answers:
        resource = ConfigResource(ResourceType(answer.resource_type), answer.resource_name)
        outcome[resource] = _error(api, resource, answer) if answer.error_code else result(answer)
    return settled(outcome)


def _error(api: Api, resource: ConfigResource, answer: Any) -> KafkaError:
    if answer.error_code == InvalidRequestError.code and resource.type in SINCE and (answer.error_message or NO_SUCH_KIND[0]).startswith(NO_SUCH_KIND):
        return UnsupportedVersionError(f"{api.title}: the broker has no configs of the kind of {resource}. Brokers of Kafka {SINCE[resource.type]} or newer "
                                       "have them: upgrade this one, or do without.")
    said = str(resource) + (f": {answer.error_message}" if answer.error_message else "")
    return error_of(api, answer.error_code, said, topics=[resource.name], group=resource.name)


def _entries(answer: Any) -> dict[str, ConfigEntry]:
    return {each.name: _entry(each) for each in answer.configs}


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name, _shown(config.value, config), ConfigSource(config.config_source),
        ConfigType(getattr(config, "config_type", 0)), config.read_only, config.is_sensitive,
        tuple(ConfigSynonym(each.name, _shown(each.value, config), ConfigSource(each.source)) for each in config.synonyms),
        getattr(config, "documentation", None))


def _shown(value: str | None, config: Any) -> str | None:
    """Brokers return no sensitive value; one that does must not show in a log of ours."""
    return None if config.is_sensitive else value
