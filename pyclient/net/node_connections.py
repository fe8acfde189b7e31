# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The connections to one node, the choice among nodes, and the connections that are closing."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from pyclient.config.addresses import Address
from pyclient.core.connection import Reconnects, next_attempt_at
from pyclient.core.manager import Use, earlier, earliest
from pyclient.core.silence import LATELY
from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Event, Task
from pyclient.records import Node

if TYPE_CHECKING:
    from pyclient.net.connect import ConnectAttempt


class NodeConnections:
    """One connection per use, the tasks that open them, and the node's reconnect back-off."""

    def __init__(self, node: Node, reconnects: Reconnects, max_in_flight: Mapping[Use, int]) -> None:
        self.node = node
        self.reconnects = reconnects
        self.max_in_flight = dict(max_in_flight)
        self.connections: dict[Use, Connection] = {}
        self.tasks: dict[Use, Task[None]] = {}
        self.attempt: ConnectAttempt | None = None
        """The last one."""
        self.tried_at = -1.0
        self.connecting_since = -1.0
        """When the first of the attempts under way began."""
        self.answered_at = float("-inf")
        self.silent_since: float | None = None
        """Since when it answers nothing, as of the last look; None if it answers, or nothing is expected of it."""
        self.silence_logged = False
        self.first_address = 0
        """Which of the name's addresses the next attempt tries first."""
        self.wanted = False
        """Requested while its back-off runs."""
        self.unreachable = False
        """The last attempt failed. This is logged once."""
        self.may_require_login = False
        """It closed the connection on the first request that was sent to it."""

    @property
    def address(self) -> Address:
        """Host and port."""
        return Address(self.node.host, self.node.port)

    def free_slots(self, use: Use) -> int:
        """How many more requests the connection takes; 0 without a ready one."""
        connection = self.connections.get(use)
        if connection is None or not connection.accepts_requests():
            return 0
        free = self.max_in_flight.get(use, 1) - connection.count_in_flight()
        return max(0, free)

    @property
    def awaits_answer(self) -> bool:
        """A request is in flight."""
        return any(connection.in_flight for connection in self.connections.values())

    def usable(self, now: float) -> bool:
        """Connected, connecting, or allowed to connect."""
        return bool(self.connections or self.tasks) or self.reconnects.allowed(now)

    def untried(self, use: Use) -> bool:
        """Neither connected nor connecting for *use*."""
        return use not in self.connections and use not in self.tasks

    def remove(self, connection: Connection) -> bool:
        """Forget a connection; whether it was there."""
        for use, each in self.connections.items():
            if each is connection:
                del self.connections[use]
                return True
        return False

    def failed(self, now: float, *, reached: bool) -> None:
        """An attempt failed: the next one starts after a back-off, with another address."""
        self.first_address += 1
        self.reconnects.failed(now, reached=reached)

    def answered(self, now: float) -> None:
        """It is alive."""
        self.answered_at, self.silent_since, self.silence_logged = now, None, False

    def check_silence(self, now: float, silence_timeout_s: float) -> bool:
        """Whether an answer is due on some connection, or an attempt to connect lasts, and nothing comes.

        Between two attempts it stays silent: only an answer ends that.
        """
        silent = [each.silence.since for each in self.connections.values() if each.is_silent(now)]
        if self.tasks and now >= self.connecting_since + silence_timeout_s:
            silent.append(self.connecting_since)
        if silent:
            self.silent_since = earliest(self.silent_since, *silent)
        elif not self.tasks and not self.reconnects.failures:
            self.silent_since = None
        return bool(silent)

    def cancel_attempts(self) -> None:
        """Cancel the tasks that connect."""
        for task in self.tasks.values():
            task.cancel()

    def next_deadline(self, max_idle: float, checked_at: float, silence_timeout_s: float, others: float | None = None) -> float | None:
        """When a response is overdue, a connection idle or silent, a renewal due, or a wanted node's back-off over.

        *checked_at*: when `check_silence` was called last; *others*: as in `Silence.next_check`.
        """
        first = self.reconnects.not_before if self.wanted else None
        if self.tasks:
            silent_at = self.connecting_since + silence_timeout_s
            first = earliest(first, silent_at if checked_at < silent_at else checked_at + silence_timeout_s)
        for connection in self.connections.values():
            first = earlier(first, connection.next_deadline(others))
            if not connection.count_in_flight():
                first = earlier(first, connection.idle_since + max_idle)
        return first


def least_loaded(nodes: Sequence[NodeConnections], use: Use, random: Random, now: float) -> NodeConnections | None:
    """M04: of the nodes with a free slot one with the fewest requests in flight; None if there is none.

    A node that hangs has little to do. So those that have answered lately come first; a silent one is chosen only while
    every other one is silent as well, or out of reach: else another one is to be connected to.
    """
    ready = [node for node in nodes if node.free_slots(use)]
    speaking = [node for node in ready if node.silent_since is None]
    if not speaking and any(node.silent_since is None and (node.untried(use) or use in node.tasks) for node in nodes):
        return None
    ready = [node for node in speaking if now < node.answered_at + LATELY] or speaking or ready
    if not ready:
        return None
    fewest = min(node.connections[use].in_flight for node in ready)
    return random.choice([node for node in ready if node.connections[use].in_flight == fewest])


def longest_untried(nodes: Sequence[NodeConnections], random: Random) -> NodeConnections:
    """The node whose last attempt is the longest ago."""
    first = min(node.tried_at for node in nodes)
    return random.choice([node for node in nodes if node.tried_at == first])


def next_node_at(nodes: Sequence[NodeConnections], use: Use) -> float:
    """When one more of *nodes* may be connected to, beside those that are connecting."""
    return next_attempt_at(node.tried_at for node in nodes if use in node.tasks)


class ClosingConnections:
    """Connections that take no more requests, until they are closed.

    In the order of their start: runs must be repeatable.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._connections: dict[Connection, None] = {}
        self._ended = Event(reactor)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    def retire(self, connection: Connection) -> None:
        """Close it after its last response."""
        self._connections[connection] = None
        connection.retire()

    def close(self, connection: Connection, cause: KafkaError) -> None:
        """Close it now."""
        self._connections[connection] = None
        connection.close(cause)

    def ended(self, connection: Connection) -> None:
        """It is closed."""
        self._connections.pop(connection, None)
        self._ended.set()

    async def all_ended(self) -> None:
        """Wait until every connection is closed."""
        while self._connections:
            await self._next_end()

    async def these_ended(self, connections: Collection[Connection]) -> None:
        """Wait until none of *connections* is closing any more."""
        while not self._connections.keys().isdisjoint(connections):
            await self._next_end()

    async def _next_end(self) -> None:
        self._ended.clear()
        await self._ended.wait()
