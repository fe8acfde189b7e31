"""Configs: the requests in every version, and one result or error per resource."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.admin import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ConfigType
from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.admin.configs import alter_configs_call, by_node, changes_by_node, describe_configs_call
from pyclient.core.calls import Anywhere, Broker, Call, Done
from pyclient.errors import InvalidConfigurationError, TopicAuthorizationError, UnknownTopicOrPartitionError
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

ORDERS, GONE, ONE = ConfigResource.topic("orders"), ConfigResource.topic("gone"), ConfigResource.broker(1)
UNKNOWN_TOPIC, NOT_ALLOWED, INVALID_CONFIG = 3, 29, 40


def describe(*resources: ConfigResource, names: list[str] | None = None, documentation: bool = False) -> Call:
    return describe_configs_call(resources, node=None, names=names, synonyms=True, documentation=documentation, finish=ignore, deadline=None)


def alter(changes: dict[ConfigResource, dict[str, ConfigChange]], node: int | None = None) -> Call:
    return alter_configs_call(changes, node=node, validate_only=True, finish=ignore, deadline=None)


def test_a_brokers_own_configs_are_asked_of_it_and_others_of_any_broker() -> None:
    logger, defaults = ConfigResource.broker_logger(2), ConfigResource.broker_defaults()
    assert by_node([ORDERS, ONE, logger, defaults]) == {None: [ORDERS, defaults], 1: [ONE], 2: [logger]}
    assert changes_by_node([ORDERS, ONE, logger, defaults], of_controllers=False) == {None: [ORDERS, defaults], 1: [ONE], 2: [logger]}
    assert changes_by_node([ORDERS, ONE, logger, defaults], of_controllers=True) == {None: [ORDERS, ONE, defaults], 2: [logger]}
    assert alter({ORDERS: {}}).target is Anywhere.ANY_NODE
    assert alter({ONE: {}}, 1).target == Broker(1)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CONFIGS))
def test_describing_names_resources_and_configs_in_every_version(version: int) -> None:
    read = body(describe(ORDERS, ONE, names=["retention.ms"]), version)
    assert [(each.resource_type, each.resource_name, each.configuration_keys) for each in read.resources] == [
        (2, "orders", ("retention.ms",)), (4, "1", ("retention.ms",))]
    assert read.include_synonyms
    assert body(describe(ORDERS), version).resources[0].configuration_keys is None


def test_documentation_is_asked_only_of_brokers_that_have_it() -> None:
    versions_of = describe(ORDERS, documentation=True).versions
    assert versions_of is not None
    assert (versions_of.low, versions_of.high) == (3, SPOKEN[Api.DESCRIBE_CONFIGS].high)
    assert describe(ORDERS).versions is None


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CONFIGS))
def test_each_resource_described_has_its_own_outcome_and_no_sensitive_value(version: int) -> None:
    def config(name: str, value: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "value": value, "read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": [],
                "config_type": 5, "documentation": None, **more}

    response = [
        {"resource_type": 2, "resource_name": "orders", "configs": [
            config("retention.ms", "5", synonyms=[{"name": "log.retention.ms", "value": "7", "source": 5}]), config("password", "open sesame", is_sensitive=True),
            config("newer", "1", config_source=99)]},
        {"resource_type": 2, "resource_name": "gone", "error_code": UNKNOWN_TOPIC, "configs": []},
        {"resource_type": 2, "resource_name": "secret", "error_code": NOT_ALLOWED, "configs": []}]
    verdict = describe(ORDERS, GONE).classify(answer(Api.DESCRIBE_CONFIGS, version, results=response))
    assert isinstance(verdict, Done)
    entries = verdict.result[ORDERS]
    kept = entries["retention.ms"]
    assert (kept.value, kept.source, kept.is_default) == ("5", ConfigSource.TOPIC, False)
    assert kept.type is (ConfigType.LONG if version >= 3 else ConfigType.UNKNOWN)
    assert [(each.name, each.value, each.source) for each in kept.synonyms] == [("log.retention.ms", "7", ConfigSource.DEFAULT)]
    assert (entries["password"].value, entries["password"].sensitive) == (None, True)
    assert entries["newer"].source is ConfigSource.UNKNOWN
    assert isinstance(verdict.result[GONE], UnknownTopicOrPartitionError)
    refused = verdict.result[ConfigResource.topic("secret")]
    assert isinstance(refused, TopicAuthorizationError)
    assert "not allowed to DESCRIBE_CONFIGS of topic 'secret'" in str(refused)


@pytest.mark.parametrize("version", versions(Api.INCREMENTAL_ALTER_CONFIGS))
def test_altering_says_each_change_in_every_version(version: int) -> None:
    changes = {"retention.ms": ConfigChange(0, "5"), "cleanup.policy": ConfigChange.append("compact"),  # type: ignore[arg-type]  # the number itself
               "segment.ms": ConfigChange.delete(), "flush.ms": ConfigChange.subtract("1")}
    read = body(alter({ORDERS: changes}), version)
    assert read.validate_only
    (resource,) = read.resources
    assert [(each.name, each.config_operation, each.value) for each in resource.configs] == [
        ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"), ("segment.ms", 1, None), ("flush.ms", 3, "1")]


@pytest.mark.parametrize("version", versions(Api.INCREMENTAL_ALTER_CONFIGS))
def test_each_resource_altered_has_its_own_outcome(version: int) -> None:
    response = [{"resource_type": 2, "resource_name": "orders"},
                {"resource_type": 2, "resource_name": "gone", "error_code": INVALID_CONFIG, "error_message": "retention.ms is -5"}]
    verdict = alter({ORDERS: {}, GONE: {}}).classify(answer(Api.INCREMENTAL_ALTER_CONFIGS, version, responses=response))
    assert isinstance(verdict, Done)
    assert verdict.result[ORDERS] is None
    assert isinstance(verdict.result[GONE], InvalidConfigurationError)
    assert "topic 'gone': retention.ms is -5" in str(verdict.result[GONE])


def test_the_text_of_a_change_shows_no_value_which_may_be_a_secret() -> None:
    secret = "marker-secret of a keystore"
    for change in (ConfigChange.append(secret), ConfigChange.subtract(secret), ConfigChange(ConfigOperation.SET, secret)):
        assert repr(change) == f"ConfigChange({change.operation.name}, ***)"
        assert str({"ssl.keystore.password": change}).count("marker") == 0
    assert repr(ConfigChange.delete()) == "ConfigChange(DELETE)"
