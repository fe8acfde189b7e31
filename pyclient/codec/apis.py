"""Which of Kafka's APIs this client speaks, and in which versions. One row per API; nothing else knows a version."""
from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Final, NamedTuple


class Api(enum.IntEnum):
    """Kafka's request kinds for clients, by their key on the wire; which of them this client speaks is in `SPOKEN`."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81

    @functools.cached_property
    def title(self) -> str:
        """The name Kafka's documents use, such as ``ListOffsets``."""
        return self.name.title().replace("_", "")


class VersionRange(NamedTuple):
    """Inclusive bounds; empty when ``low > high``."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}" if self else "none"

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def common(self, other: VersionRange) -> VersionRange:
        """The versions both ranges hold; may be empty."""
        return VersionRange(max(self.low, other.low), min(self.high, other.high))


# Floors are what Kafka 4.x still accepts (M15) or older where an older broker costs nothing; ceilings are what is
# tested.
SPOKEN: Final[Mapping[Api, VersionRange]] = {
    Api.PRODUCE: VersionRange(3, 13),
    Api.FETCH: VersionRange(4, 17),
    Api.LIST_OFFSETS: VersionRange(1, 9),
    Api.METADATA: VersionRange(1, 13),
    Api.OFFSET_COMMIT: VersionRange(2, 9),
    Api.OFFSET_FETCH: VersionRange(1, 9),
    Api.FIND_COORDINATOR: VersionRange(0, 6),
    Api.JOIN_GROUP: VersionRange(2, 9),
    Api.HEARTBEAT: VersionRange(0, 4),
    Api.LEAVE_GROUP: VersionRange(0, 5),
    Api.SYNC_GROUP: VersionRange(0, 5),
    Api.DESCRIBE_GROUPS: VersionRange(0, 6),
    Api.LIST_GROUPS: VersionRange(0, 5),
    Api.SASL_HANDSHAKE: VersionRange(1, 1),
    Api.API_VERSIONS: VersionRange(0, 4),
    Api.CREATE_TOPICS: VersionRange(2, 7),
    Api.DELETE_TOPICS: VersionRange(1, 6),
    Api.DELETE_RECORDS: VersionRange(0, 2),
    Api.INIT_PRODUCER_ID: VersionRange(0, 5),
    Api.ADD_PARTITIONS_TO_TXN: VersionRange(0, 3),  # from 4 on brokers send it to each other
    Api.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    Api.END_TXN: VersionRange(0, 5),
    Api.WRITE_TXN_MARKERS: VersionRange(1, 1),
    Api.TXN_OFFSET_COMMIT: VersionRange(0, 5),
    Api.DESCRIBE_ACLS: VersionRange(1, 3),
    Api.CREATE_ACLS: VersionRange(1, 3),
    Api.DELETE_ACLS: VersionRange(1, 3),
    Api.DESCRIBE_CONFIGS: VersionRange(1, 4),
    Api.ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
    Api.DESCRIBE_LOG_DIRS: VersionRange(1, 4),
    Api.SASL_AUTHENTICATE: VersionRange(0, 2),
    Api.CREATE_PARTITIONS: VersionRange(0, 3),
    Api.CREATE_DELEGATION_TOKEN: VersionRange(1, 3),
    Api.RENEW_DELEGATION_TOKEN: VersionRange(1, 2),
    Api.EXPIRE_DELEGATION_TOKEN: VersionRange(1, 2),
    Api.DESCRIBE_DELEGATION_TOKEN: VersionRange(1, 3),
    Api.DELETE_GROUPS: VersionRange(0, 2),
    Api.ELECT_LEADERS: VersionRange(0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    Api.OFFSET_DELETE: VersionRange(0, 0),
    Api.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    Api.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    Api.DESCRIBE_QUORUM: VersionRange(0, 2),
    Api.UPDATE_FEATURES: VersionRange(1, 2),
    Api.DESCRIBE_CLUSTER: VersionRange(0, 2),
    Api.DESCRIBE_PRODUCERS: VersionRange(0, 0),
    Api.UNREGISTER_BROKER: VersionRange(0, 0),
    Api.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    Api.LIST_TRANSACTIONS: VersionRange(0, 1),
    Api.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
    Api.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
    Api.ADD_RAFT_VOTER: VersionRange(0, 1),
    Api.REMOVE_RAFT_VOTER: VersionRange(0, 0),
}


class Need(NamedTuple):
    """Why a request needs a version, and the first release of Kafka whose brokers have it."""

    release: str
    purpose: str = ""


OLDEST: Final = Need("2.1")
"""The oldest brokers that this client is for: what is not in the table below, they have."""

NEEDS: Final[Mapping[tuple[Api, int], Need]] = {
    (Api.INIT_PRODUCER_ID, 3): Need("2.5", "to take the next epoch of a producer"),
    (Api.PRODUCE, 12): Need("4.0", "for transactions by KIP-890"),
    (Api.TXN_OFFSET_COMMIT, 5): Need("4.0", "for transactions by KIP-890"),
    (Api.END_TXN, 5): Need("4.0", "for transactions by KIP-890"),
    (Api.CONSUMER_GROUP_HEARTBEAT, 0): Need("3.7"),
    (Api.API_VERSIONS, 3): Need("2.7", "to describe features"),
    (Api.LIST_OFFSETS, 7): Need("3.0", "to find the record with the largest timestamp"),
    (Api.LIST_OFFSETS, 8): Need("3.5", "to find the first offset that the broker itself has"),
    (Api.LIST_OFFSETS, 9): Need("3.9", "to find the last tiered offset"),
    (Api.LIST_GROUPS, 4): Need("2.6", "to list groups by state"),
    (Api.LIST_GROUPS, 5): Need("3.8", "to list groups by type"),
    (Api.LEAVE_GROUP, 3): Need("2.4", "to remove members"),
    (Api.CONSUMER_GROUP_DESCRIBE, 0): Need("3.8"),
    (Api.METADATA, 8): Need("2.3", "to describe authorized operations"),
    (Api.DESCRIBE_GROUPS, 3): Need("2.3", "to describe authorized operations"),
    (Api.DESCRIBE_CLUSTER, 0): Need("2.8"),
    (Api.DESCRIBE_CLUSTER, 1): Need("3.7", "to describe controllers"),
    (Api.DESCRIBE_CLUSTER, 2): Need("4.0", "to describe fenced brokers"),
    (Api.OFFSET_DELETE, 0): Need("2.4"),
    (Api.DESCRIBE_CONFIGS, 3): Need("2.6", "to describe configs with their documentation"),
    (Api.INCREMENTAL_ALTER_CONFIGS, 0): Need("2.3"),
    (Api.CREATE_DELEGATION_TOKEN, 1): Need("2.1 (without ZooKeeper: 3.6)"),
    (Api.CREATE_DELEGATION_TOKEN, 3): Need("3.3 (without ZooKeeper: 3.6)", "to create a token for another owner"),
    (Api.RENEW_DELEGATION_TOKEN, 1): Need("2.1 (without ZooKeeper: 3.6)"),
    (Api.EXPIRE_DELEGATION_TOKEN, 1): Need("2.1 (without ZooKeeper: 3.6)"),
    (Api.DESCRIBE_DELEGATION_TOKEN, 1): Need("2.1 (without ZooKeeper: 3.6)"),
    (Api.ELECT_LEADERS, 0): Need("2.2"),
    (Api.ELECT_LEADERS, 1): Need("2.4", "to elect leaders that are not in sync"),
    (Api.ALTER_PARTITION_REASSIGNMENTS, 0): Need("2.4"),
    (Api.LIST_PARTITION_REASSIGNMENTS, 0): Need("2.4"),
    (Api.DESCRIBE_CLIENT_QUOTAS, 0): Need("2.6"),
    (Api.ALTER_CLIENT_QUOTAS, 0): Need("2.6"),
    (Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0): Need("2.7 (without ZooKeeper: 3.5)"),
    (Api.ALTER_USER_SCRAM_CREDENTIALS, 0): Need("2.7 (without ZooKeeper: 3.5)"),
    (Api.DESCRIBE_QUORUM, 0): Need("3.3 (only without ZooKeeper)"),
    (Api.UPDATE_FEATURES, 1): Need("3.3 (only without ZooKeeper)"),
    (Api.ADD_RAFT_VOTER, 0): Need("3.9 (only without ZooKeeper)"),
    (Api.REMOVE_RAFT_VOTER, 0): Need("3.9 (only without ZooKeeper)"),
    (Api.UNREGISTER_BROKER, 0): Need("2.8 (only without ZooKeeper)"),
    (Api.LIST_CONFIG_RESOURCES, 0): Need("3.7"),
    (Api.LIST_CONFIG_RESOURCES, 1): Need("4.1", "to list other resources than client metrics"),
    (Api.DESCRIBE_PRODUCERS, 0): Need("2.8"),
    (Api.WRITE_TXN_MARKERS, 1): Need("2.8"),
    (Api.DESCRIBE_TRANSACTIONS, 0): Need("3.0"),
    (Api.LIST_TRANSACTIONS, 0): Need("3.0"),
    (Api.LIST_TRANSACTIONS, 1): Need("3.8", "to list transactions by duration"),
}
"""By request and the lowest version that it needs: all of a newer release than `OLDEST`."""
