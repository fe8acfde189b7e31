"""Errors of missing ACLs: which operation on which resource a request needs, and the command that grants it."""
from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from pyclient.codec.apis import Api
from pyclient.errors import (
    ClusterAuthorizationError, DelegationTokenAuthorizationError, GroupAuthorizationError, KafkaError, TopicAuthorizationError,
    TransactionalIdAuthorizationError, error_for,
)
from pyclient.records import TopicPartition
from pyclient.redaction import in_one_line

TOPIC: Final = TopicAuthorizationError.code
GROUP: Final = GroupAuthorizationError.code
CLUSTER: Final = ClusterAuthorizationError.code
TRANSACTIONAL_ID: Final = TransactionalIdAuthorizationError.code
TOKEN_OWNER: Final = DelegationTokenAuthorizationError.code


@attrs.frozen
class Right:
    """An operation as ACLs name it. ``link`` joins it to the resource; ``more`` names alternatives or the reason."""

    operation: str
    link: str = " "
    more: str = ""


_MEMBER: Final = Right("READ", more=" (to be a member of it)")
_SEE: Final = Right("DESCRIBE", more=" (READ and WRITE include it)")
_FIND: Final = Right("DESCRIBE", more=" (READ includes it)")
_TRANSACT: Final = Right("WRITE", " with ", " (to run transactions)")

