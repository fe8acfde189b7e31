"""Waiting for something to happen to any of several things, on any loop."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Bell:
    """Rung when what it hangs on has changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], None] = {}  # a dict keeps the order, which a replay needs

    def ring(self) -> None:
        """Wake all who wait."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(True)


async def any_rings(bells: Iterable[Bell], timeout: float | None) -> bool:
    """Wait until one of the bells rings, at most *timeout* seconds; whether one did."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    waiting = [bell._waiting for bell in bells]
    for each in waiting:
        each[future] = None
    timer = None if timeout is None else loop.call_later(timeout, _no_more, future)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()
        for each in waiting:
            each.pop(future, None)


def _no_more(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
