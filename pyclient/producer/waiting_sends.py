"""The order of an async producer's sends of a topic that is not known yet: each waits in its own task, and a later one
that finds the topic known must not overtake them.

So the call that finds it known first, one that waits or a new one, queues the records of all that wait, in their order.
"""
from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from pyclient.buffers.delivery import Delivery
from pyclient.buffers.queues import TopicQueues
from pyclient.runtime.steps import Step, Steps

SendSteps: TypeAlias = Steps[Step, Delivery]
QUEUED: Final = "The record was queued all the same."


class WaitingSend:
    """A record that *queue* appends once its topic is known, in the context of the call that sends it.

    *queue* may return steps that wait for memory: these belong to the call that sends the record.
    """

    def __init__(self, topic: str, queue: Callable[[TopicQueues], Delivery | SendSteps]) -> None:
        self.topic = topic
        self._queue = queue
        self._context = contextvars.copy_context()
        self._queued: Delivery | SendSteps | None = None
        self._error: Exception | None = None

    def run(self, queues: TopicQueues) -> None:
        """Append the record; what that returns or raises is kept for `result`."""
        try:
            self._queued = self._context.run(self._queue, queues)
        except Exception as error:  # noqa: BLE001 of user code: `result` raises it in the call that it belongs to
            self._error = error

    def result(self) -> Delivery | SendSteps:
        """What *queue* returned, or raises what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        assert self._queued is not None, "the topic is known"
        return self._queued

    def note(self, interruption: BaseException) -> None:
        """Note in what ends the call that its record is queued, if it is."""
        if isinstance(self._queued, Delivery):
            interruption.add_note(QUEUED)


def is_queued(interruption: BaseException) -> bool:
    """Whether it ended a send whose record was queued: the record was not refused."""
    return QUEUED in getattr(interruption, "__notes__", ())


class WaitingSends:
    """The sends that wait, by topic. False while there are none."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[WaitingSend]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, send: WaitingSend) -> None:
        """Put it behind the others of its topic."""
        self._by_topic.setdefault(send.topic, deque()).append(send)

    def queue_all(self, topic: str, queues: TopicQueues) -> None:
        """The topic is known: queue the records of all that wait for it."""
        for send in self._by_topic.pop(topic, ()):
            send.run(queues)

    def remove(self, send: WaitingSend) -> bool:
        """It waits no longer; whether it still did."""
        others = self._by_topic.get(send.topic, deque())
        if send not in others:
            return False
        others.remove(send)
        if not others:
            del self._by_topic[send.topic]
        return True
