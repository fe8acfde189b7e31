"""The allowed differences between the model and a real broker. The suite fails on a row that no run needs."""
from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from pyclient.codec.apis import Api


class Kind(enum.Enum):
    """How a field may differ."""

    RENAMED = "renamed"
    """Random values: equal values on one side must be equal on the other, through the whole run."""
    FREE = "free"
    """Any value; absent (null, empty, 0, -1) only on both sides."""
    UNORDERED = "any order"
    FEWER = "subset"
    """An unordered list of which the model has a subset."""


@attrs.frozen
class Allowance:
    """One row. *field* is the end of a path such as ``topics.partitions.leader_epoch``; *api* None is every API."""

    api: Api | None
    field: str
    kind: Kind
    reason: str
    key: str = ""
    """The field that identifies the items of a list."""
    apart: str = ""
    """The key of the one item that may be missing on either side."""
    containers: bool = False
    """Needed only where the real brokers are in containers."""


ALLOWED: Final = (
    Allowance(None, "port", Kind.RENAMED, "two clusters have two addresses"),
    Allowance(None, "cluster_id", Kind.RENAMED, "random per cluster"),
    Allowance(None, "topic_id", Kind.RENAMED, "random per topic"),
    Allowance(Api.API_VERSIONS, "api_keys", Kind.FEWER, "an API without handler is not offered", key="api_key"),
    Allowance(Api.API_VERSIONS, "supported_features", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.API_VERSIONS, "finalized_features", Kind.UNORDERED,
              "a hash map in the broker; kraft.version depends on the controllers' setup", key="name", apart="kraft.version"),
    Allowance(Api.API_VERSIONS, "finalized_features_epoch", Kind.FREE, "an offset in the metadata log"),
    Allowance(None, "controller_id", Kind.FREE, "a random broker in each response"),
    Allowance(Api.METADATA, "topics", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.PRODUCE, "responses", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.PRODUCE, "log_append_time", Kind.FREE, "the time of the append"),
    Allowance(Api.FETCH, "session_id", Kind.RENAMED, "random per session"),
    Allowance(None, "member_id", Kind.RENAMED, "random per member"),
    Allowance(Api.JOIN_GROUP, "leader", Kind.RENAMED, "a member id"),
    Allowance(Api.JOIN_GROUP, "members", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.DESCRIBE_GROUPS, "members", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.DESCRIBE_GROUPS, "client_host", Kind.RENAMED, "a container sees its gateway's address", containers=True),
    Allowance(Api.CONSUMER_GROUP_HEARTBEAT, "topic_partitions", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.CONSUMER_GROUP_HEARTBEAT, "partitions", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "members", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "topic_partitions", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "subscribed_topic_names", Kind.UNORDERED, "a hash set in the broker"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "client_host", Kind.RENAMED, "a container sees its gateway's address", containers=True),
    Allowance(Api.ADD_PARTITIONS_TO_TXN, "results_by_topic_v3_and_below", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.ADD_PARTITIONS_TO_TXN, "topic_results", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.ADD_PARTITIONS_TO_TXN, "results_by_partition", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.DESCRIBE_TRANSACTIONS, "transaction_start_time", Kind.FREE, "the broker's clock"),
    Allowance(Api.DESCRIBE_PRODUCERS, "last_timestamp", Kind.FREE, "the broker's clock, after a marker"),
    Allowance(Api.DESCRIBE_TRANSACTIONS, "topics", Kind.UNORDERED, "a hash set in the broker"),
    Allowance(Api.DESCRIBE_TRANSACTIONS, "partitions", Kind.UNORDERED, "a hash set in the broker"),
    Allowance(Api.OFFSET_FETCH, "partitions", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.DELETE_TOPICS, "responses", Kind.UNORDERED, "a hash map in the broker"),
    Allowance(Api.SASL_HANDSHAKE, "mechanisms", Kind.UNORDERED, "a hash set in the broker"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.r", Kind.RENAMED, "SCRAM's nonce, partly random"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.s", Kind.RENAMED, "SCRAM's salt, random per password"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.i", Kind.RENAMED, "SCRAM's iterations, chosen when the password is set"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.v", Kind.RENAMED, "SCRAM's server signature, computed from random values"),
)


def lines(used: Mapping[Allowance, int] | None = None) -> Iterator[str]:
    """The table as text."""
    for row in ALLOWED:
        api = "every API" if row.api is None else row.api.title
        yield f"{api:22} {row.field:32} {row.kind.value:12} {row.reason}" + ("" if used is None or row in used else "   NEVER NEEDED")
