"""A member of the group under test, as a program.

It writes each record to a file before it commits, so that it may be killed at any moment.
"""
from __future__ import annotations

import asyncio
import inspect
import json
import signal
import sys
from pathlib import Path
from typing import Any

from pyclient import AsyncConsumer, Consumer
from pyclient.errors import CommitFailedError, RebalanceInProgressError, WakeupError
from tests.broker.durability.processes import RUNNING, report


class Program:
    """*wish*: ``file``, ``manual``, ``use_async``, and the ``options`` of the consumer."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self._file = Path(wish["file"])
        self._manual = wish["manual"]
        self._use_async = wish["use_async"]
        self._options = wish["options"]
        self._stopping = False

    async def run(self) -> None:
        """A sync consumer has a loop of its own, and this one waits for it."""
        consumer: Any = (AsyncConsumer if self._use_async else Consumer)(**self._options, rebalance_listener=self)
        signal.signal(signal.SIGTERM, lambda *_: self._stop(consumer))
        report(RUNNING)
        if self._use_async:
            async with consumer:
                await self._read(consumer)
        else:
            with consumer:
                await self._read(consumer)

    def on_partitions_assigned(self, partitions: Any) -> None:
        report("assigned", *(each.partition for each in partitions))

    def on_partitions_revoked(self, partitions: Any) -> None:
        report("revoked", *(each.partition for each in partitions))

    def on_partitions_lost(self, partitions: Any) -> None:
        report("lost", *(each.partition for each in partitions))

    def _stop(self, consumer: Any) -> None:
        self._stopping = True
        consumer.wakeup()

    async def _read(self, consumer: Any) -> None:
        with self._file.open("wb", buffering=0) as done:
            while not self._stopping:
                try:
                    records = await now(consumer.poll())
                except WakeupError:
                    continue
                done.write(b"".join(b"%d %d %b\n" % (record.partition, record.offset, record.value) for record in records))
                if self._manual:
                    await self._commit(consumer)

    async def _commit(self, consumer: Any) -> None:
        try:
            await now(consumer.commit())
        except (CommitFailedError, RebalanceInProgressError) as refused:
            report("refused", type(refused).__name__)


async def now(answer: Any) -> Any:
    """The result of a sync or an async call."""
    return await answer if inspect.isawaitable(answer) else answer


if __name__ == "__main__":
    asyncio.run(Program(json.loads(sys.argv[1])).run())
