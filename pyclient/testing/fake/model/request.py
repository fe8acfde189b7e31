"""Requests and handlers as types. Independent of sockets and APIs."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import attrs

from pyclient.codec.apis import Api

if TYPE_CHECKING:
    from pyclient.testing.fake.model.kafka import Kafka

Fields: TypeAlias = Mapping[str, object]
"""A response: field names as in kio, nested; fields that a version lacks are ignored, durations are in ms."""


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """One decoded request."""

    broker: int
    api: Api
    version: int
    client_id: str | None
    body: Any
    """The kio entity."""
    peer: str
    """The client's address, without port."""
    connection: object
    """The same object for all requests of one connection."""


Handler: TypeAlias = "Callable[[Kafka, Request], Awaitable[Fields | None] | Fields | None]"
"""Answers a request; None means no response (acks=0). It may wait: later requests of the connection wait too."""

ErrorResponder: TypeAlias = "Callable[[Request, int], Fields]"
"""Builds the response with an error code in every error field of the API."""


class Row(NamedTuple):
    """How one API is answered."""

    handle: Handler
    refuse: ErrorResponder
