"""Steps that await what serializers need before they serialize (`pyclient.plugins.PreparesValues`).

Only an async producer awaits; in a sync one ``serialize`` itself may block, so there the steps do nothing. All waits
are within the ``max_block_ms`` of their call; a preparation that takes longer is cancelled, and its record refused.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from pyclient.column_serializers import ColumnEncoder
from pyclient.errors import SerializationError
from pyclient.producer.routing import Router
from pyclient.producer.waits import BlockBudget
from pyclient.runtime.portals import LoopPortal, ThreadPortal

Unserialized: TypeAlias = tuple[str, Any, Any]
"""Topic, key and value."""


@attrs.frozen
class Prepare:
    """Prepare a record; raises SerializationError when it cannot be."""

    router: Router
    record: Unserialized
    budget: BlockBudget

    def run(self, portal: ThreadPortal) -> None:
        """As `Step.run`."""

    async def run_async(self, portal: LoopPortal) -> None:
        """As `Step.run_async`."""
        await in_time(partial(_prepare, self.router, *self.record), self.budget, self.record[0])


@attrs.frozen
class PrepareEach:
    """Prepare the records; answered with an error or None for each."""

    router: Router
    records: Sequence[Unserialized]
    budget: BlockBudget

    def run(self, portal: ThreadPortal) -> list[SerializationError | None]:
        """As `Step.run`."""
        return [None] * len(self.records)

    async def run_async(self, portal: LoopPortal) -> list[SerializationError | None]:
        """As `Step.run_async`."""
        return [await _error_of(Prepare(self.router, record, self.budget), portal) for record in self.records]


@attrs.frozen
class PrepareColumn:
    """Let a column's encoder ask for what it needs, on no event loop."""

    encoder: ColumnEncoder
    topic: str
    is_key: bool
    budget: BlockBudget

    def run(self, portal: ThreadPortal) -> None:
        """As `Step.run`."""
        self.encoder.prepare(self.topic, is_key=self.is_key)

    async def run_async(self, portal: LoopPortal) -> None:
        """As `Step.run_async`."""
        if self.encoder.is_prepared(self.topic, is_key=self.is_key):
            self.encoder.prepare(self.topic, is_key=self.is_key)
        else:
            prepare = partial(asyncio.to_thread, self.encoder.prepare, self.topic, is_key=self.is_key)
            await in_time(prepare, self.budget, self.topic)


async def in_time(wait: Callable[[], Awaitable[object]], budget: BlockBudget, topic: str) -> None:
    """Await it as long as *budget* lasts; what need not wait is done also without any time.

    Raises:
        SerializationError: it was not done in time, and was cancelled.
    """
    try:
        async with asyncio.timeout(budget.left()):
            await wait()
    except TimeoutError as error:
        raise SerializationError(
            f"topic {topic!r}: the serializer was not prepared within max_block_ms ({budget.ms} ms), so nothing was queued. "
            "Is its schema registry slow?") from error


async def _error_of(prepare: Prepare, portal: LoopPortal) -> SerializationError | None:
    try:
        await prepare.run_async(portal)
    except SerializationError as error:
        return error
    return None


async def _prepare(router: Router, topic: str, key: Any, value: Any) -> None:
    if router.prepare_key is not None:
        await router.prepare_key(topic, key)
    if router.prepare_value is not None:
        await router.prepare_value(topic, value)
