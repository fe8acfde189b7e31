"""Which broker coordinates which group, what it finds when it begins to, and the timers of its groups."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyclient.testing.fake.group import Event, Group
from pyclient.testing.fake.model import Kafka
from pyclient.testing.fake.refused import Refused

GROUP: Final = 0
"""Key type of groups in FindCoordinator."""
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
MOVES: Final = frozenset({"broker killed", "broker started", "coordinator moved"})
Home = tuple[int, int]


class Coordinator:
    """The groups of a cluster, each at home on one broker. A broker that is given a group loads what was saved of it."""

    def __init__(self, kafka: Kafka) -> None:
        self.groups: dict[str, Group] = {}
        self.on_unload: Callable[[Group], None] = _nothing
        self.on_load: Callable[[Group], None] = _nothing
        self._kafka = kafka
        self._homes: dict[str, Home] = {}
        self._loaded_at: dict[str, float] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        kafka.listeners.append(self._on_event)

    # ---- finding ----------------------------------------------------------------------------------------------------

    def find(self, broker: int, group_id: str) -> Group | None:
        """The group, asked for at a broker.

        Raises:
            Refused: this broker does not coordinate it, or not yet.
        """
        if self._kafka.coordinator(GROUP, group_id) != broker:
            raise Refused(NOT_COORDINATOR)
        if self.loading(group_id):
            raise Refused(COORDINATOR_LOAD_IN_PROGRESS)
        return self.groups.get(group_id)

    def of(self, broker: int) -> list[Group]:
        """The groups this broker coordinates."""
        return [each for each in self.groups.values() if self._homes[each.id][0] == broker]

    def loading(self, group_id: str) -> bool:
        """Whether its coordinator has not read it yet."""
        return self._loaded_at.get(group_id, 0.0) > self._kafka.clock()

    def made(self, group_id: str) -> Group:
        """The group, which comes into being if there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = Group(group_id)
            self._homes[group_id] = self._home(group_id)
        return found

    def delete(self, group: Group) -> None:
        """Forget an empty group with its offsets."""
        group.on(Event.DELETED)
        self._forget_timers(group)
        del self.groups[group.id], self._homes[group.id]
        self._loaded_at.pop(group.id, None)
        self._kafka.tell("group deleted", group=group.id)

    # ---- timers -----------------------------------------------------------------------------------------------------

    def after(self, group: Group, kind: str, seconds: float, do: Callable[[], None]) -> None:
        """Do something later; a timer of the same kind is replaced."""
        self.cancel(group, kind)
        self._timers[group.id, kind] = asyncio.get_running_loop().call_later(max(0.0, seconds), do)

    def when(self, group: Group, kind: str) -> float | None:
        """When the timer of this kind ends, in the loop's seconds."""
        timer = self._timers.get((group.id, kind))
        return timer.when() if timer is not None else None

    def cancel(self, group: Group, kind: str) -> None:
        """Do not do it after all."""
        timer = self._timers.pop((group.id, kind), None)
        if timer is not None:
            timer.cancel()

    def _forget_timers(self, group: Group) -> None:
        for group_id, kind in [key for key in self._timers if key[0] == group.id]:
            self._timers.pop((group_id, kind)).cancel()

    # ---- moving -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        if event in MOVES:
            self._rehome(list(self.groups.values()))
        elif event == "topic deleted":
            self._forget_topic(str(facts["topic"]))

    def _rehome(self, groups: Iterable[Group]) -> None:
        for group in groups:
            home = self._home(group.id)
            if home != self._homes[group.id]:
                self._homes[group.id] = home
                self._move(group)

    def _home(self, group_id: str) -> Home:
        node = self._kafka.coordinator(GROUP, group_id)
        return node, self._kafka.brokers[node].epoch if node in self._kafka.brokers else 0

    def _move(self, group: Group) -> None:
        self._forget_timers(group)
        self.on_unload(group)
        restored = self.groups[group.id] = group.restored()
        self._loaded_at[group.id] = self._kafka.clock() + self._kafka.settings.coordinator_load_ms / 1000
        self._kafka.tell("group moved", group=group.id, to=self._homes[group.id][0])
        self.on_load(restored)

    def _forget_topic(self, topic: str) -> None:
        for group in self.groups.values():
            for key in [key for key in group.offsets if key[0] == topic]:
                del group.offsets[key]


def _nothing(_group: Group) -> None:
    """No members, no worries."""
