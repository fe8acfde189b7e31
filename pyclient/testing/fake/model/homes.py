"""Which broker coordinates which group or transactional id, and since when it has loaded it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.refusal import RefusalError

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Where brokers keep groups. The model has no such topic, but transactions name its partitions."""
MOVES: Final = frozenset({"broker killed", "broker fenced", "broker started", "coordinator moved"})


def offsets_partition(group: str, partitions: int) -> int:
    """Which of the partitions of the topic of offsets keeps this group: Java's hash of its name decides."""
    units = group.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at:at + 2], "big")) % 2**32
    return (value if value < 2**31 else 2**32 - value) % 2**31 % partitions


class Home(NamedTuple):
    """A broker, and which of its lives."""

    broker: int
    epoch: int


class Homes:
    """The homes of everything that coordinators of one kind keep."""

    def __init__(self, kafka: Kafka, key_type: int, moved: Callable[[str], None]) -> None:
        self._kafka = kafka
        self._key_type = key_type
        self._moved = moved
        """Called for each key that has another home now."""
        self._homes: dict[str, Home] = {}
        self._loaded_at: dict[str, float] = {}
        kafka.listeners.append(self._on_event)

    def check(self, broker: int, key: str) -> None:
        """Whether this broker answers requests about *key*.

        Raises:
            RefusalError: it does not coordinate it, or is still loading it.
        """
        if self._kafka.coordinator(self._key_type, key) != broker:
            raise RefusalError(ErrorCode.not_coordinator)
        if self.loading(key):
            raise RefusalError(ErrorCode.coordinator_load_in_progress)

    def of(self, key: str) -> int:
        """The broker that coordinates a known key; -1 when none runs."""
        return self._homes[key].broker

    def loading(self, key: str) -> bool:
        """Whether its coordinator is still loading it."""
        return self._loaded_at.get(key, 0.0) > self._kafka.clock()

    def put(self, key: str) -> None:
        """Keep it from now on."""
        self._homes[key] = self._home(key)

    def forget(self, key: str) -> None:
        """Keep it no longer."""
        del self._homes[key]
        self._loaded_at.pop(key, None)

    def _on_event(self, event: str, _facts: Mapping[str, object]) -> None:
        if event in MOVES:
            for key, before in list(self._homes.items()):
                home = self._home(key)
                if home != before:
                    self._homes[key] = home
                    self._loaded_at[key] = self._kafka.clock() + self._kafka.settings.coordinator_load_ms / 1000
                    self._moved(key)

    def _home(self, key: str) -> Home:
        node = self._kafka.coordinator(self._key_type, key)
        return Home(node, self._kafka.brokers[node].epoch if node in self._kafka.brokers else 0)
