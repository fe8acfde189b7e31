"""Runs the interceptors of producers and consumers, one after the other.

What one raises is logged and stops none of the others. Independent of brokers and positions. Rule: a producer's
interceptor can change a record and send it elsewhere, but neither drop nor fail it. A consumer's interceptor can leave
records out, but neither change nor add any.
"""
from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pyclient.buffers.records_view import Records, narrow
from pyclient.errors import ConfigurationError, KafkaError, counted, with_article
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import ConsumerInterceptor, ProducerInterceptor, Route, SeesClose
from pyclient.records import Headers, OffsetAndMetadata, RecordMetadata, TopicPartition
from pyclient.signatures import is_async, takes

_log = logging.getLogger(__name__)
Dispatch = Callable[[Callable[[], object]], None]
T = TypeVar("T")


class Interceptors:
    """A producer's interceptors. ``dispatch`` runs work where delivery callbacks run, one after the other."""

    def __init__(self, chain: Iterable[ProducerInterceptor], dispatch: Dispatch) -> None:
        self._chain = tuple(chain)
        self._changing = _having("on_send", self._chain)
        self._notified = _having("on_acknowledgement", self._chain)
        self._dispatch = dispatch
        self._closed = False

    def on_send(self, route: Route, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers, Route]:
        """The record after all of them, and where it goes: *route* is what the user said. One that raises leaves it
        unchanged.
        """
        for each in self._changing:
            topic: Any = route.topic
            try:
                key, value, headers, other = _record(each.on_send(topic, key, value, headers))
            except Exception:  # noqa: BLE001 a user's error must not lose the record
                _log.exception("interceptor %s: on_send raised for a record of topic %s, which is sent without its change", _name(each), topic)
            else:
                route = route if other is None else _rerouted(route, other)
        return key, value, headers, route

    def on_outcome(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Notify all of them of a record's outcome; called where callbacks run."""
        for each in self._notified:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:  # noqa: BLE001 the others must be notified too
                _log.exception("interceptor %s: on_acknowledgement raised; the delivery itself is unaffected", _name(each))

    def refused(self, error: BaseException) -> None:
        """A record that they saw was not queued."""
        cause = error if isinstance(error, Exception) else KafkaError("send was cancelled; nothing was queued")
        self._dispatch(lambda: self.on_outcome(None, cause))

    def close(self) -> None:
        """Close them, after they were notified of the last outcome. Idempotent."""
        if not self._closed:
            self._closed = True
            self._dispatch(lambda: _close(self._chain))


class ConsumerInterceptors:
    """A consumer's interceptors, called by the thread or task that uses the consumer."""

    def __init__(self, chain: Iterable[ConsumerInterceptor]) -> None:
        self._chain = tuple(chain)
        self._choosing = _having("on_consume", self._chain)
        self._notified = _having("on_commit", self._chain)

    def on_consume(self, records: Records[Any, Any]) -> Records[Any, Any]:
        """The records that none of them leaves out; the positions of all *records* are kept."""
        for each in self._choosing:
            if not records:
                break
            records = self._narrowed(each, records)
        return records

    def _narrowed(self, interceptor: ConsumerInterceptor, records: Records[Any, Any]) -> Records[Any, Any]:
        try:
            some: object = interceptor.on_consume(records)
            if not isinstance(some, Records):
                raise TypeError(f"on_consume returned {with_article(type(some).__name__)}; it must return Records, such as records.filter(...) or "
                                "records.select(...) gives")
            return narrow(records, some)
        except Exception:  # noqa: BLE001 a user's error must not lose records
            _log.exception("interceptor %s: on_consume raised, or returned other records than it was given; all %d records are returned",
                           _name(interceptor), len(records))
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notify all of them of a commit."""
        for each in self._notified:
            try:
                each.on_commit(dict(offsets))
            except Exception:  # noqa: BLE001 the commit is done, and the others must be notified too
                _log.exception("interceptor %s: on_commit raised; the commit itself is unaffected", _name(each))

    def close(self) -> None:
        """Close them."""
        _close(self._chain)


def _having(method: str, chain: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(each for each in chain if getattr(each, method, None) is not None)


def _record(made: Any) -> tuple[Any, Any, Headers, Route | None]:
    """What `on_send` returned, with None where it has no route."""
    key, value, headers, *rest = made
    route = rest[0] if rest else None
    if len(rest) > 1 or not (route is None or isinstance(route, Route)):
        raise TypeError("on_send returned more than key, value and headers: only a pyclient.plugins.Route may follow them")
    if route is not None and not isinstance(route.topic, str | None):
        raise TypeError(f"Route(topic={route.topic!r}): expected a topic name as str or None, got {type(route.topic).__name__}")
    return key, value, headers, route


def _rerouted(route: Route, other: Route) -> Route:
    timestamp = route.timestamp if other.timestamp is None else other.timestamp
    if other.topic is not None:
        return other._replace(timestamp=timestamp)
    return Route(route.topic, route.partition if other.partition is None else other.partition, timestamp)


def _close(chain: Iterable[object]) -> None:
    for each in chain:
        if isinstance(each, SeesClose):
            try:
                each.close()
            except Exception:  # noqa: BLE001 the others must be closed too
                _log.exception("interceptor %s: close raised", _name(each))


def interceptors(specs: Iterable[object], dispatch: Dispatch) -> Interceptors | None:
    """The producer interceptors that *specs* name; None without any, so that they cost nothing.

    Raises:
        ConfigurationError: a spec names something that is no producer interceptor.
    """
    chain = [_loaded("producer interceptor", spec, {"on_send": 4, "on_acknowledgement": 2}) for spec in specs]
    return Interceptors(chain, dispatch) if chain else None


def consumer_interceptors(specs: Iterable[object]) -> ConsumerInterceptors | None:
    """As `interceptors`, for a consumer."""
    chain = [_loaded("consumer interceptor", spec, {"on_consume": 1, "on_commit": 1}) for spec in specs]
    return ConsumerInterceptors(chain) if chain else None


def _loaded(kind: str, spec: object, arguments: Mapping[str, int]) -> Any:
    """The plugin, which must have one of these methods, each with so many arguments."""
    plugin = load_plugin(kind, spec)
    for name, count in arguments.items():
        if getattr(plugin, name, None) is None:
            _check_spelling(kind, plugin, name)
        else:
            _check_method(kind, plugin, name, count)
    return plugin


def _check_method(kind: str, plugin: object, name: str, count: int) -> None:
    method = getattr(plugin, name)
    if not callable(method):
        raise ConfigurationError(f"{name} of {_name(plugin)} is {with_article(type(method).__name__)}, not a method", option="interceptors")
    if is_async(method):
        raise ConfigurationError(f"{name} of {_name(plugin)} must be a plain function: nothing awaits an `async def` function", option="interceptors")
    if not takes(method, count):
        raise ConfigurationError(f"{name} of {_name(plugin)} must take {counted(count, 'argument')}: see "
                                 f"help('pyclient.plugins.{kind.title().replace(' ', '')}')", option="interceptors")


def _check_spelling(kind: str, plugin: object, name: str) -> None:
    """Methods are optional, so a misspelt one would never be called."""
    alike = {each.replace("_", "").lower(): each for each in dir(plugin) if each.startswith("on")}
    for near in difflib.get_close_matches(name.replace("_", ""), alike, n=1, cutoff=0.9):
        raise ConfigurationError(f"{_name(plugin)} has a method {alike[near]}, which no {kind} has: did you mean {name}?", option="interceptors")


def _name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"
