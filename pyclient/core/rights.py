"""What a broker's refusal says of rights: which operation, on which resource, and what to grant. The one place that knows it. Pure."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pyclient.codec.apis import Api
from pyclient.errors import (
    ClusterAuthorizationError, GroupAuthorizationError, KafkaError, TopicAuthorizationError, TransactionalIdAuthorizationError, error_for,
)
from pyclient.records import TopicPartition

TOPIC: Final = TopicAuthorizationError.code
GROUP: Final = GroupAuthorizationError.code
CLUSTER: Final = ClusterAuthorizationError.code
_TRANSACTIONAL_ID: Final = TransactionalIdAuthorizationError.code


@attrs.frozen
class Right:
    """An operation as ACLs name it; ``link`` joins it to the resource, ``more`` is what else would do, or why it is needed."""

    operation: str
    link: str = " "
    more: str = ""


_MEMBER: Final = Right("READ", more=" (to be a member of it)")
_SEE: Final = Right("DESCRIBE", more=" (READ and WRITE include it)")
_FIND: Final = Right("DESCRIBE", more=" (READ includes it)")

RIGHTS: Final[Mapping[tuple[Api, int | None], Right]] = {
    (Api.PRODUCE, TOPIC): Right("WRITE", " to "),
    (Api.PRODUCE, CLUSTER): Right("IDEMPOTENT_WRITE", " on ", " (brokers before 2.8 want it of idempotent producers; enable_idempotence=False does without)"),
    (Api.INIT_PRODUCER_ID, CLUSTER): Right("IDEMPOTENT_WRITE", " on ", " (or WRITE on any topic; enable_idempotence=False does without)"),
    (Api.FETCH, TOPIC): Right("READ", " from "),
    (Api.FETCH, CLUSTER): Right("READ", " from "),
    (Api.METADATA, TOPIC): Right("DESCRIBE", more=" (READ and WRITE include it), or to CREATE it if it is not there"),
    (Api.LIST_OFFSETS, TOPIC): _SEE,
    (Api.OFFSET_FOR_LEADER_EPOCH, TOPIC): _SEE,
    (Api.CREATE_TOPICS, TOPIC): Right("CREATE", more=" (on it, or on the cluster)"),
    (Api.CREATE_TOPICS, CLUSTER): Right("CREATE", " topics in "),
    (Api.DELETE_TOPICS, TOPIC): Right("DELETE"),
    (Api.DESCRIBE_CONFIGS, CLUSTER): Right("DESCRIBE_CONFIGS", " of "),
    (Api.FIND_COORDINATOR, GROUP): _FIND,
    (Api.OFFSET_FETCH, GROUP): _FIND,
    (Api.OFFSET_FETCH, TOPIC): _SEE,
    (Api.OFFSET_COMMIT, GROUP): Right("READ", more=" (to commit its offsets)"),
    (Api.OFFSET_COMMIT, TOPIC): Right("READ", " from "),
    (Api.JOIN_GROUP, GROUP): _MEMBER,
    (Api.SYNC_GROUP, GROUP): _MEMBER,
    (Api.HEARTBEAT, GROUP): _MEMBER,
    (Api.LEAVE_GROUP, GROUP): _MEMBER,
    (Api.DESCRIBE_GROUPS, GROUP): _FIND,
    (Api.CONSUMER_GROUP_HEARTBEAT, GROUP): _MEMBER,
    (Api.CONSUMER_GROUP_HEARTBEAT, TOPIC): _SEE,
}
"""What each request needs, by the error that says it is missing."""


def error_of(api: Api, code: int, said: str | None = None, *, topic: str | None = None, group: str | None = None,
             where: TopicPartition | None = None) -> KafkaError:
    """The error of a broker's *code* in an answer of *api*: as `error_for`, save that a missing right is told by operation and resource.

    *said* are words beside it, the broker's or ours; *topic*, *group* and *where* what was asked about.
    """
    right = RIGHTS.get((api, code))
    if right is None:
        return error_for(code, said, topic_partition=where)
    shown = _resource(code, topic if where is None else where.topic, group)
    plain = error_for(code, topic_partition=where)
    plain.args = (f"not allowed to {right.operation}{right.link}{shown}{right.more}: {_cure(right, shown)}{_beside(said, shown)} [{plain.name}]",)
    return plain


def _resource(code: int, topic: str | None, group: str | None) -> str:
    if code == TOPIC:
        return "a topic" if topic is None else f"topic {topic!r}"
    if code == GROUP:
        return "a group" if group is None else f"group {group!r}"
    return "the cluster"


def _cure(right: Right, shown: str) -> str:
    return f"have {right.operation} on {shown} granted to the user this client is (kafka-acls --add --operation), or be another one."


def _beside(said: str | None, shown: str) -> str:
    """What else is said, unless it is that alone."""
    words = (said or "").strip().rstrip(".")
    return "" if not words or words == shown else f" {words}."
