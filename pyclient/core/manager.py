"""How decisions and the outside world talk: managers emit requests, and are told what became of each.

A manager never blocks, sleeps, reads a clock or draws unseeded randomness; *now* is in seconds of the driver's clock.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.produce import Buffer
from pyclient.errors import KafkaError


class Use(enum.Enum):
    """What a connection is for. Long polls and produce traffic share none with anything that may not wait."""

    __hash__ = object.__hash__  # there is one of each; Enum's own is interpreted, and every look for a connection needs it

    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATION = "coordination"
    MEMBERSHIP = "membership"  # its answers come when all members of a group are ready
    CONTROL = "control"


@attrs.frozen
class Reply:
    """The broker answered (or, for a request that has no answer, the bytes were written: *message* is None)."""

    version: int
    message: Any


@attrs.frozen
class NotSent:
    """Nothing was written: certainly not done."""

    cause: KafkaError


@attrs.frozen
class Unknown:
    """Written, but no answer came: done or not, nobody can tell."""

    cause: KafkaError


Outcome: TypeAlias = Reply | NotSent | Unknown
Encoder: TypeAlias = Callable[[int, int, str | None], list[Buffer]]
"""(version, correlation id, client id) → the request's bytes in pieces."""


@attrs.frozen(kw_only=True)
class Request:
    """One request for one node. Either *fields* (by version) or *encode* makes its bytes.

    *timeout* is how long an answer may take, in seconds; *done* is told the outcome exactly once. It gives True when nothing follows
    from it, for no manager: then none is asked.
    """

    node: int
    use: Use
    api: Api
    done: Callable[[float, Outcome], bool | None]
    timeout: float
    fields: Callable[[int], dict[str, object]] | None = None
    encode: Encoder | None = None
    versions: VersionRange | None = None
    answered: bool = True


class Ready(Protocol):
    """What can be written now. Asking for a node is a wish: the driver connects to it."""

    def slots(self, node: int, use: Use) -> int:
        """How many more requests the connection takes now; 0 while it is not ready, muted or full."""

    def least_loaded(self, use: Use) -> int | None:
        """The node to ask when any will do, if it is ready; None while none is (one is being connected to)."""


class Manager(Protocol):
    """One concern that talks to the cluster."""

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """All requests that can be written now: each is written before the next one is taken, and `ready` knows of it.

        Asked again when something has happened, or `next_deadline` has come.
        """

    def next_deadline(self) -> float | None:
        """When to poll again even if nothing happens; None when only an event can change anything."""


def earliest(*deadlines: float | None) -> float | None:
    """The smallest of the deadlines that are set."""
    first: float | None = None
    for each in deadlines:
        if each is not None and (first is None or each < first):
            first = each
    return first
