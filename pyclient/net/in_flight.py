# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The requests in flight on one connection: correlation ids, deadlines, and which request a response answers (M10)."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyclient.codec.apis import Api
from pyclient.codec.memory import first_int32
from pyclient.codec.messages import CORRELATION_ID_BYTES, correlation_id_of
from pyclient.core.manager import Frame, Outcome, Request, Unknown
from pyclient.errors import KafkaError, ProtocolError, ResponseTimeoutError
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future

MAX_CORRELATION_ID: Final = 2**31 - 1


class InFlight:
    """A request whose response has not come. `InFlightRequests.add` makes it."""

    request: Request
    correlation_id: int
    version: int
    sent_at: float
    deadline: float
    end: int
    """Bytes ever queued on the connection up to its last one."""
    give_up_at: float | None
    """When the caller stops waiting; the response is ignored then."""
    given_up: bool

    @property
    def api(self) -> Api:
        """The request's."""
        return self.request.api

    def ended(self, now: float, outcome: Outcome) -> bool:
        """As `Request.done`, unless the caller waits no longer."""
        return True if self.given_up else self.request.done(now, outcome)


class InFlightRequests:
    """In the order in which they were written, which is the order of their responses."""

    def __init__(self, label: str, reactor: Reactor) -> None:
        self._label = label
        self._reactor = reactor
        self.correlation_id = 0
        self._empty: Future[None] | None = None
        self.requests: list[InFlight] = []

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self.requests)

    def __reversed__(self) -> Iterator[InFlight]:
        return reversed(self.requests)

    def next_id(self) -> int:
        """The correlation id of the next request; wraps to 0 after 2**31 - 1."""
        self.correlation_id = 0 if self.correlation_id == MAX_CORRELATION_ID else self.correlation_id + 1
        return self.correlation_id

    def add(self, request: Request, version: int, now: float, end: int) -> None:
        """A request with the newest correlation id is about to be written."""
        made: InFlight = InFlight.__new__(InFlight)
        made.request = request
        made.correlation_id = self.correlation_id
        made.version = version
        made.sent_at = now
        made.deadline = now + request.timeout
        made.end = end
        made.give_up_at = None if request.silence_timeout_s is None else now + request.silence_timeout_s
        made.given_up = False
        self.requests.append(made)

    def answered(self, frame: Frame, written: int) -> InFlight:
        """The oldest request, which *frame* answers. *written*: number of bytes that left the connection so far.

        Raises:
            ProtocolError: the frame is not the oldest request's response.
        """
        if not self.requests:
            raise ProtocolError(f"{self._label} sent a response although no request was in flight")
        correlation_id = first_int32(frame) if isinstance(frame, bytes) and len(frame) >= CORRELATION_ID_BYTES else correlation_id_of(memoryview(frame))
        oldest = self.requests[0]
        if correlation_id != oldest.correlation_id:
            raise ProtocolError(f"{self._label} answered request {correlation_id}, expected {oldest.correlation_id}")
        if written < oldest.end:
            # P07: the end of a request frees its batches' memory, which is still to be written.
            raise ProtocolError(f"{self._label} answered request {correlation_id} before it was completely written")
        return oldest

    def take_oldest(self) -> None:
        """Its response was read."""
        del self.requests[0]

    def overdue(self, now: float) -> InFlight | None:
        """The first request whose deadline has passed."""
        for each in self.requests:
            if now >= each.deadline:
                return each
        return None

    def deadline(self) -> float | None:
        """The earliest deadline, or end of what a caller waits."""
        first: float | None = None
        for each in self.requests:
            at = each.deadline if each.give_up_at is None or each.deadline < each.give_up_at else each.give_up_at
            if first is None or at < first:
                first = at
        return first

    def answer_due_since(self) -> float | None:
        """When the broker should have answered the oldest request; None if there is none, or it may take any time."""
        if not self.requests:
            return None
        oldest = self.requests[0]
        return None if oldest.request.held is None else oldest.sent_at + oldest.request.held

    def give_up_late(self, now: float) -> None:
        """End the requests whose callers wait no longer. Their responses are still expected."""
        for each in [each for each in self.requests if each.give_up_at is not None and now >= each.give_up_at]:
            each.give_up_at, each.given_up = None, True
            each.request.done(now, Unknown(ResponseTimeoutError(
                f"{self._label} has not answered {each.request.api.title} within {now - each.sent_at:.1f} s")))

    def fail(self, now: float, cause: KafkaError) -> int:
        """The connection is lost: every outcome is `Unknown`. The number of requests."""
        lost, self.requests = self.requests, []
        for each in lost:
            each.ended(now, Unknown(cause))
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