RIGHTS: Final[Mapping[tuple[Api, int | None], Right]] = {
    (Api.PRODUCE, TOPIC): Right("WRITE", " to "),
    (Api.PRODUCE, CLUSTER): Right("IDEMPOTENT_WRITE", " on ", " (brokers before 2.8 require it for idempotent producers; enable_idempotence=False needs no such right)"),
    (Api.INIT_PRODUCER_ID, CLUSTER): Right("IDEMPOTENT_WRITE", " on ", " (or WRITE on any topic; enable_idempotence=False needs no such right)"),
    (Api.FETCH, TOPIC): Right("READ", " from "),
    (Api.FETCH, CLUSTER): Right("READ", " from "),
    (Api.METADATA, TOPIC): Right("DESCRIBE", more=" (READ and WRITE include it; a topic that does not exist needs CREATE)"),
    (Api.LIST_OFFSETS, TOPIC): _SEE,
    (Api.OFFSET_FOR_LEADER_EPOCH, TOPIC): _SEE,
    (Api.CREATE_TOPICS, TOPIC): Right("CREATE", more=" (on it, or on the cluster)"),
    (Api.CREATE_TOPICS, CLUSTER): Right("CREATE", " topics in "),
    (Api.DELETE_TOPICS, TOPIC): Right("DELETE"),
    (Api.CREATE_PARTITIONS, TOPIC): Right("ALTER", more=" (to add partitions)"),
    (Api.DELETE_RECORDS, TOPIC): Right("DELETE", " records of "),
    (Api.DESCRIBE_CONFIGS, TOPIC): Right("DESCRIBE_CONFIGS", " of "),
    (Api.DESCRIBE_CONFIGS, GROUP): Right("DESCRIBE_CONFIGS", " of "),
    (Api.DESCRIBE_CONFIGS, CLUSTER): Right("DESCRIBE_CONFIGS", " of "),
    (Api.INCREMENTAL_ALTER_CONFIGS, TOPIC): Right("ALTER_CONFIGS", " of "),
    (Api.INCREMENTAL_ALTER_CONFIGS, GROUP): Right("ALTER_CONFIGS", " of "),
    (Api.INCREMENTAL_ALTER_CONFIGS, CLUSTER): Right("ALTER_CONFIGS", " of "),
    (Api.DESCRIBE_USER_SCRAM_CREDENTIALS, CLUSTER): Right("DESCRIBE", more=" (to see its users)"),
    (Api.ALTER_USER_SCRAM_CREDENTIALS, CLUSTER): Right("ALTER", more=" (to change its users)"),
    (Api.DESCRIBE_CLIENT_QUOTAS, CLUSTER): Right("DESCRIBE_CONFIGS", " of ", more=" (to see quotas)"),
    (Api.ALTER_CLIENT_QUOTAS, CLUSTER): Right("ALTER_CONFIGS", " of ", more=" (to change quotas)"),
    (Api.ELECT_LEADERS, CLUSTER): Right("ALTER", more=" (to elect leaders)"),
    (Api.ALTER_PARTITION_REASSIGNMENTS, CLUSTER): Right("ALTER", more=" (to move replicas)"),
    (Api.LIST_PARTITION_REASSIGNMENTS, CLUSTER): Right("DESCRIBE"),
    (Api.DESCRIBE_QUORUM, CLUSTER): Right("DESCRIBE"),
    (Api.UPDATE_FEATURES, CLUSTER): Right("ALTER", more=" (to change its features)"),
    (Api.UNREGISTER_BROKER, CLUSTER): Right("ALTER", more=" (to unregister a broker)"),
    (Api.ADD_RAFT_VOTER, CLUSTER): Right("ALTER", more=" (to change the quorum of controllers)"),
    (Api.REMOVE_RAFT_VOTER, CLUSTER): Right("ALTER", more=" (to change the quorum of controllers)"),
    (Api.LIST_CONFIG_RESOURCES, CLUSTER): Right("DESCRIBE_CONFIGS", " of "),
    (Api.ALTER_REPLICA_LOG_DIRS, CLUSTER): Right("ALTER", more=" (to move replicas)"),
    (Api.DESCRIBE_CLUSTER, CLUSTER): Right("ALTER", more=" (to ask controllers)"),
    (Api.DESCRIBE_LOG_DIRS, CLUSTER): Right("DESCRIBE"),
    (Api.DESCRIBE_ACLS, CLUSTER): Right("DESCRIBE", more=" (to see ACLs)"),
    (Api.CREATE_ACLS, CLUSTER): Right("ALTER", more=" (to change ACLs)"),
    (Api.DELETE_ACLS, CLUSTER): Right("ALTER", more=" (to change ACLs)"),
    (Api.FIND_COORDINATOR, GROUP): _FIND,
    (Api.OFFSET_FETCH, GROUP): _FIND,
    (Api.OFFSET_FETCH, TOPIC): _SEE,
    (Api.OFFSET_COMMIT, GROUP): Right("READ", more=" (to commit its offsets)"),
    (Api.OFFSET_COMMIT, TOPIC): Right("READ", " from "),
    (Api.JOIN_GROUP, GROUP): _MEMBER,
    (Api.SYNC_GROUP, GROUP): _MEMBER,
    (Api.HEARTBEAT, GROUP): _MEMBER,
    (Api.LEAVE_GROUP, GROUP): Right("READ", more=" (to be a member of it, or to remove members)"),
    (Api.DESCRIBE_GROUPS, GROUP): _FIND,
    (Api.CONSUMER_GROUP_DESCRIBE, GROUP): _FIND,
    (Api.CONSUMER_GROUP_DESCRIBE, TOPIC): _SEE,
    (Api.DELETE_GROUPS, GROUP): Right("DELETE"),
    (Api.OFFSET_DELETE, GROUP): Right("DELETE", more=" (to delete its offsets)"),
    (Api.OFFSET_DELETE, TOPIC): Right("READ", " from "),
    (Api.LIST_GROUPS, CLUSTER): Right("DESCRIBE", more=" (or of each group)"),
    (Api.CONSUMER_GROUP_HEARTBEAT, GROUP): _MEMBER,
    (Api.CONSUMER_GROUP_HEARTBEAT, TOPIC): _SEE,
    (Api.FIND_COORDINATOR, TRANSACTIONAL_ID): Right("DESCRIBE", more=" (WRITE includes it)"),
    (Api.INIT_PRODUCER_ID, TRANSACTIONAL_ID): _TRANSACT,
    (Api.PRODUCE, TRANSACTIONAL_ID): _TRANSACT,
    (Api.ADD_PARTITIONS_TO_TXN, TRANSACTIONAL_ID): _TRANSACT,
    (Api.ADD_PARTITIONS_TO_TXN, TOPIC): Right("WRITE", " to "),
    (Api.ADD_OFFSETS_TO_TXN, TRANSACTIONAL_ID): _TRANSACT,
    (Api.ADD_OFFSETS_TO_TXN, GROUP): Right("READ", more=" (to commit its offsets in a transaction)"),
    (Api.TXN_OFFSET_COMMIT, TRANSACTIONAL_ID): _TRANSACT,
    (Api.TXN_OFFSET_COMMIT, GROUP): Right("READ", more=" (to commit its offsets in a transaction)"),
    (Api.TXN_OFFSET_COMMIT, TOPIC): Right("READ", " from "),
    (Api.END_TXN, TRANSACTIONAL_ID): _TRANSACT,
    (Api.LIST_TRANSACTIONS, CLUSTER): Right("DESCRIBE", more=" (or of each transactional id)"),
    (Api.DESCRIBE_TRANSACTIONS, TRANSACTIONAL_ID): Right("DESCRIBE", more=" (WRITE includes it)"),
    (Api.DESCRIBE_TRANSACTIONS, TOPIC): _SEE,
    (Api.DESCRIBE_PRODUCERS, TOPIC): Right("READ", " from "),
    (Api.WRITE_TXN_MARKERS, CLUSTER): Right("ALTER", more=" (to abort a transaction of another producer)"),
    (Api.CREATE_DELEGATION_TOKEN, TOKEN_OWNER): Right("CREATE_TOKENS", " for "),
}
"""The right that each request needs, by API and error code."""


