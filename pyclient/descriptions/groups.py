"""Groups, their members and their committed offsets, as `Admin` returns them."""
from __future__ import annotations

from typing import NamedTuple

from pyclient.descriptions.acls import AclOperation
from pyclient.records import OffsetAndMetadata, TopicPartition


class GroupListing(NamedTuple):
    """A group as `Admin.list_groups` finds it.

    ``type`` is Kafka's: ``classic``, ``consumer`` (KIP-848) and others; None on brokers before 3.8. So is ``state``:
    ``Stable``, ``Empty`` …; None on brokers before 2.6. ``protocol_type`` is ``consumer`` for groups of consumers.
    """

    group_id: str
    protocol_type: str
    state: str | None
    type: str | None


class GroupMember(NamedTuple):
    """A member of a group, with the partitions that it has now, ordered.

    ``target`` are those that a member of a KIP-848 group shall have in the end; None in classic groups.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None


class GroupDescription(NamedTuple):
    """A group with its members. ``assignor`` is empty while a classic group has none; ``epoch`` is that of KIP-848.

    ``coordinator`` is the node id of the broker that described it. ``authorized_operations`` are what this client's
    user may do with the group; None when they were not asked for.
    """

    group_id: str
    type: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    coordinator: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None


class GroupOffset(NamedTuple):
    """What a group has committed for a partition, the end of the partition's log, and the records between.

    ``lag`` is None when the group has committed nothing, and not below 0. ``end`` is None when lags were not asked for.
    """

    committed: OffsetAndMetadata | None
    end: int | None
    lag: int | None


class OffsetReset(NamedTuple):
    """A change of a committed offset: from *before* (None: nothing was committed) to *after*."""

    before: int | None
    after: int
