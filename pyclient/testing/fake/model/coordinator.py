"""Group coordinators: which broker coordinates which group, what it loads, and the groups' timers."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.group import Group
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.refusal import RefusalError

GROUP: Final = 0
"""Key type of groups in FindCoordinator."""
MOVES: Final = frozenset({"broker killed", "broker fenced", "broker started", "coordinator moved"})
Home = tuple[int, int]
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
        self._homes: dict[str, Home] = {}
        self._loaded_at: dict[str, float] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        kafka.listeners.append(self._on_event)

    # ---- finding -----------------------------------------------------------------------------------------------------

    def find(self, broker: int, group_id: str) -> AnyGroup | None:
        """The group, requested from *broker*.

        Raises:
            RefusalError: this broker does not coordinate it, or is still loading it.
        """
        if self._kafka.coordinator(GROUP, group_id) != broker:
            raise RefusalError(ErrorCode.not_coordinator)
        if self.loading(group_id):
            raise RefusalError(ErrorCode.coordinator_load_in_progress)
        return self.groups.get(group_id)

    def of(self, broker: int) -> list[AnyGroup]:
        """The groups this broker coordinates."""
        return [each for each in self.groups.values() if self._homes[each.id][0] == broker]

    def loading(self, group_id: str) -> bool:
        """Whether its coordinator is still loading it."""
        return self._loaded_at.get(group_id, 0.0) > self._kafka.clock()

    def put(self, group: AnyGroup) -> None:
        """Add a group, or replace one of the other type."""
        self._forget_timers(group)
        self.groups[group.id] = group
        self._homes[group.id] = self._home(group.id)

    def delete(self, group: AnyGroup) -> None:
        """Delete an empty group with its offsets."""
        group.end()
        self._forget_timers(group)
        del self.groups[group.id], self._homes[group.id]
        self._loaded_at.pop(group.id, None)
        self._kafka.report("group deleted", group=group.id)

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
        if event in MOVES:
            self._rehome(list(self.groups.values()))
        elif event == "topic deleted":
            self._forget_topic(str(facts["topic"]))

    def _rehome(self, groups: Iterable[AnyGroup]) -> None:
        for group in groups:
            home = self._home(group.id)
            if home != self._homes[group.id]:
                self._homes[group.id] = home
                self._move(group)

    def _home(self, group_id: str) -> Home:
        node = self._kafka.coordinator(GROUP, group_id)
        return node, self._kafka.brokers[node].epoch if node in self._kafka.brokers else 0

    def _move(self, group: AnyGroup) -> None:
        self._forget_timers(group)
        keeper = self.keepers.get(type(group))
        if keeper is not None:
            keeper.unload(group)
        restored = self.groups[group.id] = group.restored()
        self._loaded_at[group.id] = self._kafka.clock() + self._kafka.settings.coordinator_load_ms / 1000
        self._kafka.report("group moved", group=group.id, to=self._homes[group.id][0])
        if keeper is not None:
            keeper.load(restored)

    def _forget_topic(self, topic: str) -> None:
        for group in self.groups.values():
            for key in [key for key in group.offsets if key[0] == topic]:
                del group.offsets[key]
