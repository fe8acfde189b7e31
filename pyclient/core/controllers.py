"""A client that is bound to controllers instead of brokers (KIP-919): what it may ask, how it learns of them."""
from __future__ import annotations

from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""The types of endpoint that DescribeCluster describes."""
TYPES_SINCE: Final = 1
"""The version of DescribeCluster that has the type of endpoint."""
ANSWERED: Final = frozenset({
    Api.API_VERSIONS, Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS, Api.DESCRIBE_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS,
    Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS, Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN,
    Api.ELECT_LEADERS, Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS, Api.ALTER_CLIENT_QUOTAS,
    Api.ALTER_USER_SCRAM_CREDENTIALS, Api.DESCRIBE_QUORUM, Api.UPDATE_FEATURES, Api.DESCRIBE_CLUSTER, Api.UNREGISTER_BROKER,
    Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER,
})
"""Requests of admin clients that controllers answer, of Kafka 4.3; older ones lack some."""
MISDIRECTED: Final = ("bootstrap_controllers leads to a broker: give the controllers' listeners (controller.listener.names), or use "
                      "bootstrap_servers.")
DESCRIBE: Final = VersionRange(TYPES_SINCE, SPOKEN[Api.DESCRIBE_CLUSTER].high)


def describe_fields(*, operations: bool = False) -> dict[str, object]:
    """The fields of a DescribeCluster request about controllers."""
    return {"include_cluster_authorized_operations": operations, "endpoint_type": CONTROLLERS, "include_fenced_brokers": False}


def not_of_controllers(api: Api, what: str) -> KafkaError | None:
    """The error of a request that needs brokers; None for one that controllers answer."""
    return None if api in ANSWERED else UnsupportedEndpointTypeError(
        f"{what} needs brokers: controllers do not answer {api.title}. This admin is bound to controllers; open one with bootstrap_servers for it. "
        f"[{UnsupportedEndpointTypeError.name}]")


def refusal(message: Any) -> KafkaError | None:
    """The error of a DescribeCluster response; None without one."""
    if not message.error_code:
        return None
    error = error_of(Api.DESCRIBE_CLUSTER, message.error_code, message.error_message)
    if isinstance(error, MismatchedEndpointTypeError):
        error.args = (f"{MISDIRECTED} {message.error_message or ''} [{error.name}]",)
    return error
