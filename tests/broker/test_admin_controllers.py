"""An admin that is bound to real controllers: what they answer, and what needs brokers."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.api_versions.v0.response import ApiVersionsResponse

from pyclient import Admin, TopicPartition
from pyclient.admin import ConfigResource, OffsetSpec, VoterEndpoint
from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.controllers import ANSWERED
from pyclient.errors import BrokerIdNotRegisteredError, BrokerNotAvailableError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError, UnsupportedVersionError
from pyclient.testing import LocalCluster
from pyclient.testing.probe import ask
from tests.waiting import eventually

OF_OTHERS = {Api.FETCH, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
"""Between controllers, and in logins."""
NOT_ANSWERED = {Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.DESCRIBE_DELEGATION_TOKEN}
"""Controllers name them, but answer UNKNOWN_SERVER_ERROR: they have no code for these."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Containers do not publish the ports of controllers."""
    with LocalCluster(mode="embedded") as made:
        yield made


@pytest.fixture(scope="module")
def controller(cluster: LocalCluster) -> VoterEndpoint:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return admin.describe_quorum().voters[0].endpoints[0]


@pytest.fixture
def admin(controller: VoterEndpoint) -> Iterator[Admin]:
    with Admin(bootstrap_controllers=f"{controller.host}:{controller.port}") as made:
        yield made


def test_controllers_are_described_and_change_metadata_without_brokers(admin: Admin, controller: VoterEndpoint, topic: str) -> None:
    found = admin.describe_cluster(include_authorized_operations=True)
    assert [(node.id, node.host, node.port) for node in found.nodes] == [(1, controller.host, controller.port)]
    assert (found.controller, found.cluster_id) == (1, admin.cluster_id)
    assert found.authorized_operations
    assert admin.describe_quorum().leader == 1
    assert admin.describe_features()["metadata.version"].finalized
    admin.create_topics([topic])
    mine = ConfigResource.topic(topic)
    admin.alter_configs({mine: {"retention.ms": 5}})
    eventually(lambda: admin.describe_configs([mine], names=["retention.ms"])[mine]["retention.ms"].value == "5")
    own = ConfigResource.broker(1)
    admin.alter_configs({own: {"log.retention.ms": 6}})
    eventually(lambda: admin.describe_configs([own], names=["log.retention.ms"])[own]["log.retention.ms"].value == "6")
    with pytest.raises(BrokerNotAvailableError, match="broker 7 is not in the cluster, whose nodes are 1"):
        admin.describe_configs([ConfigResource.broker(7)])
    assert admin.list_partition_reassignments() == {}
    admin.delete_topics([topic])
    with pytest.raises(BrokerIdNotRegisteredError):
        admin.unregister_broker(7)


def test_what_needs_brokers_is_refused_at_once(admin: Admin) -> None:
    for call in (admin.list_topics, admin.list_groups, lambda: admin.describe_groups(["bills"]), lambda: admin.group_offsets("bills"),
                 lambda: admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.LATEST})):
        with pytest.raises(UnsupportedEndpointTypeError, match="open one with bootstrap_servers"):
            call()


def test_brokers_are_no_controllers_and_controllers_no_brokers(cluster: LocalCluster, controller: VoterEndpoint) -> None:
    with Admin(bootstrap_controllers=cluster.bootstrap_servers) as admin, pytest.raises(MismatchedEndpointTypeError, match="leads to a broker"):
        admin.describe_cluster()
    with Admin(bootstrap_servers=f"{controller.host}:{controller.port}") as admin, pytest.raises(UnsupportedVersionError, match="It is a controller"):
        admin.describe_cluster()


def test_controllers_offer_the_requests_that_are_sent_to_them_and_no_others(controller: VoterEndpoint) -> None:
    offered = ask((controller.host, controller.port), ApiVersionsRequest(), ApiVersionsResponse, 10).api_keys
    assert {api for api in SPOKEN if any(int(each.api_key) == api.value for each in offered)} == ANSWERED | OF_OTHERS | NOT_ANSWERED
