"""Waiting for something to happen to any of several things, on any loop."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Bell:
    """Rung when what it hangs on has changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}  # a dict keeps the order, which a replay needs

    def ring(self) -> None:
        """Wake all who wait."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _add(self, future: asyncio.Future[None]) -> None:
        self._waiting[future] = None

    def _remove(self, future: asyncio.Future[None]) -> None:
        self._waiting.pop(future, None)


async def any_rings(bells: Iterable[Bell], timeout: float | None) -> bool:
    """Wait until one of the bells rings, at most *timeout* seconds; whether one did."""
    bells = list(bells)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for bell in bells:
        bell._add(future)
    try:
        async with asyncio.timeout(timeout):
            await future
    except TimeoutError:
        return future.done() and not future.cancelled()
    finally:
        for bell in bells:
            bell._remove(future)
    return True
