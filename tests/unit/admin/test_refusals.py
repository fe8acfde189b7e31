"""What brokers lack, as callers of Admin meet it: each names the request, its versions, and the release of Kafka."""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin
from pyclient.admin import ConfigResource, ElectionType, OffsetSpec
from pyclient.codec.apis import NEEDS, SPOKEN, Api
from pyclient.errors import KafkaError, PartialFailureError, UnsupportedVersionError
from pyclient.testing import Change, Fail, FakeCluster
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from tests.unit.admin.every_call import CALLS, ORDERS, One, commit, open_transaction, refusing

WITH_ARGUMENTS = [One(lambda admin: admin.describe_cluster(include_authorized_operations=True), "DescribeCluster", "2.8")]
CONNECTING = {Api.API_VERSIONS, Api.METADATA, Api.FIND_COORDINATOR}
INVALID_REQUEST = 42


def offering(limits: dict[Api, tuple[int, int]] | None = None) -> Change:
    """A broker that offers what every client needs, and *limits* beside it."""
    def change(fields: Any) -> Any:
        kept = [each for each in fields["api_keys"] if each["api_key"] in CONNECTING and each["api_key"] not in (limits or {})]
        return {**fields, "api_keys": [*kept, *({"api_key": int(api), "min_version": low, "max_version": high} for api, (low, high) in (limits or {}).items())]}

    return Change(change)


def refusal(cluster: FakeCluster, call: Callable[[Admin], object]) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin, pytest.raises((UnsupportedVersionError, PartialFailureError)) as caught:
        call(admin)
    errors = list(caught.value.errors.values()) if isinstance(caught.value, PartialFailureError) else [caught.value]
    assert all(isinstance(each, UnsupportedVersionError) for each in errors)
    return str(errors[0])


def outcome(admin: Admin, one: One) -> str:
    try:
        return f"done: {one.call(admin)}"
    except KafkaError as error:
        return str(error)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with refusing(NEWEST) as made:
        yield made


