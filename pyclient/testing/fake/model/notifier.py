"""Waiting for something to happen to any of several things, on any loop."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Notifier:
    """Rung when what it hangs on has changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], None] = {}  # a dict keeps the order, which a replay needs

    def notify(self) -> None:
        """Wake all who wait."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(True)


class NotifierWatch:
    """Hears every ring of some bells from its making on: also those before anybody waits for one, as when a task has yet to begin."""

    def __init__(self, notifiers: Iterable[Notifier]) -> None:
        self._notifiers = list(notifiers)
        self._listen()

    def _listen(self) -> None:
        self._heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._among = [notifier._waiting for notifier in self._notifiers]
        for each in self._among:
            each[self._heard] = None

    async def notified(self, timeout: float) -> bool:
        """Wait until one has rung since this was asked last, at most *timeout* seconds; whether one did."""
        timer = asyncio.get_running_loop().call_later(timeout, _no_more, self._heard)
        try:
            notified = await self._heard
        finally:
            timer.cancel()
            self.close()
        if notified:
            self._listen()
        return notified

    def close(self) -> None:
        """Listen no more."""
        for each in self._among:
            each.pop(self._heard, None)


def _no_more(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
