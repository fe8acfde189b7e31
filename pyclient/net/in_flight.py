"""The requests in flight on one connection: correlation ids, deadlines, and which request a response answers (M10)."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.messages import CORRELATION_ID_BYTES, correlation_id_of, decode_response
from pyclient.codec.produce import stored_response
from pyclient.core.handshake import UNSUPPORTED_VERSION
from pyclient.core.manager import Reply, Unknown
from pyclient.errors import KafkaError, ProtocolError, ResponseTimeoutError
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future

MAX_CORRELATION_ID: Final = 2**31 - 1


@attrs.define(eq=False)
class InFlight:
    """A request whose response has not come."""

    correlation_id: int
    api: Api
    version: int
    sent_at: float
    deadline: float
    end: int
    """Number of bytes ever queued on the connection up to the request's last one."""
    done: Callable[[float, Reply | Unknown], bool | None]
    held: float | None = 0.0
    give_up_at: float | None = None
    """When the caller stops waiting; the response is ignored then."""
    given_up: bool = False


class InFlightRequests:
    """In the order in which they were written, which is the order of their responses."""

    def __init__(self, label: str, reactor: Reactor) -> None:
        self._label = label
        self._reactor = reactor
        self.correlation_id = 0
        self._empty: Future[None] | None = None
        self.requests: deque[InFlight] = deque()

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self.requests)

    def __reversed__(self) -> Iterator[InFlight]:
        return reversed(self.requests)

    def next_id(self) -> int:
        """The correlation id of the next request; wraps to 0 after 2**31 - 1."""
        self.correlation_id = (self.correlation_id + 1) & MAX_CORRELATION_ID
        return self.correlation_id

    def add(self, api: Api, version: int, now: float, timeout: float, end: int, done: Callable[[float, Reply | Unknown], bool | None], *,
            held: float | None = 0.0, patience: float | None = None) -> None:
        """A request with the newest correlation id is about to be written."""
        give_up_at = None if patience is None else now + patience
        self.requests.append(InFlight(self.correlation_id, api, version, now, now + timeout, end, done, held, give_up_at))

    def answer(self, frame: memoryview, written: int) -> tuple[InFlight, Any]:
        """The oldest request, and its decoded response. *written*: number of bytes that left the connection so far.

        Raises:
            ProtocolError: the frame is not the oldest request's response.
        """
        if not self.requests:
            raise ProtocolError(f"{self._label} sent a response although no request was in flight")
        correlation_id, expected = correlation_id_of(frame), self.requests[0]
        if correlation_id != expected.correlation_id:
            raise ProtocolError(f"{self._label} answered request {correlation_id}, expected {expected.correlation_id}")
        if written < expected.end:
            # P07: done() frees the batch's memory, which is still to be written.
            raise ProtocolError(f"{self._label} answered request {correlation_id} before it was completely written")
        message = _decode(expected, frame)
        self.requests.popleft()
        return expected, message

    def overdue(self, now: float) -> InFlight | None:
        """The first request whose deadline has passed."""
        return next((each for each in self.requests if now >= each.deadline), None)

    def deadline(self) -> float | None:
        """The earliest deadline, or end of a caller's patience."""
        return min((each.deadline if each.give_up_at is None else min(each.deadline, each.give_up_at) for each in self.requests), default=None)

    def answer_due_since(self) -> float | None:
        """When the broker should have answered the oldest request; None if there is none, or it may take any time."""
        oldest = self.requests[0] if self.requests else None
        return None if oldest is None or oldest.held is None else oldest.sent_at + oldest.held

    def give_up_late(self, now: float) -> None:
        """End the requests whose callers wait no longer. Their responses are still expected."""
        for each in [each for each in self.requests if each.give_up_at is not None and now >= each.give_up_at]:
            done, each.done, each.give_up_at, each.given_up = each.done, _ignore, None, True
            done(now, Unknown(ResponseTimeoutError(f"{self._label} has not answered {each.api.title} within {now - each.sent_at:.1f} s")))

    def fail(self, now: float, cause: KafkaError) -> int:
        """The connection is lost: every outcome is `Unknown`. The number of requests."""
        lost, self.requests = self.requests, deque()
        for each in lost:
            each.done(now, Unknown(cause))
        self.notify_if_empty()
        return len(lost)

    async def drained(self) -> None:
        """Wait until no request is in flight. One task at a time."""
        while self.requests:
            self._empty = Future(self._reactor)
            await self._empty

    def notify_if_empty(self) -> None:
        """Resume `drained`."""
        if self._empty is not None and not self.requests and not self._empty.done():
            self._empty.set_result(None)


def _ignore(_now: float, _outcome: Reply | Unknown) -> bool:
    """The caller asks another broker."""
    return True


def _decode(expected: InFlight, frame: memoryview) -> Any:
    if expected.api is Api.PRODUCE and (stored := stored_response(expected.version, frame)) is not None:
        return stored
    version = 0 if expected.api is Api.API_VERSIONS and _refused(frame) else expected.version
    return decode_response(expected.api, version, frame)


def _refused(frame: memoryview) -> bool:
    """An ApiVersions refusal is always encoded in version 0, whatever was requested (M08)."""
    return int.from_bytes(frame[CORRELATION_ID_BYTES:CORRELATION_ID_BYTES + 2], "big") == UNSUPPORTED_VERSION
