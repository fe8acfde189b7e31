"""The order of commits: each begins when those announced before it have ended (C24), whichever task runs first."""
from __future__ import annotations

from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future



class CommitOrder:
    """Turns are taken in the order in which they were announced."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self._turns: list[Turn] = []

    def announce(self) -> Turn:
        """A place behind those announced so far. Any thread may call it; each turn must `end`."""
        turn = Turn(self)
        self._turns.append(turn)
        return turn

    def is_first(self, turn: Turn) -> bool:
        """Whether no earlier turn is left."""
        return self._turns[0] is turn

    def remove(self, turn: Turn) -> None:
        """This turn has ended, if it had not before; the first one that is left begins."""
        if turn in self._turns:
            self._turns.remove(turn)
            if self._turns:
                self._turns[0].call()


class Turn:
    """One place in the order; everything but its announcement happens in steps."""

    def __init__(self, order: CommitOrder) -> None:
        self._order = order
        self._called: Future[None] | None = None

    async def begins(self) -> None:
        """Wait until all earlier turns have ended."""
        while not self._order.is_first(self):
            self._called = Future(self._order.reactor)
            await self._called

    def call(self) -> None:
        """All earlier turns have ended."""
        if self._called is not None and not self._called.done():
            self._called.set_result(None)

    def end(self) -> None:
        """Let the next one begin. Idempotent."""
        self._order.remove(self)
