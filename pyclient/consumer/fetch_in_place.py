"""Takes the usual response to a fetch, and sends the next fetch, where the loop sleeps and without a turn.

A consumer that waits for the next record has a fetch under way at each node. The next response nearly always holds
records of one partition, or nothing, and changes one position at most: no manager has to be asked what to do. The
thread that polls does it all in a fifth of the calls, while the loop sleeps; if none polls, the loop's own thread does.
All is then as if the other ways had done it, which know everything (`pyclient.client.in_place`) and get whatever is
unusual.
"""
from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from pyclient.client.in_place import PATIENCE
from pyclient.codec.fetch import knows
from pyclient.core.fetching.under_way import Fetch
from pyclient.core.manager import Use
from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.net.fetch_exchange import FetchExchange
from pyclient.net.lent_connection import LONGEST_WAIT, LoopLender
from pyclient.net.socket_read import receive_lent, receive_readable

if TYPE_CHECKING:
    from pyclient.consumer.core import ConsumerCore

_log = logging.getLogger(__name__)


class Awaited(NamedTuple):
    """A fetch under way, and the connection on which its response comes."""

    fetch: Fetch
    exchange: FetchExchange


class FetchInPlace:
    """Of one sync consumer."""

    def __init__(self, core: ConsumerCore, lender: LoopLender) -> None:
        self._core = core
        self._lender = lender
        self._selector = lender.selector
        self._epoll = lender.selector.descriptor
        self._came = False
        self._exchanges: dict[int, FetchExchange | None] = {}  # by node
        self._repeated: dict[int, Awaited] = {}  # by descriptor: what is awaited since the last turn, and nothing else was done
        self._quiet_until = 0.0  # then something else is to be done
        self._selector.on_woken = self._selector.on_borrowed = self._repeated.clear

    def wait(self, seconds: float | None) -> bool:
        """Whether a usual response came. May end before *seconds*: then something else is to be done."""
        self._came = False
        self._lender.run(functools.partial(self._wait, LONGEST_WAIT if seconds is None else min(seconds, LONGEST_WAIT)))
        return self._came

    def on_readable(self, descriptor: int) -> bool:
        """On the loop's thread, which would wake for *descriptor*; whether it may sleep on."""
        awaited = self._repeated.get(descriptor) if self._core.clock() < self._quiet_until else None
        if awaited is None:
            awaited = next((each for each in self._awaited() if each.exchange.descriptor == descriptor), None)
        if awaited is None:
            return False
        size, frame = receive_readable(descriptor, awaited.exchange.connection.reader.scratch, self._selector.bell)
        return bool(size) and self._take_turn(awaited, size, frame)

    def _wait(self, seconds: float) -> None:
        """With the loop lent."""
        awaited = self._awaited()
        if not awaited or self._core.buffer.has_news() or self._lender.signalled:
            return
        self._selector.patience = PATIENCE
        self._selector.scheduled = False
        try:
            descriptors = [each.exchange.descriptor for each in awaited]
            buffers = [each.exchange.connection.reader.scratch for each in awaited]
            place, size, frame = receive_lent(self._epoll, descriptors, buffers, self._selector.bell, int(seconds * 1000))
            if place < 0:
                self._selector.answer()
            elif size:
                self._came = self._take_turn(awaited[place], size, frame)
        finally:
            self._selector.patience = 0.0
            self._lender.wake_for_scheduled()  # a connection that closes

    def _awaited(self) -> list[Awaited]:
        """The fetches under way; none if anything else is to be done."""
        core, awaited = self._core, []
        self._quiet_until = min(core.driver.quiet_until(), core.metrics.next_mark)
        if core.clock() >= self._quiet_until:
            return []
        for fetch in core.fetcher.fetches_to_repeat():
            connection = core.connections.connection(fetch.node, Use.FETCH)
            if connection is None or connection.socket is None or not may_repeat(connection):
                return []
            exchange = self._exchange(fetch.node, connection)
            if exchange is None:
                return []
            awaited.append(Awaited(fetch, exchange))
        return awaited

    def _take_turn(self, awaited: Awaited, size: int, frame: bytes | None) -> bool:
        """Returns whether the response is a usual one; any other is handled as the loop does it."""
        connection = awaited.exchange.connection
        try:
            if frame is not None and self._repeats(awaited, size, frame):
                return True
            self._repeated.clear()
            connection.buffer_updated(size)
        except Exception as error:  # noqa: BLE001 the loop must go on, and the fetch needs an outcome
            self._repeated.clear()
            _log.exception("a defect in the client: a fetch could not be handled in place; closing the connection")
            connection.close(KafkaError(f"a fetch could not be handled: {error!r}"))
        return False

    def _repeats(self, awaited: Awaited, size: int, frame: bytes) -> bool:
        """Returns False, with nothing changed, if the response is not a usual one."""
        exchange = awaited.exchange
        following = exchange.run(self._core.fetcher.fetches, awaited.fetch, size, frame)
        if following is None:
            return False
        self._repeated[exchange.descriptor] = Awaited(following, exchange)
        if following.wait < awaited.fetch.wait:  # so its silence is to be looked for sooner
            self._core.connections.look_by(exchange.connection.next_deadline())
        return True

    def _exchange(self, node: int, connection: Connection) -> FetchExchange | None:
        found = self._exchanges.get(node)
        if found is None or found.connection is not connection:
            found = self._exchanges[node] = self._core.connections.fetch_exchange(node, connection)
        return found


def may_repeat(connection: Connection) -> bool:
    """Whether nothing but one response to a fetch can come, and the next fetch may be written."""
    return connection.awaits_one_answer and connection.ready and connection.reader.is_empty and knows(connection.requests.requests[0].version)
