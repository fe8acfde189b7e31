"""A producer's interceptors: what they see, in which order, and what becomes of what they raise.

Knows no records beyond key, value and headers; knows neither buffers nor brokers.
Rule: an interceptor can change a record, but neither lose it nor fail it.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from pyclient.errors import ConfigurationError, KafkaError
from pyclient.plugins import ProducerInterceptor, SeesClose, load_plugin
from pyclient.records import Headers, RecordMetadata

_log = logging.getLogger(__name__)
Dispatch = Callable[[Callable[[], object]], None]


class Interceptors:
    """Several in a row. ``dispatch`` runs work where delivery callbacks run, one after another."""

    def __init__(self, chain: Iterable[ProducerInterceptor], dispatch: Dispatch) -> None:
        self._chain = tuple(chain)
        self._dispatch = dispatch

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        """What the record is after all of them; who raises leaves it as it was."""
        for each in self._chain:
            try:
                key, value, headers = each.on_send(topic, key, value, headers)
            except Exception:  # noqa: BLE001 a user's error must not lose the record
                _log.exception("interceptor %s: on_send raised for a record of topic %s, which goes on as it was before", _name(each), topic)
        return key, value, headers

    def on_outcome(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Tell all of them what became of a record; called where callbacks run."""
        for each in self._chain:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:  # noqa: BLE001 the others are to be told too
                _log.exception("interceptor %s: on_acknowledgement raised; the record's outcome stands", _name(each))

    def refused(self, error: BaseException) -> None:
        """A record that they saw was not queued."""
        told = error if isinstance(error, Exception) else KafkaError("send was cancelled; nothing was queued")
        self._dispatch(lambda: self.on_outcome(None, told))

    def close(self) -> None:
        """Nothing comes any more: told behind the last outcome."""
        self._dispatch(self._close)

    def _close(self) -> None:
        for each in self._chain:
            if isinstance(each, SeesClose):
                try:
                    each.close()
                except Exception:  # noqa: BLE001 the others have something to finish too
                    _log.exception("interceptor %s: close raised", _name(each))


def interceptors(specs: Iterable[object], dispatch: Dispatch) -> Interceptors | None:
    """The interceptors that *specs* mean; None when there are none, so that they cost nothing.

    Raises:
        ConfigurationError: one of them is none.
    """
    chain = [_checked(load_plugin("producer interceptor", spec)) for spec in specs]
    return Interceptors(chain, dispatch) if chain else None


def _checked(plugin: ProducerInterceptor) -> ProducerInterceptor:
    if callable(getattr(plugin, "on_acknowledgement", None)):
        return plugin
    raise ConfigurationError(f"{_name(plugin)} is no producer interceptor: it has no method 'on_acknowledgement'", option="interceptors")


def _name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"
