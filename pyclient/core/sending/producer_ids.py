# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The producer id, by which brokers identify an idempotent producer (KIP-98).

Requested once, and again when its epochs are used up.

Rule: no batch is numbered before there is an id (I11). An error that is not retriable fails the waiting batches and
leaves the producer usable: the next record requests an id again (I12).
"""
from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Protocol

from pyclient.codec.apis import Api
from pyclient.core.calls import Again, Anywhere, Call, CallOutcome, Calls, Done, Finish
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError

NONE = -1


class IdSource(Protocol):
    """Where a sender gets its producer id: `ProducerIds`, or the transactions of a transactional producer."""

    on_failure: Callable[[KafkaError], object]

    @property
    def current(self) -> int | None:
        """The id; None before there is one."""

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of a request in flight."""

    def want(self) -> None:
        """A batch waits for an id."""

    def retire(self, producer_id: int) -> None:
        """This id has no epochs left."""


class ProducerIds:
    """The current producer id. ``on_failure(error)`` is called when a request for one has failed."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._call: Call | None = None
        self.current: int | None = None
        """The id; None before there is one."""
        self.on_failure: Callable[[KafkaError], object] = lambda _: None

    def want(self) -> None:
        """Request an id, unless there is one or a request is in flight."""
        if self.current is None and self._call is None:
            self._call = init_producer_id_call(self._on_id)
            self._calls.submit(self._call)

    def retire(self, producer_id: int) -> None:
        """This id has no epochs left: the next `want` requests another."""
        if self.current == producer_id:
            self.current = None

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of the request that is in flight; None if there was none."""
        return self._call.last_error if self._call is not None else None

    def _on_id(self, producer_id: int | None, error: BaseException | None) -> None:
        self._call = None
        if error is None:
            self.current = producer_id
        elif isinstance(error, KafkaError):
            self.on_failure(error)


def init_producer_id_call(finish: Finish) -> Call:
    """Request a new producer id from any broker; the result is its number."""

    def fields(version: int) -> dict[str, object]:
        return {"transactional_id": None, "transaction_timeout": datetime.timedelta(0), "producer_id": NONE, "producer_epoch": NONE}

    return Call(what="getting a producer id", api=Api.INIT_PRODUCER_ID, target=Anywhere.ANY_NODE, fields=fields, classify=_classify,
                finish=finish, deadline=None)


def _classify(message: Any) -> CallOutcome:
    if not message.error_code:
        return Done(message.producer_id)
    error = error_of(Api.INIT_PRODUCER_ID, message.error_code, "an idempotent producer needs a producer id; enable_idempotence=False does without")
    return Again(error) if error.retriable else error
