"""How a producer ends: by the end of a ``with`` block, and a sync one by close, by garbage collection, or with the
interpreter.

Lives longer than the facade: a producer that was not closed still delivers what it accepted, and warns about what it
could not deliver.
"""
from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from typing import Final

from pyclient.errors import DeliveryError, KafkaError, KafkaTimeoutError, counted
from pyclient.held_lock import Held
from pyclient.runtime import process_hooks
from pyclient.producer.callbacks import ThreadObserver
from pyclient.runtime.portals import ThreadPortal
from pyclient.producer.core import ProducerCore

_log = logging.getLogger(__name__)
EXIT_FLUSH: Final = 5.0
"""Seconds that an unclosed producer may take to deliver when the interpreter ends."""
INTERRUPT_FLUSH: Final = 5.0
"""Seconds that a producer may take to deliver when Ctrl-C, or a cancellation, ends its ``with`` block."""


def limit_after(error: BaseException | None, core: ProducerCore) -> float:
    """Seconds that the close of a ``with`` block may take which *error* ended; says so if the user waits for it."""
    limit = core.config.delivery_timeout_ms / 1000
    if not isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return limit
    limit = min(limit, INTERRUPT_FLUSH)
    count = core.unsettled()
    if count:
        _log.warning("waiting for %s, at most %g s; Ctrl-C again to give up", counted(count, "record"), limit)
    return limit


class ProducerShutdown:
    """Ends one producer once, by the first of the three ways."""

    def __init__(self, core: ProducerCore, portal: ThreadPortal, observer: ThreadObserver) -> None:
        self._core = core
        self._portal = portal
        self._observer = observer
        self._closing = threading.Lock()
        self._ended = False
        process_hooks.add_exit_hook(self)

    def close(self, limit: float | None) -> None:
        """Deliver for at most *limit* seconds, then close; a second caller waits as long for the first.

        Raises:
            DeliveryError: records failed whose error was not looked at.
            KafkaTimeoutError: another thread is closing it and did not finish within *limit*.
        """
        if self._ended or self._core.is_forked:
            return
        in_callback = self._observer.on_callback_thread()  # the thread that closes waits for this callback: no waiting for it here
        seconds = 0 if in_callback else -1 if limit is None else min(limit, threading.TIMEOUT_MAX)
        with Held(self._closing, seconds) as alone:
            if alone and not self._ended:
                self._close(limit)
        if not alone and not in_callback:
            raise KafkaTimeoutError(f"another thread is closing this producer and has not finished after {limit} s")

    def _close(self, limit: float | None) -> None:
        until = None if limit is None else time.monotonic() + limit
        try:
            if not self._portal.ends:
                self._portal.call(lambda: self._core.finish(limit))
        except (KeyboardInterrupt, SystemExit):
            until = time.monotonic()
            _log.warning("gave up closing the producer in order: %s not acknowledged", counted(self._core.unsettled(), "record"))
            raise
        finally:
            self._portal.end(self._core.close)  # Ctrl-C may have ended finish() early
            self._observer.close(None if until is None else max(0.0, until - time.monotonic()))
            process_hooks.remove_exit_hook(self)
            self._ended = True  # what Ctrl-C ended before is done by the next close

    def forget(self) -> None:
        """The unclosed producer was garbage-collected: deliver for ``delivery_timeout_ms`` in the background, end."""
        self._portal.stop_after(self._finish_in_background)

    async def _finish_in_background(self) -> None:
        try:
            await self._core.finish(self._core.config.delivery_timeout_ms / 1000)
        finally:
            await self._core.close()
            self._observer.close(0)
            process_hooks.remove_exit_hook(self)

    def at_exit(self) -> None:
        """The interpreter ends: deliver for at most `EXIT_FLUSH` seconds, and warn about what was lost."""
        try:
            self.close(EXIT_FLUSH)
        except DeliveryError as failed:
            _warn_lost(str(failed))
        except KafkaError as error:
            _log.debug("the producer is being closed already: %s", error)
        if not self._portal.join(EXIT_FLUSH):
            _warn_lost(f"{counted(self._core.unsettled(), 'record')} not acknowledged")


def _warn_lost(what: str) -> None:
    warnings.warn(f"a producer was not closed before the interpreter ended: {what.rstrip('.')}. Use `with` or close().",
                  RuntimeWarning, stacklevel=2)  # a ResourceWarning is hidden by default, and these records are lost
