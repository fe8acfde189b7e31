"""One consumer's assignors: the subscriptions they send to the leader, the assignments they receive (G06, G07)."""
from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pyclient.codec.consumer_protocol import decode_assignment, encode_subscription
from pyclient.descriptions.assignments import Assignment, MemberView
from pyclient.errors import ConfigurationError
from pyclient.plugins import Assignor, SeesAssignment, SendsUserData
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)
COOPERATIVE: Final = "cooperative"
EAGER: Final = "eager"


class GroupAssignors:
    """Assignors in order of preference.

    Raises:
        ConfigurationError: they have no rebalance protocol in common, or two have the same name.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None) -> None:
        self._by_name = {each.name: each for each in assignors}
        self._rack = rack
        if len(self._by_name) < len(assignors):
            raise ConfigurationError(
                f"two assignors have the same name: {', '.join(each.name for each in assignors)}", option="assignors")
        protocols = set.intersection(*(set(each.protocols) for each in assignors))
        if not protocols & {COOPERATIVE, EAGER}:
            listed = "; ".join(f"{each.name}: {', '.join(each.protocols)}" for each in assignors)
            raise ConfigurationError(f"the assignors have no rebalance protocol in common ({listed}): all must support eager, or all "
                                     "cooperative", option="assignors")
        self.cooperative = COOPERATIVE in protocols
        """Whether partitions are kept while the group rebalances (KIP-429): only if all assignors support it."""

    def find(self, name: str) -> Assignor | None:
        """The assignor called *name*, if there is one."""
        return self._by_name.get(name)

    def subscriptions(self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int) -> list[tuple[str, bytes]]:
        """What this member sends to the leader: (assignor, encoded subscription) pairs."""
        names = sorted(topics)
        member = MemberView(tuple(names), tuple(owned), generation, rack=self._rack)
        return [(name, encode_subscription(member._replace(
            user_data=each.subscription_user_data(names) if isinstance(each, SendsUserData) else None)))
            for name, each in self._by_name.items()]

    def assigned(self, name: str, data: bytes, generation: int) -> tuple[TopicPartition, ...]:
        """The partitions in this member's assignment; empty *data* means none.

        Raises:
            ProtocolError: *data* cannot be decoded.
        """
        assignment = decode_assignment(data) if data else Assignment(())
        assignor: object = self._by_name.get(name)
        if isinstance(assignor, SeesAssignment):
            try:
                assignor.on_assignment(assignment, generation)
            except Exception:  # noqa: BLE001 a plugin's error does not undo the assignment
                _log.exception("on_assignment of assignor %s raised; the assignment stands", name)
        return assignment.partitions
