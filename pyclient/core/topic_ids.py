"""Topics that are known by their ids only, until somebody tells their names (N09): when to ask which.

Brokers leave the names in a request out when it has an id: these are asked for by requests of their own, at a pace of their own.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from pyclient.codec.apis import VersionRange
from pyclient.core.backoff import WaitPolicy

BY_ID: Final = VersionRange(12, 99)
"""The versions of Metadata that take an id without a name."""


class WantedIds:
    """The ids that somebody wants the names of."""

    def __init__(self, backoff: WaitPolicy) -> None:
        self._backoff = backoff
        self._wanted: frozenset[UUID] = frozenset()
        self._fresh = False  # some were never asked for
        self._fruitless = 0
        self._not_before = 0.0

    def want(self, ids: Iterable[UUID]) -> None:
        """These and no others; new ones are asked for at once."""
        wanted = frozenset(ids)
        if not wanted <= self._wanted:
            self._fresh, self._fruitless = True, 0
        self._wanted = wanted

    def unknown(self, names: Mapping[UUID, str]) -> list[UUID]:
        """Those that have no name yet."""
        return sorted(each for each in self._wanted if each not in names)

    def due(self, now: float, names: Mapping[UUID, str]) -> list[UUID]:
        """Those to ask for now."""
        return self.unknown(names) if self._fresh or now >= self._not_before else []

    def deadline(self, names: Mapping[UUID, str]) -> float | None:
        """When to ask for some."""
        if not self.unknown(names):
            return None
        return 0.0 if self._fresh else self._not_before

    def asked(self) -> None:
        """A request with all that are due is under way."""
        self._fresh = False

    def answered(self, now: float) -> None:
        """It has ended; those that still have no name wait longer each time."""
        self._fruitless += 1
        self._not_before = now + self._backoff.after(self._fruitless)
