"""Steps of a consumer's calls, each performed in the sync and in the async way (`pyclient.runtime.steps`)."""
from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import attrs

from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.single_user import SingleUser
from pyclient.records import TopicPartition
from pyclient.runtime.portals import LoopPortal, ThreadPortal


class WaitForData:
    """Wait until there is data, a wakeup or a rebalance, at most *timeout* seconds; the result says whether it came.

    *yield_first*: let other tasks run first. A poll that drops records (interceptors may) must not hold the loop.
    """

    __slots__ = ("core", "timeout", "yield_first")

    def __init__(self, core: ConsumerCore, timeout: float | None, yield_first: bool) -> None:  # attrs takes twice as long for each poll
        self.core = core
        self.timeout = timeout
        self.yield_first = yield_first

    def run(self, portal: ThreadPortal) -> bool:
        """As `Step.run`. Putting data into the buffer ends the wait."""
        return self.core.data.wait(self.timeout) or self.core.buffer.woken

    async def run_async(self, portal: LoopPortal) -> bool:
        """As `Step.run_async`."""
        if self.yield_first:
            await asyncio.sleep(0)
        return await portal.call(lambda: self.core.wait_for_data(self.timeout))


@attrs.frozen
class CallListener:
    """Call the user's rebalance listener, in the thread or task that polls."""

    single_user: SingleUser
    method: Callable[[list[TopicPartition]], Any]
    partitions: tuple[TopicPartition, ...]

    def run(self, portal: ThreadPortal) -> Any:
        """As `Step.run`."""
        with self.single_user.as_listener:
            return self.method(list(self.partitions))

    async def run_async(self, portal: LoopPortal) -> Any:
        """As `Step.run_async`. The method may be a plain function or a coroutine function."""
        with self.single_user.as_listener:
            result = self.method(list(self.partitions))
            return await result if inspect.isawaitable(result) else result
