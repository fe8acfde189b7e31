"""What the parts of the admin facades share: one call, its time limits, and how failed items are raised."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any, TypeVar

from pyclient.client.facade_base import AsyncFacade, Facade, seconds
from pyclient.config import AdminConfig
from pyclient.core.admin.topics import metadata_call
from pyclient.core.cluster import Cluster
from pyclient.errors import KafkaError, PartialFailureError, UnknownServerError
from pyclient.runtime.portals import ThreadPortal

T = TypeVar("T")
Item = TypeVar("Item", bound=Hashable)


class AsyncCalls(AsyncFacade):
    """The base of the parts of `AsyncAdmin`: their public coroutines run as tasks of the client's reactor."""

    _config: AdminConfig

    def __init_subclass__(cls, *, calls: bool = True) -> None:
        """*calls*: whether the coroutines of this class are such tasks."""
        for name, method in list(vars(cls).items()) if calls else ():
            if inspect.iscoroutinefunction(method) and not name.startswith("_"):
                setattr(cls, name, _as_task(method))

    async def _describe(self, topics: list[str] | None, timeout: float | None, *, operations: bool = False) -> Cluster:
        found: Cluster = await self._core.call(
            lambda finish, deadline: metadata_call(topics, operations=operations, finish=finish, deadline=deadline), self._limit(timeout))
        return found

    def _left_of(self, timeout: float | None) -> Callable[[], float | None]:
        """For calls of several requests: a function that returns the seconds left of *timeout*; None: no limit."""
        limit, clock = self._limit(timeout), self._core.clock
        until = None if limit is None else clock() + limit
        return lambda: None if until is None else max(0.0, until - clock())

    def _limit(self, timeout: float | None) -> float | None:
        return seconds(timeout, self._config.default_api_timeout_ms)

    def _broker_limit(self, limit: float | None) -> float:
        """The broker's time limit: not longer than one request waits for its answer."""
        longest = self._config.request_timeout_ms / 1000
        return longest if limit is None else min(limit, longest)


def _as_task(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: AsyncCalls, *args: Any, **keywords: Any) -> T:
        if self._core.reactor.leads or self._portal.loop is None:  # by another such call or `Admin`; or it is not open yet
            return await method(self, *args, **keywords)
        return await self._portal.call(lambda: method(self, *args, **keywords))

    return call


class BlockingCalls(Facade):
    """The base of the parts of `Admin`."""

    _admin: AsyncCalls
    _portal: ThreadPortal

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._open_core()
        return self._portal.call(make)


def raise_failed(requested: Collection[Item], errors: Mapping[Item, KafkaError | None], *, what: str = "topic") -> None:
    """Raise the error of a single item as it is, and `PartialFailureError` for several; *what* names what items are."""
    outcomes(requested, errors, what=what)


def outcomes(requested: Collection[Item], answers: Mapping[Item, T | KafkaError], *, what: str = "topic") -> dict[Item, T]:
    """The result of each item that was *requested*, in that order.

    Raises:
        KafkaError: the only item failed.
        PartialFailureError: some of several failed; it has the results of the others.
    """
    failed: dict[Item, KafkaError] = {}
    done: dict[Item, T] = {}
    for item in dict.fromkeys(requested):
        answer = answer_of(answers, item, what)
        if isinstance(answer, KafkaError):
            failed[item] = answer
        else:
            done[item] = answer
    if len(failed) == 1 and not done:
        raise next(iter(failed.values()))
    if failed:
        raise PartialFailureError(failed, done)
    return done


def answer_of(answers: Mapping[Item, T | KafkaError], item: Item, what: str) -> T | KafkaError:
    """The result or the error of an item; an error too where the broker's answer lacks it: its outcome is unknown."""
    return answers[item] if item in answers else UnknownServerError(
        f"the broker's answer lacks {what} {item!r}: the operation may or may not have been carried out")
