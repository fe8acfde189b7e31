"""Online conversion: the first KIP-848 member upgrades a classic group, the last one to leave downgrades it.

Assignments and subscriptions are carried over. Waiting requests are answered by `heartbeats` and `membership`.
"""
from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.records import TopicPartition
from pyclient.testing.fake.model.consumer_group import Catalog, ConsumerGroup
from pyclient.testing.fake.model.group import Group, Member, State
from pyclient.testing.fake.model.reconciliation import Classic, ConsumerMember, Place
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.subscription import Malformed, OversizedError, assigned, notes, read_subscription, written

PROTOCOL_TYPE: Final = "consumer"


class Policy(enum.Enum):
    """``group.consumer.migration.policy``: the allowed online conversions."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may be upgraded."""
        return self in (Policy.BIDIRECTIONAL, Policy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a KIP-848 group may be downgraded."""
        return self in (Policy.BIDIRECTIONAL, Policy.DOWNGRADE)


# ---- upgrade ---------------------------------------------------------------------------------------------------------


def upgraded(group: Group, catalog: Catalog, policy: Policy, most: int) -> ConsumerGroup:
    """A KIP-848 group with the members of a classic one and their last assignments.

    Raises:
        RefusalError: this group cannot be upgraded.
    """
    if not policy.upgrades:
        raise _fixed(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _fixed(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > most:
        raise _fixed(group, "the group size exceeds the consumer group maximum size")
    try:
        members = [_classic_member(group, each, catalog) for each in group.members.values()]
    except OversizedError:
        raise RefusalError(ErrorCode.unknown_server_error) from None  # a broker does not expect this one
    except Malformed:
        raise _fixed(group, "the embedded consumer protocol is malformed") from None
    made = ConsumerGroup(group.id, group.generation, group.generation, offsets=group.offsets)
    made.take_over(members, catalog)
    return made


def _fixed(group: Group, reason: str) -> RefusalError:
    return RefusalError(ErrorCode.group_id_not_found, f"Cannot upgrade classic group {group.id} to consumer group because {reason}.")


def _classic_member(group: Group, member: Member, catalog: Catalog) -> ConsumerMember:
    if notes(member.assignment):
        raise _fixed(group, "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
                            "before re-attempting the upgrade")
    said = read_subscription(member.metadata(group.protocol))
    held = places(assigned(member.assignment), catalog)
    return ConsumerMember(
        id=member.id, epoch=group.generation, previous_epoch=group.generation, instance=member.instance, rack=said.rack or None,
        client_id=member.client_id, host=member.host, rebalance_timeout_ms=member.rebalance_timeout_ms, topics=said.topics,
        assigned=dict.fromkeys(held, group.generation), classic=Classic(member.session_timeout_ms, member.protocols))


def places(named: Iterable[TopicPartition], catalog: Catalog) -> tuple[Place, ...]:
    """Partitions by topic id; unknown topics are left out."""
    return tuple((catalog[each.topic].id, each.partition) for each in named if each.topic in catalog)


# ---- downgrade -------------------------------------------------------------------------------------------------------


def can_downgrade(group: ConsumerGroup, without: Collection[str], policy: Policy, most: int) -> bool:
    """Whether only classic members remain."""
    left = [each for each in group.members.values() if each.id not in without]
    return policy.downgrades and 0 < len(left) <= most and all(each.classic is not None for each in left)


def downgraded(group: ConsumerGroup, without: Collection[str], catalog: Catalog) -> Group:
    """A classic group of the remaining members, with their target assignments."""
    made = Group(group.id, State.STABLE, generation=group.epoch, protocol_type=PROTOCOL_TYPE, offsets=group.offsets)
    names = {topic.id: name for name, topic in catalog.items()}
    for each in group.members.values():
        if each.classic is not None and each.id not in without:
            mine = [TopicPartition(names[topic], index) for topic, index in group.targets.get(each.id, ()) if topic in names]
            made.add(_member(each, each.classic, mine))
    made.protocol = made.choose()
    return made


def _member(member: ConsumerMember, classic: Classic, mine: Iterable[TopicPartition]) -> Member:
    version = int.from_bytes(classic.protocols[0][1][:2], "big")
    return Member(id=member.id, instance=member.instance, client_id=member.client_id, host=member.host,
                  session_timeout_ms=classic.session_timeout_ms, rebalance_timeout_ms=member.rebalance_timeout_ms,
                  protocol_type=PROTOCOL_TYPE, protocols=classic.protocols, assignment=written(mine, version), is_new=False)