def error_of(api: Api, code: int, said: str | None = None, *, topics: Sequence[str] = (), group: str = "",
             transactional_id: str = "", user: str = "", tp: TopicPartition | None = None) -> KafkaError:
    """The error for a broker's *code* in a response of *api*: as `error_for`, but a missing right names operation,
    resource and the command that grants it.

    *said* is further text, the broker's or ours. *topics*, *group*, *transactional_id*, *user* (a principal) or *tp*
    are what the request was about.
    """
    right = RIGHTS.get((api, code))
    if right is None:
        return error_for(code, said, topic_partition=tp)
    about, option = _resource(code, topics if tp is None else [tp.topic], group, transactional_id, user)
    error = error_for(code, topic_partition=tp)
    command = f"kafka-acls --add --allow-principal User:… --operation {right.operation.title().replace('_', '')} {option}"
    error.args = (f"not allowed to {right.operation}{right.link}{about}{right.more}: grant it to this client's user ({command}).{_beside(said, about)} [{error.name}]",)
    return error


def _resource(code: int, topics: Sequence[str], group: str, transactional_id: str, user: str) -> tuple[str, str]:
    """The resource as text, and as arguments of ``kafka-acls``."""
    if code == GROUP:
        return f"group {group!r}", f"--group {shlex.quote(group)}"
    if code == TRANSACTIONAL_ID:
        return f"transactional id {transactional_id!r}", f"--transactional-id {shlex.quote(transactional_id)}"
    if code == TOKEN_OWNER:
        return f"user {user!r}", f"--user-principal {shlex.quote(user)}"
    if code != TOPIC:
        return "the cluster", "--cluster"
    option = " ".join(f"--topic {shlex.quote(name)}" for name in topics) or "--topic …"
    if len(topics) == 1:
        return f"topic {topics[0]!r}", option
    return f"one of the topics {', '.join(map(repr, topics))}" if topics else "a topic", option


def _beside(said: str | None, about: str) -> str:
    """The further text as a sentence, unless it only names the resource."""
    words = in_one_line((said or "").strip()).rstrip(".")
    return "" if not words or words == about else f" {words}."
