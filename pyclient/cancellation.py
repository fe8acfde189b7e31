"""Whether a CancelledError cancels the running task or comes from a user's function; awaitables that may be dropped."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen
class CallOnLoop(Generic[T]):
    """Makes an awaitable and awaits it. A coroutine that is dropped before it is awaited would warn; this does not."""

    make: Callable[[], Awaitable[T]]

    def __await__(self) -> Generator[Any, Any, T]:
        return self.make().__await__()


def being_cancelled() -> bool:
    """Whether some caller cancels the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
