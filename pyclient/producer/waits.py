"""What a call that sends may have to wait for: the topic's partitions, and memory for a record.

Both within one ``max_block_ms``.

Written once for both facades, as steps (`pyclient.runtime.steps`). Rule: a waiter always leaves the queue for memory,
also when Ctrl-C or a cancellation ends the wait; a grant that was not used goes to the next waiter.
"""
from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from pyclient.buffers.pool import Waiter
from pyclient.buffers.queues import TopicQueues
from pyclient.client.facade_base import left
from pyclient.errors import raisable
from pyclient.producer.core import ProducerCore
from pyclient.reactor import reactor
from pyclient.runtime.portals import LoopPortal, ThreadPortal
from pyclient.runtime.steps import Step, Steps, WaitFor

T = TypeVar("T")


class BlockBudget:
    """How long one call may still wait: ``max_block_ms`` from its beginning, no time in a delivery callback."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self.ms = core.config.max_block_ms
        self.began = core.clock()
        self._until = self.began + self.ms / 1000

    def left(self) -> float:
        """Seconds."""
        return 0.0 if self._core.observer.on_callback_thread() else left(self._until, self._core.clock)


@attrs.frozen
class WaitForMemory:
    """Wait until *waiter* is granted memory, at most *seconds*; answered with whether it was.

    *enqueue* puts it into the queue.
    """

    waiter: Waiter
    enqueue: Callable[[Waiter], object]
    seconds: float

    def run(self, portal: ThreadPortal) -> bool:
        """As `Step.run`."""
        waiter = reactor.Waiter(portal.reactor)
        self.waiter.notify = waiter.end
        self.enqueue(self.waiter)
        return portal.reactor.run_until(waiter, self.seconds)

    async def run_async(self, portal: LoopPortal) -> bool:
        """As `Step.run_async`."""
        gate = asyncio.Event()
        self.waiter.notify = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, gate.set)
        self.enqueue(self.waiter)
        try:
            async with asyncio.timeout(self.seconds):
                await gate.wait()
        except TimeoutError:
            return self.waiter.grant is not None
        return True


def known_topic(core: ProducerCore, topic: str) -> TopicQueues | None:
    """The topic's queues, if it is known; earlier calls that wait for it have queued their records then."""
    queues: TopicQueues | None = core.accumulator.topic(topic)
    if queues is not None and core.waiting_sends:
        core.waiting_sends.queue_all(topic, queues)
    return queues


def wait_for_topic(core: ProducerCore, topic: str, partition: int | None, budget: BlockBudget) -> Steps[Step, TopicQueues]:
    """The topic's queues, once it is known and has this *partition* (None: any).

    Raises:
        MetadataTimeoutError: not within the budget.
    """
    queues = known_topic(core, topic)
    if queues is not None and (partition is None or partition < len(queues)):
        return queues
    core.accumulator.check_gate()
    seconds = budget.left()
    found: TopicQueues = yield WaitFor(lambda: core.queues(topic, partition, seconds, budget.began))
    core.waiting_sends.queue_all(topic, found)
    return found


def append_when_granted(core: ProducerCore, queues: TopicQueues, enqueue: Callable[[Waiter], object], append: Callable[[Waiter], T],
                        budget: BlockBudget) -> Steps[Step, T]:
    """Wait in the queue for memory, then *append* with the waiter that was granted some.

    Raises:
        BufferExhaustedError: no grant within the budget.
        ClientClosedError, AuthenticationError: the producer was closed, or refused by the brokers, meanwhile.
    """
    began = core.clock()
    waiter = Waiter(_not_enqueued)

    try:
        if (yield WaitForMemory(waiter, enqueue, budget.left())):
            return append(waiter)
    finally:
        core.accumulator.leave(waiter)
    raise raisable(core.closed or core.refused or core.accumulator.exhausted(queues, core.clock() - began))


def _not_enqueued() -> Any:
    raise AssertionError("a waiter is notified before it is in the queue for memory")
