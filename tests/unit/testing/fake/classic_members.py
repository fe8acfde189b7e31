"""Classic group members as requests, for tests of the fake's coordinators in virtual time."""
from __future__ import annotations

import asyncio
from typing import Any

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.group import Group
from tests.unit.testing.fake.cluster_driver import ClusterDriver

SOON_S = 0.01
SESSION_S = 10.0
REBALANCE_S = 20.0
RANGE = (("range", b"r"),)


class ClassicMembers(ClusterDriver):
    """Two brokers; broker 1 coordinates the group ``g`` and gets the requests, unless *broker* is given."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(2, **settings)
        self.do(lambda: self.kafka.move_coordinator("g", 1))

    @property
    def group(self) -> Group:
        found = self.kafka.part(Coordinator).groups["g"]
        assert isinstance(found, Group)
        return found

    def joining(self, member: str = "", *, instance: str | None = None, protocols: tuple[tuple[str, bytes], ...] = RANGE,
                session_s: float = SESSION_S, rebalance_s: float = REBALANCE_S, kind: str = "consumer", version: int = 9,
                broker: int = 1, group: str = "g") -> asyncio.Task[Any]:
        return self.begin(Api.JOIN_GROUP, version, {
            "group_id": group, "session_timeout": int(session_s * 1000), "rebalance_timeout": int(rebalance_s * 1000),
            "member_id": member, "group_instance_id": instance, "protocol_type": kind, "reason": None,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols]}, broker)

    def answer(self, task: asyncio.Task[Any]) -> Any:
        return self.loop.run_until_complete(task)

    def join(self, member: str = "", **options: Any) -> Any:
        return self.answer(self.joining(member, **options))

    def id(self, **options: Any) -> str:
        """An id for a new dynamic member."""
        return str(self.join(**options).member_id)

    def syncing(self, member: str, generation: int, assignments: dict[str, bytes] | None = None, *, instance: str | None = None,
                protocol: str | None = "range", kind: str | None = "consumer", broker: int = 1) -> asyncio.Task[Any]:
        return self.begin(Api.SYNC_GROUP, 5, {
            "group_id": "g", "generation_id": generation, "member_id": member, "group_instance_id": instance, "protocol_type": kind,
            "protocol_name": protocol,
            "assignments": [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]}, broker)

    def sync(self, member: str, generation: int, assignments: dict[str, bytes] | None = None, **options: Any) -> Any:
        return self.answer(self.syncing(member, generation, assignments, **options))

    def classic_heartbeat(self, member: str, generation: int, *, instance: str | None = None, broker: int = 1) -> int:
        return int(self.call(Api.HEARTBEAT, 4, {
            "group_id": "g", "generation_id": generation, "member_id": member, "group_instance_id": instance}, broker).error_code)

    def leave(self, *members: tuple[str, str | None], broker: int = 1) -> list[int]:
        answer = self.call(Api.LEAVE_GROUP, 5, {"group_id": "g", "members": [
            {"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in members]}, broker)
        return [int(answer.error_code)] if answer.error_code else [int(each.error_code) for each in answer.members]

    def commit(self, offset: int, *, member: str = "", generation: int = -1, instance: str | None = None, note: str = "",
               topic: str = "t", partition: int = 0, version: int = 9, broker: int = 1, group: str = "g") -> int:
        answer = self.call(Api.OFFSET_COMMIT, version, {
            "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "group_instance_id": instance,
            "retention_time": -1, "topics": [{"name": topic, "partitions": [{
                "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
                "committed_metadata": note}]}]}, broker)
        return int(answer.topics[0].partitions[0].error_code)

    def committed(self, *, broker: int = 1, group: str = "g") -> tuple[int, dict[tuple[str, int], int]]:
        """The error code of the group, and its offsets."""
        (answer,) = self.call(Api.OFFSET_FETCH, 9, {"require_stable": False, "groups": [
            {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}]}, broker).groups
        return int(answer.error_code), {(topic.name, each.partition_index): each.committed_offset
                                        for topic in answer.topics for each in topic.partitions}

    def soon(self) -> None:
        """Run everything that needs no time."""
        self.advance(SOON_S)

    def stable(self, *instances: str | None, **options: Any) -> list[str]:
        """Members of a new stable group, the leader first; None is a dynamic one."""
        ids = ["" if instance is not None else self.id(**options) for instance in instances]
        joins = [self.joining(each, instance=instance, **options) for each, instance in zip(ids, instances, strict=True)]
        answers = [self.answer(each) for each in joins]
        leader, generation = answers[-1].leader, answers[-1].generation_id
        names = [each.member_id for each in answers]
        share = {name: f"of {place}".encode() for place, name in enumerate(names)}
        syncs = [self.syncing(name, generation, share if name == leader else None, instance=instance)
                 for name, instance in zip(names, instances, strict=True)]
        assert [self.answer(each).assignment for each in syncs] == list(share.values())
        return names
