# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The interface between decisions and I/O: managers emit requests, and the driver reports the outcome of each.

A manager never blocks, sleeps, reads a clock or draws unseeded randomness; *now* is in seconds of the driver's clock.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import Buffer, decode_response, encode_request
from pyclient.errors import KafkaError

Frame: TypeAlias = bytes | memoryview
"""A response, header included, frame length not."""


class Use(enum.Enum):
    """What a connection is used for. Long polls and Produce requests have their own: other requests must not wait
    behind them."""

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python, and each look-up needs it

    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATION = "coordination"
    MEMBERSHIP = "membership"  # JoinGroup and SyncGroup are answered when all members of the group are ready
    CONTROL = "control"


class Reply:
    """The broker responded. *message* is None for a request without a response: its bytes were written."""

    __match_args__ = ("version", "message")

    def __init__(self, version: int, message: Any) -> None:
        self.version = version
        self.message = message

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reply) and (self.version, self.message) == (other.version, other.message)

    def __repr__(self) -> str:
        return f"Reply(version={self.version}, message={self.message!r})"


def reply_with(version: int, message: Any) -> Reply:
    """As `Reply`, which each request gets."""
    made: Reply = Reply.__new__(Reply)
    made.version = version
    made.message = message
    return made


class NotAnswered:
    """No response arrived, because of *cause*."""

    __match_args__ = ("cause",)

    def __init__(self, cause: KafkaError) -> None:
        self.cause = cause

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotAnswered) and type(other) is type(self) and self.cause == other.cause

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cause!r})"


class NotSent(NotAnswered):
    """Nothing was written: the request was certainly not carried out."""


class Unknown(NotAnswered):
    """Written, but no response arrived: the request may or may not have been carried out."""


Outcome: TypeAlias = Reply | NotSent | Unknown


class Request:
    """One request for one node; *fields* (by version) makes its body.

    *timeout* is the limit for the response, in seconds. A broker may hold the request for *held* seconds before it
    answers; None: as long as it takes. After *silence_timeout_s* seconds without a response the outcome is `Unknown`,
    although the connection stays open: another broker can answer as well, and is asked next. *done* is called with the
    outcome exactly once. It returns True when no manager has anything to do because of it: then none is polled.
    """

    def __init__(self, *, node: int, use: Use, api: Api, timeout: float, done: Callable[[float, Outcome], bool | None],
                 held: float | None = 0.0, silence_timeout_s: float | None = None, fields: Callable[[int], dict[str, object]] | None = None,
                 versions: VersionRange | None = None, answered: bool = True) -> None:
        self.node = node
        self.use = use
        self.api = api
        self.timeout = timeout
        self.held = held
        self.silence_timeout_s = silence_timeout_s
        self.fields = fields
        self.versions = versions
        self.answered = answered
        self._done: Callable[[float, Outcome], bool | None] | None = done

    def __repr__(self) -> str:
        return f"<Request {self.api.title} to node {self.node}>"

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """The request's bytes in pieces, header included, frame length not."""
        assert self.fields is not None
        return [encode_request(self.api, version, correlation_id, client_id, self.fields(version))]

    def decode(self, version: int, frame: Frame) -> Any:
        """The response in *frame*, header included. Raises ProtocolError."""
        return decode_response(self.api, version, memoryview(frame))

    def done(self, now: float, outcome: Outcome) -> bool:
        """It has ended. True: no manager has anything to do because of it."""
        assert self._done is not None
        return bool(self._done(now, outcome))


class Ready:
    """What can be written now. A query for a node also makes the driver connect to it."""

    def slots(self, node: int, use: Use) -> int:
        """How many more requests the connection accepts now; 0 while it is not ready, throttled or full."""
        raise NotImplementedError

    def free(self, node: int, use: Use) -> int:
        """As `slots`, but no connection is opened."""
        raise NotImplementedError

    def least_loaded(self, use: Use) -> int | None:
        """The ready node with the fewest requests in flight, if possible one that has answered lately; None while none
        is ready (the driver connects to one)."""
        raise NotImplementedError

    def give_up(self, node: int, use: Use) -> None:
        """Another node is responsible: requests in flight on this connection end as `Unknown` at once."""
        raise NotImplementedError


class Manager:
    """One part of the client that sends requests, such as the sender or the fetcher."""

    needs_poll: bool
    """Whether something has happened since the last poll that only a poll handles: not only time has passed, and no
    response to a request of its own has come. Each manager sets it. One that does not know says True.
    """

    def must_be_polled(self) -> bool:
        """As `needs_poll`. A manager that derives it overrides this, and has a ``needs_poll`` that is always False."""
        return self.needs_poll

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """All requests that can be written now. Each is written, and counted by *ready*, before the next one is taken.

        Called after each event, and at `next_deadline`.
        """
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """When to poll again if no event comes before; None when only an event can change anything.

        Its time may come before the poll: the deadline stays until then, or it would pass for one that was moved.
        """
        raise NotImplementedError


def earlier(one: float | None, other: float | None) -> float | None:
    """The smaller one of two deadlines, of which None is none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def earliest(*deadlines: float | None) -> float | None:
    """The smallest of the deadlines that are not None."""
    first: float | None = None
    for each in deadlines:
        if each is not None and (first is None or each < first):
            first = each
    return first