def test_each_call_of_the_admin_is_among_those_that_are_tried() -> None:
    assert {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")} - {"close", "metrics"} == set(CALLS)


@pytest.mark.parametrize("one", [*(pytest.param(one, id=name) for name, one in CALLS.items() if one.request), *WITH_ARGUMENTS])
def test_a_request_that_the_broker_does_not_have_is_refused_by_its_name_and_release(cluster: FakeCluster, one: One) -> None:
    with cluster.intercept(offering(), "ApiVersions"):
        said = refusal(cluster, one.call)
    assert said.startswith(f"{one.request}: this client needs one of the versions ")
    assert f"the broker has none. Brokers of Kafka {one.release} or newer have them" in said


@pytest.mark.parametrize(("api", "offered", "call", "said"), [
    (Api.API_VERSIONS, (0, 2), lambda admin: admin.describe_features(), "3-4 to describe features, the broker has 0-2. Brokers of Kafka 2.7"),
    (Api.LIST_OFFSETS, (1, 6), lambda admin: admin.list_offsets({ORDERS: OffsetSpec.MAX_TIMESTAMP}),
     "7-9 to find the record with the largest timestamp, the broker has 1-6. Brokers of Kafka 3.0"),
    (Api.LIST_OFFSETS, (1, 7), lambda admin: admin.list_offsets({ORDERS: OffsetSpec.EARLIEST_LOCAL}), "Brokers of Kafka 3.5"),
    (Api.LIST_OFFSETS, (1, 8), lambda admin: admin.list_offsets({ORDERS: OffsetSpec.LATEST_TIERED}), "Brokers of Kafka 3.9"),
    (Api.LIST_GROUPS, (0, 3), lambda admin: admin.list_groups(states=["Stable"]), "4-5 to list groups by state, the broker has 0-3. Brokers of Kafka 2.6"),
    (Api.LIST_GROUPS, (0, 4), lambda admin: admin.list_groups(types=["classic"]), "5-5 to list groups by type, the broker has 0-4. Brokers of Kafka 3.8"),
    (Api.METADATA, (1, 7), lambda admin: admin.describe_topics(["orders"], include_authorized_operations=True),
     "8-13 to describe authorized operations, the broker has 1-7. Brokers of Kafka 2.3"),
    (Api.DESCRIBE_CLUSTER, (0, 1), lambda admin: admin.describe_cluster(include_fenced_brokers=True),
     "2-2 to describe fenced brokers, the broker has 0-1. Brokers of Kafka 4.0"),
    (Api.DESCRIBE_GROUPS, (0, 2), lambda admin: admin.describe_groups(["bills"], include_authorized_operations=True),
     "3-6 to describe authorized operations, the broker has 0-2. Brokers of Kafka 2.3"),
    (Api.LEAVE_GROUP, (0, 2), lambda admin: admin.remove_members("bills", ["x"]), "3-5 to remove members, the broker has 0-2. Brokers of Kafka 2.4"),
    (Api.DESCRIBE_CONFIGS, (1, 2), lambda admin: admin.describe_configs([ConfigResource.topic("orders")], documentation=True),
     "3-4 to describe configs with their documentation, the broker has 1-2. Brokers of Kafka 2.6"),
    (Api.CREATE_DELEGATION_TOKEN, (1, 2), lambda admin: admin.create_delegation_token(owner="User:bob"),
     "3-3 to create a token for another owner, the broker has 1-2. Brokers of Kafka 3.3"),
    (Api.ELECT_LEADERS, (0, 0), lambda admin: admin.elect_leaders(None, ElectionType.UNCLEAN),
     "1-2 to elect leaders that are not in sync, the broker has 0-0. Brokers of Kafka 2.4"),
    (Api.LIST_CONFIG_RESOURCES, (0, 0), lambda admin: admin.list_config_resources(),
     "1-1 to list other resources than client metrics, the broker has 0-0. Brokers of Kafka 4.1"),
    (Api.LIST_TRANSACTIONS, (0, 0), lambda admin: admin.list_transactions(running_longer_than=1),
     "1-1 to list transactions by duration, the broker has 0-0. Brokers of Kafka 3.8"),
])
def test_what_a_newer_version_of_a_request_brought_is_refused_with_its_purpose(
        cluster: FakeCluster, api: Api, offered: tuple[int, int], call: Callable[[Admin], object], said: str) -> None:
    with cluster.intercept(offering({api: offered}), "ApiVersions"):
        refused = refusal(cluster, call)
    assert refused.startswith(f"{api.title}: this client needs one of the versions ")
    assert said in refused


@pytest.mark.parametrize("name", CALLS)
def test_a_broker_of_kafka_3_9_has_every_request_that_a_call_sends(name: str) -> None:
    """Those that are not modelled are refused for want of rights, and not for their version."""
    with refusing("3.9") as cluster, open_transaction(cluster), Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        commit(admin)
        assert not re.search("UNSUPPORTED_VERSION|needs one of the versions|did not finish", outcome(admin, CALLS[name]))


def test_each_row_of_the_releases_is_of_a_version_that_both_sides_have() -> None:
    for api, version in NEEDS:
        assert version in SPOKEN[api]
        assert version in PROFILES[NEWEST].apis[api]


@pytest.mark.parametrize("resource", [ConfigResource.group("bills"), ConfigResource.client_metrics("slow")])
def test_a_kind_of_resource_that_the_broker_does_not_know_is_refused_apart_from_the_others(fake_cluster: FakeCluster, resource: ConfigResource) -> None:
    """Kafka 3.9 refuses all resources of a request that has a group."""
    orders, release = ConfigResource.topic("orders"), {"bills": "4.0", "slow": "3.7"}[resource.name]
    fake_cluster.create_topic("orders")

    def as_older_brokers(request: Any) -> Fail | None:
        return Fail(INVALID_REQUEST) if any(each.resource_type == resource.type for each in request.body.resources) else None

    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin, fake_cluster.intercept(as_older_brokers, "DescribeConfigs"):
        with pytest.raises(PartialFailureError) as described:
            admin.describe_configs([orders, resource], names=["retention.ms"])
        assert list(described.value.results) == [orders]
        with pytest.raises(PartialFailureError) as altered:
            admin.alter_configs({orders: {"retention.ms": 7}, resource: {"interval.ms": 7}})
        assert list(altered.value.results) == [orders]
    for request, error in (("DescribeConfigs", described), ("IncrementalAlterConfigs", altered)):
        assert isinstance(error.value.errors[resource], UnsupportedVersionError)
        assert f"{request}: the broker has no configs of the kind of {resource}. Brokers of Kafka {release} or newer" in str(error.value.errors[resource])
