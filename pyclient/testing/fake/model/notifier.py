"""Waiting for a change of any of several objects, on any loop."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Notifier:
    """Wakes waiters when its object has changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], None] = {}  # a dict keeps the order, which a replay needs

    def notify(self) -> None:
        """Wake all waiters."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(True)


class NotifierWatch:
    """Watches notifiers from its creation on, so that no notification is lost before the first wait."""

    def __init__(self, notifiers: Iterable[Notifier]) -> None:
        self._notifiers = list(notifiers)
        self._listen()

    def _listen(self) -> None:
        self._heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._among = [notifier._waiting for notifier in self._notifiers]
        for each in self._among:
            each[self._heard] = None

    async def notified(self, timeout: float) -> bool:
        """Wait for a notification since the last call, at most *timeout* seconds; returns whether there was one."""
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
        """Stop watching."""
        for each in self._among:
            each.pop(self._heard, None)


def _no_more(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
