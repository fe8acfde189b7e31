"""The assignors of one consumer: what they make its member tell the group, and what it is told (G06, G07)."""
from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pyclient.codec.consumer_protocol import decode_assignment, encode_subscription
from pyclient.errors import ConfigurationError
from pyclient.plugins import Assignment, Assignor, MemberView, SeesAssignment, SendsUserData
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)
COOPERATIVE: Final = "cooperative"
EAGER: Final = "eager"


class GroupAssignors:
    """Assignors in the order of preference.

    Raises:
        ConfigurationError: no way of rebalancing is known to all of them, or two have one name.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None) -> None:
        self._by_name = {each.name: each for each in assignors}
        self._rack = rack
        if len(self._by_name) < len(assignors):
            raise ConfigurationError(f"two assignors have the same name: {', '.join(each.name for each in assignors)}", option="assignors")
        ways = set.intersection(*(set(each.protocols) for each in assignors))
        if not ways & {COOPERATIVE, EAGER}:
            listed = "; ".join(f"{each.name}: {', '.join(each.protocols)}" for each in assignors)
            raise ConfigurationError(f"the assignors have no way of rebalancing in common ({listed}): each must know eager, or each "
                                     "cooperative", option="assignors")
        self.cooperative = COOPERATIVE in ways
        """Whether partitions are kept while the group rebalances (KIP-429): only if all assignors can."""

    def find(self, name: str) -> Assignor | None:
        """The assignor of that name, if it is one of them."""
        return self._by_name.get(name)

    def subscriptions(self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int) -> list[tuple[str, bytes]]:
        """What this member tells the leader, for each assignor by its name."""
        names = sorted(topics)
        member = MemberView(tuple(names), tuple(owned), generation, rack=self._rack)
        return [(name, encode_subscription(member._replace(
            user_data=each.subscription_user_data(names) if isinstance(each, SendsUserData) else None)))
            for name, each in self._by_name.items()]

    def assigned(self, name: str, data: bytes, generation: int) -> tuple[TopicPartition, ...]:
        """The partitions that the leader gave this member. One that it left out got nothing.

        Raises:
            ProtocolError: the bytes are no assignment.
        """
        assignment = decode_assignment(data) if data else Assignment(())
        assignor: object = self._by_name.get(name)
        if isinstance(assignor, SeesAssignment):
            try:
                assignor.on_assignment(assignment, generation)
            except Exception:  # noqa: BLE001 a plugin's error does not undo the assignment
                _log.exception("assignor %s raised when it was told its assignment", name)
        return assignment.partitions
