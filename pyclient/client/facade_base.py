"""What sync and async facades share: default timeouts, the warning when left unclosed, the refusal to pickle."""
from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

from pyclient.errors import KafkaError, raisable, with_article
from pyclient.client.core import ClientCore
from pyclient.runtime.portals import LoopPortal


class _Option(float):
    """The type of `OPTION`: readable in signatures."""

    def __repr__(self) -> str:
        return "<the option's>"


OPTION: Final[float] = _Option("nan")
"""The default of ``timeout`` arguments: the option's value is used."""


def seconds(timeout: float | None, option_ms: int) -> float | None:
    """*timeout* in seconds. `OPTION` means *option_ms*, None means no limit."""
    if timeout is OPTION:
        return option_ms / 1000
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None for no limit, got {type(timeout).__name__} {timeout!r}")
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout {timeout} is not a number of seconds ≥ 0; None means no limit")
    return timeout


def left(deadline: float, clock: Callable[[], float]) -> float:
    """Seconds until *deadline*, never negative, and not more than a lock can wait."""
    return min(max(0.0, deadline - clock()), threading.TIMEOUT_MAX)


def sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two timeouts; None means no limit."""
    return one if other is None else other if one is None else min(one, other)


def raise_or_note(failed: KafkaError, error: BaseException | None, client: str) -> None:
    """The close of a ``with`` block *failed*: raise that, or note it at the *error* that ended the block."""
    if error is None:
        raise failed
    error.add_note(f"Closing the {client} failed too: {failed}")


class Facade:
    """The base of clients as users see them: they cannot be pickled, and warn when they are collected unclosed."""

    _core: ClientCore

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, as a broker has named it; None before one has answered. Never waits."""
        return self._core.metadata.cluster.id

    @property
    def is_connected(self) -> bool:
        """Whether brokers answer, as far as the client knows: one has answered, and some broker has not failed since.

        Never waits and sends nothing, so it fits a health check. A client whose last connection was closed connects
        again, and so notices that all brokers are gone. Otherwise an idle client notices when it sends its next
        request, after ``metadata_max_age_ms`` at the latest. False once the client is closed or refused.
        """
        return self._core.is_connected

    def _open_core(self) -> ClientCore:
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        return self._core

    def _forget(self) -> None:
        """Release the resources of a client that was collected unclosed, in the background."""
        raise NotImplementedError

    def _unclosed(self) -> str:
        """The text of the warning."""
        return f"unclosed {type(self).__name__}: use `with` or close()"

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or core.closed is not None or not core.started or not hasattr(self, "_portal"):
            return  # never made, never opened, closed, or the admin within a sync one, which has a warning of its own
        warnings.warn(self._unclosed(), ResourceWarning, source=self, stacklevel=2)
        if not sys.is_finalizing():
            self._forget()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{with_article(type(self).__name__)} cannot be pickled: it has threads and sockets. Open one in each process; in Spark tasks "
            "use pyclient.integration.spark.shared_producer, which keeps one per worker.")


class AsyncFacade(Facade):
    """A facade whose reactor the user's loop leads."""

    _portal: LoopPortal

    def _forget(self) -> None:
        """Close its connections on the user's loop, if that still runs."""
        self._portal.stop_after(self._core.close)
