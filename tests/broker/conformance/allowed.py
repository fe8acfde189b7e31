"""Where the model may differ from a real broker: the one table. A row that no run needs fails the suite."""
from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from pyclient.codec.apis import Api


class Kind(enum.Enum):
    """How a field may differ."""

    RENAMED = "renamed"
    """Drawn at random: the same value on one side is the same value on the other, through the whole run."""
    FREE = "free"
    """Any value on either side; but absent (null, empty, 0, -1) only on both."""
    UNORDERED = "any order"
    FEWER = "fewer here"
    """A list in any order of which the model has only a part."""


@attrs.frozen
class Allowance:
    """One row. *field* is the end of a path such as ``topics.partitions.leader_epoch``; *api* None is every API."""

    api: Api | None
    field: str
    kind: Kind
    reason: str
    key: str = ""
    """The field by which the items of a list are known."""
    apart: str = ""
    """The one item, by its key, that either side may have or not."""
    containers: bool = False
    """Needed only where the real brokers are in containers."""


ALLOWED: Final = (
    Allowance(None, "port", Kind.RENAMED, "addresses of two clusters"),
    Allowance(None, "cluster_id", Kind.RENAMED, "drawn for each cluster"),
    Allowance(None, "topic_id", Kind.RENAMED, "drawn for each topic"),
    Allowance(Api.API_VERSIONS, "api_keys", Kind.FEWER, "what no family answers is not offered", key="api_key"),
    Allowance(Api.API_VERSIONS, "supported_features", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.API_VERSIONS, "finalized_features", Kind.UNORDERED,
              "a hash map there; kraft.version says how the controllers were set up", key="name", apart="kraft.version"),
    Allowance(Api.API_VERSIONS, "finalized_features_epoch", Kind.FREE, "an offset in the log of the cluster's metadata"),
    Allowance(None, "controller_id", Kind.FREE, "any broker there, drawn for each answer"),
    Allowance(Api.METADATA, "topics", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.PRODUCE, "responses", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.PRODUCE, "log_append_time", Kind.FREE, "when it was"),
    Allowance(Api.FETCH, "session_id", Kind.RENAMED, "drawn for each session"),
    Allowance(None, "member_id", Kind.RENAMED, "drawn for each member"),
    Allowance(Api.JOIN_GROUP, "leader", Kind.RENAMED, "a member id"),
    Allowance(Api.JOIN_GROUP, "members", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.DESCRIBE_GROUPS, "members", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.DESCRIBE_GROUPS, "client_host", Kind.RENAMED, "a container sees its gateway, not this machine", containers=True),
    Allowance(Api.CONSUMER_GROUP_HEARTBEAT, "topic_partitions", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.CONSUMER_GROUP_HEARTBEAT, "partitions", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "members", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "topic_partitions", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "subscribed_topic_names", Kind.UNORDERED, "a hash set there"),
    Allowance(Api.CONSUMER_GROUP_DESCRIBE, "client_host", Kind.RENAMED, "a container sees its gateway, not this machine", containers=True),
    Allowance(Api.DELETE_TOPICS, "responses", Kind.UNORDERED, "a hash map there"),
    Allowance(Api.SASL_HANDSHAKE, "mechanisms", Kind.UNORDERED, "a hash set there"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.r", Kind.RENAMED, "SCRAM's nonce, of which the broker draws a part"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.s", Kind.RENAMED, "SCRAM's salt, drawn for each password"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.i", Kind.RENAMED, "SCRAM's iterations, chosen by who sets the passwords"),
    Allowance(Api.SASL_AUTHENTICATE, "auth_bytes.v", Kind.RENAMED, "SCRAM's proof of the broker, made of what is drawn"),
)


def lines(used: Mapping[Allowance, int] | None = None) -> Iterator[str]:
    """The table as text."""
    for row in ALLOWED:
        api = "every API" if row.api is None else row.api.title
        yield f"{api:22} {row.field:32} {row.kind.value:12} {row.reason}" + ("" if used is None or row in used else "   NEVER NEEDED")
