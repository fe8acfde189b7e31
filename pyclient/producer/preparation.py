"""Steps that await what serializers need before they serialize (`pyclient.plugins.PreparesValues`).

Only an async producer awaits; in a sync one ``serialize`` itself may block, so there the steps do nothing.
"""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from pyclient.errors import SerializationError
from pyclient.plugins import ColumnEncoder
from pyclient.producer.routing import Router
from pyclient.runtime.loop_thread import Portal

Unserialized: TypeAlias = tuple[str, Any, Any]
"""Topic, key and value."""


@attrs.frozen
class Prepare:
    """Prepare a record; raises SerializationError when it cannot be."""

    router: Router
    record: Unserialized

    def run(self, portal: Portal) -> None:
        """As `Step.run`."""

    async def run_async(self) -> None:
        """As `Step.run_async`."""
        await _prepare(self.router, *self.record)


@attrs.frozen
class PrepareEach:
    """Prepare the records; answered with an error or None for each."""

    router: Router
    records: Sequence[Unserialized]

    def run(self, portal: Portal) -> list[SerializationError | None]:
        """As `Step.run`."""
        return [None] * len(self.records)

    async def run_async(self) -> list[SerializationError | None]:
        """As `Step.run_async`."""
        return [await _error_of(self.router, record) for record in self.records]


@attrs.frozen
class PrepareColumn:
    """Let a column's encoder ask for what it needs, on no event loop."""

    encoder: ColumnEncoder
    topic: str
    is_key: bool

    def run(self, portal: Portal) -> None:
        """As `Step.run`."""
        self.encoder.prepare(self.topic, is_key=self.is_key)

    async def run_async(self) -> None:
        """As `Step.run_async`."""
        if self.encoder.is_prepared(self.topic, is_key=self.is_key):
            self.encoder.prepare(self.topic, is_key=self.is_key)
        else:
            await asyncio.to_thread(self.encoder.prepare, self.topic, is_key=self.is_key)


async def _error_of(router: Router, record: Unserialized) -> SerializationError | None:
    try:
        await _prepare(router, *record)
    except SerializationError as error:
        return error
    return None


async def _prepare(router: Router, topic: str, key: Any, value: Any) -> None:
    if router.prepare_key is not None:
        await router.prepare_key(topic, key)
    if router.prepare_value is not None:
        await router.prepare_value(topic, value)
