"""Group coordinators: which broker coordinates which group, what it loads, and the groups' timers."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.group import Committed, Group
from pyclient.testing.fake.model.homes import GROUP, Homes
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.pending_offsets import PendingOffsets
from pyclient.testing.fake.model.transactions import Place

AnyGroup: TypeAlias = Group | ConsumerGroup
"""A classic or a KIP-848 group; both share one space of ids."""


class Keeper(Protocol):
    """Manages the members of one type of group."""

    def unload(self, group: Any, /) -> None:
        """The group moves to another broker; *group* is the old one's state."""

    def load(self, group: Any, /) -> None:
        """The group as its new broker loaded it."""


class Coordinator:
    """The groups of a cluster, each on one broker. After a move the new broker loads the saved state."""

    def __init__(self, kafka: Kafka) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self.keepers: dict[type[AnyGroup], Keeper] = {}
        self._kafka = kafka
        self.homes = Homes(kafka, GROUP, self._move)
        self.pending = PendingOffsets(kafka.settings.offsets_topic_num_partitions)
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        kafka.listeners.append(self._on_event)

    # ---- finding -----------------------------------------------------------------------------------------------------

    def find(self, broker: int, group_id: str) -> AnyGroup | None:
        """The group, requested from *broker*.

        Raises:
            RefusalError: this broker does not coordinate it, or is still loading it.
        """
        self.homes.check(broker, group_id)
        return self.groups.get(group_id)

    def of(self, broker: int) -> list[AnyGroup]:
        """The groups this broker coordinates."""
        return [each for each in self.groups.values() if self.homes.of(each.id) == broker]

    def put(self, group: AnyGroup) -> None:
        """Add a group, or replace one of the other type."""
        self._forget_timers(group)
        self.groups[group.id] = group
        self.homes.put(group.id)

    def delete(self, group: AnyGroup) -> None:
        """Delete an empty group with its offsets."""
        group.end()
        self._forget_timers(group)
        del self.groups[group.id]
        self.homes.forget(group.id)
        self.pending.forget_group(group.id)
        self._kafka.report("group deleted", group=group.id)

    # ---- offsets -----------------------------------------------------------------------------------------------------

    def commit(self, group: AnyGroup, place: Place, committed: Committed, client: str | None) -> None:
        """Keep an offset of a partition."""
        group.offsets[place] = committed
        topic, partition = place
        self._kafka.report("committed", group=group.id, generation=group.generation, topic=topic, partition=partition,
                           offset=committed.offset, epoch=committed.leader_epoch, client=client)

    def end_transaction(self, partition: int, producer_id: int, *, commits: bool) -> bool:
        """Commit or drop what a transaction committed to groups of this partition of the topic of offsets.

        False: one of them has no coordinator now.
        """
        groups = self.pending.groups(partition, producer_id)
        if any(self.homes.of(each) not in self._kafka.brokers or self.homes.loading(each) for each in groups):
            return False
        for group, place, (committed, client) in self.pending.end(groups, producer_id):
            if commits:
                self.commit(self.groups[group], place, committed, client)
        return True

    # ---- timers ------------------------------------------------------------------------------------------------------

    def after(self, group: AnyGroup, kind: str, seconds: float, do: Callable[[], None]) -> None:
        """Call *do* later; a timer of the same kind is replaced."""
        self.cancel(group, kind)
        self._timers[group.id, kind] = asyncio.get_running_loop().call_later(max(0.0, seconds), do)

    def when(self, group: AnyGroup, kind: str) -> float | None:
        """Deadline of the timer of this kind, in the loop's seconds."""
        timer = self._timers.get((group.id, kind))
        return timer.when() if timer is not None else None

    def cancel(self, group: AnyGroup, kind: str) -> None:
        """Cancel the timer of this kind."""
        timer = self._timers.pop((group.id, kind), None)
        if timer is not None:
            timer.cancel()

    def _forget_timers(self, group: AnyGroup) -> None:
        for group_id, kind in [key for key in self._timers if key[0] == group.id]:
            self._timers.pop((group_id, kind)).cancel()

    # ---- moving ------------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        if event == "topic deleted":
            self._forget_topic(str(facts["topic"]))

    def _move(self, group_id: str) -> None:
        group = self.groups[group_id]
        self._forget_timers(group)
        keeper = self.keepers.get(type(group))
        if keeper is not None:
            keeper.unload(group)
        restored = self.groups[group.id] = group.restored()
        self._kafka.report("group moved", group=group.id, to=self.homes.of(group.id))
        if keeper is not None:
            keeper.load(restored)

    def _forget_topic(self, topic: str) -> None:
        for group in self.groups.values():
            for key in [key for key in group.offsets if key[0] == topic]:
                del group.offsets[key]
        self.pending.forget_topic(topic)
