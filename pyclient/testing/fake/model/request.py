"""What a request is to those who answer it. Knows nothing of sockets, nor of what any API means."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import attrs

from pyclient.codec.apis import Api

if TYPE_CHECKING:
    from pyclient.testing.fake.model.kafka import Kafka

Fields: TypeAlias = Mapping[str, object]
"""An answer: Kafka's field names as kio spells them, nested ones too; what a version lacks is left out, durations are ms."""


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """One request, as a broker has it before it."""

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
"""Answers a request; None is no answer (acks=0). May wait: later requests of the same connection wait with it."""

ErrorResponder: TypeAlias = "Callable[[Request, int], Fields]"
"""The answer that carries one error code wherever this API has a place for one."""


class Row(NamedTuple):
    """How one API is answered."""

    handle: Handler
    refuse: ErrorResponder
