"""Topics and their settings through the fake's admin APIs: the checks and words of a real controller."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.codec.apis import Api
from tests.unit.testing.fake.cluster_driver import ClusterDriver

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture
def driver() -> Iterator[ClusterDriver]:
    with ClusterDriver() as found:
        yield found


def alter(driver: ClusterDriver, *changes: tuple[str, int, str | None], name: str = "t", kind: int = 2) -> Any:
    resource = {"resource_type": kind, "resource_name": name,
                "configs": [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]}
    return driver.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}).responses[0]


def describe(driver: ClusterDriver, *keys: str, name: str = "t", kind: int = 2) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return driver.call(Api.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True,
                                               "include_documentation": False}).results[0]


def test_broker_settings_are_described_and_cannot_be_changed() -> None:
    with ClusterDriver(min_insync_replicas=2) as driver:
        (shown,) = describe(driver, "min.insync.replicas", name="1", kind=4).configs
        assert (shown.value, shown.read_only, shown.config_source) == ("2", False, 4)
        assert int(alter(driver, ("min.insync.replicas", SET, "1"), name="1", kind=4).error_code) == 42
        assert int(describe(driver, name="2", kind=4).error_code) == 42
        (topics,) = describe(driver, "min.insync.replicas").configs
        assert (topics.value, [each.source for each in topics.synonyms]) == ("2", [3, 4, 5])


def test_fenced_brokers_are_described_on_request(driver: ClusterDriver) -> None:
    driver.kill(3)

    def brokers(**fields: Any) -> list[int]:
        answer = driver.call(Api.DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": False, "endpoint_type": 1, **fields})
        return [each.broker_id for each in answer.brokers]
    assert (brokers(include_fenced_brokers=False), brokers(include_fenced_brokers=True)) == ([1, 2], [1, 2, 3])
    driver.restart(3)
