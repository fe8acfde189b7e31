"""KIP-848 group members as requests, for tests of the fake's coordinators in virtual time."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import Coordinator
from tests.unit.testing.fake.classic_members import ClassicMembers

REBALANCE_S = 20.0
SESSION_S = 45.0


class ConsumerMembers(ClassicMembers):
    """The same cluster; its topic ``t`` has four partitions, and ``g`` is a KIP-848 group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.do(lambda: self.kafka.add_partitions(self.topic, [[1, 2]] * 3))
        self.epochs: dict[str, int] = {}

    @property
    def consumers(self) -> ConsumerGroup:
        found = self.kafka.part(Coordinator).groups["g"]
        assert isinstance(found, ConsumerGroup)
        return found

    def heartbeat(self, name: str, epoch: int | None = None, *, owned: Collection[int] | None = None, broker: int = 1, version: int = 1,
              group: str = "g", **said: Any) -> Any:
        """A heartbeat in the epoch of the member's last answer; *owned* are partitions of ``t``."""
        answer = self.call(Api.CONSUMER_GROUP_HEARTBEAT, version, {
            "group_id": group, "member_id": name, "member_epoch": self.epochs.get(name, 0) if epoch is None else epoch,
            "instance_id": None, "rack_id": None, "rebalance_timeout": -1, "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": self.places(owned), **said}, broker)
        if not answer.error_code:
            self.epochs[name] = answer.member_epoch
        return answer

    def places(self, owned: Collection[int] | None) -> list[Mapping[str, object]] | None:
        return None if owned is None else [{"topic_id": self.topic.id, "partitions": sorted(owned)}] if owned else []

    def enter(self, name: str, topics: Sequence[str] | None = ("t",), **said: Any) -> Any:
        """A member joins."""
        return self.heartbeat(name, 0, owned=(), **{"subscribed_topic_names": topics, "rebalance_timeout": int(REBALANCE_S * 1000), **said})

    def given(self, answer: Any) -> list[int] | None:
        """The partitions of ``t`` in an answer; None when it has no assignment."""
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        if answer.assignment is None:
            return None
        return [index for each in answer.assignment.topic_partitions if each.topic_id == self.topic.id for index in each.partitions]

    def shown(self, assignment: Any) -> list[int]:
        """The partitions in a description."""
        return [index for each in assignment.topic_partitions for index in each.partitions]

    def described(self, group: str = "g", broker: int = 1, version: int = 1) -> Any:
        return self.call(Api.CONSUMER_GROUP_DESCRIBE, version, {"group_ids": [group], "include_authorized_operations": False}, broker).groups[0]

    def pair(self) -> None:
        """Two members, a and b, that share ``t``."""
        self.enter("a")
        self.enter("b")
        self.heartbeat("a")
        self.heartbeat("a", owned=(0, 1))
        assert self.given(self.heartbeat("b")) == [2, 3]
        assert self.consumers.state.value == "Stable"
