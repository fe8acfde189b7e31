"""Access control lists: who may do what to which resource."""
from __future__ import annotations

from typing import Final, NamedTuple

from pyclient.descriptions import KafkaEnum

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
NOT_ASKED: Final = -(2**31)
"""The bit set of a response whose request did not ask for authorized operations."""


class AclResourceType(KafkaEnum):
    """What an ACL is about. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(KafkaEnum):
    """How the resource's name is meant. ANY and MATCH are for filters; MATCH finds whatever applies to the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(KafkaEnum):
    """What is allowed or denied. ANY is for filters; ALL is every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations of a bit set, as brokers say what a client may do; None where they were not asked."""
    return None if bits == NOT_ASKED else frozenset(each for each in AclOperation if bits >> each & 1)


class AclPermission(KafkaEnum):
    """Whether it is allowed or denied; one denial outweighs all permissions. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry: *principal*, such as ``User:anna``, may (or may not) do *operation* to a resource, from *host*.

    `topic`, `group` … make one by its kind. ``User:*`` is everybody; a topic named ``*`` is every topic.
    """

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern: AclPattern = AclPattern.LITERAL

    @classmethod
    def topic(cls, name: str, principal: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW, host: str = "*",
              pattern: AclPattern = AclPattern.LITERAL) -> Acl:
        """About a topic; with ``pattern=AclPattern.PREFIXED`` about all whose names begin so."""
        return cls(AclResourceType.TOPIC, name, principal, operation, permission, host, pattern)

    @classmethod
    def group(cls, group_id: str, principal: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW, host: str = "*",
              pattern: AclPattern = AclPattern.LITERAL) -> Acl:
        """About a group."""
        return cls(AclResourceType.GROUP, group_id, principal, operation, permission, host, pattern)

    @classmethod
    def transactional_id(cls, name: str, principal: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW, host: str = "*",
                         pattern: AclPattern = AclPattern.LITERAL) -> Acl:
        """About a transactional id."""
        return cls(AclResourceType.TRANSACTIONAL_ID, name, principal, operation, permission, host, pattern)

    @classmethod
    def cluster(cls, principal: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW, host: str = "*") -> Acl:
        """About the cluster."""
        return cls(AclResourceType.CLUSTER, CLUSTER_NAME, principal, operation, permission, host)


class AclFilter(NamedTuple):
    """Which entries are meant: those that agree in everything that is given. None and ANY agree with all."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern: AclPattern = AclPattern.ANY


ALL_ACLS: Final = AclFilter()
