"""Yields at the edges of locks, so that rare interleavings of threads become frequent.

Locks of the client's Python modules and the FetchBuffer's are replaced by ones that toss a seeded coin before and after
each acquire and release. The other compiled locks cannot be replaced. Around the Accumulator's the coin is tossed
before and after its calls by threads that send, in what the sender does between its own (sealing, metrics), in what it
calls under the lock (the clock), and in what it does between two holds of the lock (compression, checksums). Around the
reactor's it is tossed by the poller: before and after each sleep, some of which end at once, and where the leader sets
the deadline. The same seed gives each thread the same tosses; the operating system's schedule is not repeated.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Any, Final, Self, TypeVar

import pytest

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch
from pyclient.buffers.fast_send import SendPath
from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.buffers.flag_lock import FlagLock
from pyclient.core.sending.sender import BatchListener, Sender
from pyclient.core.sending.sequencing import PartitionSequence
from pyclient.producer.routing import Router
from pyclient.producer.sealing import BatchSealer
from pyclient.reactor.pollers import Poller, Sink
from pyclient.runtime.environment import Environment, new_poller

R = TypeVar("R")
WITH_THREADING: Final = (
    "pyclient.buffers.delivery", "pyclient.producer.callbacks", "pyclient.producer.shutdown",
    "pyclient.consumer.pending_commits", "pyclient.runtime.worker_thread")
"""Modules that make locks as ``threading.Lock()``."""
ROUTER_SEND_PATH: Final = Router.send_path
ROUTER_ARROW_PATH: Final = Router.arrow_path
SHORT: Final = 1e-6
LONG: Final = 5e-4
"""Seconds: long enough for a complete step of another thread."""


class Coin:
    """Decides whether the calling thread lets others run, and how long; seeded for each thread by the thread's name."""

    def __init__(self, seed: int, chance: float = 0.15) -> None:
        self._seed = seed
        self._chance = chance
        self._own = threading.local()
        self._never = threading.Lock()
        self._never.acquire()

    def __call__(self) -> None:
        toss = self._random().random()
        if toss < self._chance:
            self._never.acquire(timeout=LONG if toss < self._chance / 20 else SHORT)

    def heads(self) -> bool:
        """A fair toss."""
        return self.falls(0.5)

    def falls(self, chance: float) -> bool:
        """Whether something of this *chance* happens."""
        return self._random().random() < chance

    def _random(self) -> Random:
        if not hasattr(self._own, "random"):
            self._own.random = Random(f"{self._seed}:{threading.current_thread().name}")
        found: Random = self._own.random
        return found

    def around(self, work: Callable[..., R]) -> Callable[..., R]:
        """*work* with a toss before and after it."""
        def tossed(*args: Any, **named: Any) -> R:
            self()
            try:
                return work(*args, **named)
            finally:
                self()

        return tossed


class EdgyLock:
    """A lock with a toss at each of its edges."""

    def __init__(self, lock: Any, coin: Coin) -> None:
        self._lock = lock
        self.acquire = coin.around(lock.acquire)
        self.release = coin.around(lock.release)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


class EdgyFlagLock(FlagLock):
    """The same for compiled code."""

    def __init__(self, coin: Coin) -> None:
        self._coin = coin

    def acquire(self) -> None:
        self._coin.around(super().acquire)()

    def release(self) -> None:
        self._coin.around(super().release)()


class EdgyThreading:
    """The module ``threading`` with edgy locks."""

    def __init__(self, coin: Coin) -> None:
        self._coin = coin

    def Lock(self) -> EdgyLock:
        return EdgyLock(threading.Lock(), self._coin)

    def RLock(self) -> EdgyLock:
        return EdgyLock(threading.RLock(), self._coin)

    def Condition(self) -> threading.Condition:
        return threading.Condition(self.RLock())  # type: ignore[arg-type]  # it behaves as one

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class EdgyPoller:
    """A poller with a toss before and after each sleep; some sleeps end at once, so that the threads lead in turn."""

    def __init__(self, poller: Poller, coin: Coin) -> None:
        self._poller = poller
        self._coin = coin
        self.shared = poller.shared
        self.wake = poller.wake
        self.set_deadline = coin.around(poller.set_deadline)
        self._wait = coin.around(poller.sleep)

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        return self._wait(0 if self._coin.falls(0.1) else timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


class EdgyAccumulator:
    """An Accumulator with a toss before and after each call, and before it calls on_ready."""

    def __init__(self, inner: Accumulator, coin: Coin) -> None:
        self._inner = inner
        self._coin = coin

    @property
    def on_ready(self) -> Callable[[], object]:
        return self._inner.on_ready

    @on_ready.setter
    def on_ready(self, listener: Callable[[], object]) -> None:
        self._inner.on_ready = self._coin.around(listener)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._coin.around(found) if callable(found) else found


class EdgyListener(BatchListener):
    """A listener with a toss before and after each call: the sender notifies it between calls of the Accumulator."""

    def __init__(self, inner: BatchListener, coin: Coin) -> None:
        self._inner = inner
        self._coin = coin

    def leaves(self, batch: Batch, node: int, sequence: PartitionSequence) -> None:
        self._coin.around(self._inner.leaves)(batch, node, sequence)

    def sent(self, batches: list[Batch]) -> None:
        self._coin.around(self._inner.sent)(batches)

    def stored(self, batch: Batch) -> None:
        self._coin.around(self._inner.stored)(batch)

    def split(self, batch: Batch) -> None:
        self._coin.around(self._inner.split)(batch)


def put_edges(patch: pytest.MonkeyPatch, coin: Coin) -> None:
    """Let clients and buffers made from now on toss *coin*."""
    for module in WITH_THREADING:
        patch.setattr(f"{module}.threading", EdgyThreading(coin))
    edgy_environment = Environment(poller=lambda: EdgyPoller(new_poller(), coin), clock=coin.around(time.monotonic))
    patch.setattr("pyclient.runtime.environment._current", ContextVar("edgy environment", default=edgy_environment))
    patch.setattr("pyclient.metrics.RLock", EdgyThreading(coin).RLock)
    for between in ("topic_compression.compress", "sealing.crc32c"):
        name = f"pyclient.buffers.{between}"
        patch.setattr(name, coin.around(_found(name)))
    patch.setattr("pyclient.consumer.core.FetchBuffer", lambda: FetchBuffer(EdgyFlagLock(coin)))
    patch.setattr("pyclient.producer.core.Accumulator", lambda **made: edgy(Accumulator, coin, **made))
    patch.setattr("pyclient.producer.core.BatchSealer", lambda buffers, environment: BatchSealer(buffers._inner, environment))
    patch.setattr("pyclient.producer.core.Sender", lambda buffers, *wired, **made: _sender(buffers, coin, *wired, **made))
    patch.setattr("pyclient.producer.routing.Router.send_path", lambda router, buffers: _send_path(router, buffers, coin))
    patch.setattr("pyclient.producer.routing.Router.arrow_path", lambda router, buffers, observer: ROUTER_ARROW_PATH(router, buffers._inner, observer))


def edgy(make: Callable[..., Accumulator], coin: Coin, *, clock: Callable[[], float], **made: Any) -> Any:
    """An accumulator with edges."""
    return EdgyAccumulator(make(clock=coin.around(clock), **made), coin)


def _sender(buffers: EdgyAccumulator, coin: Coin, *wired: Any, seal: Callable[[Batch], None], listener: BatchListener, **made: Any) -> Sender:
    """It takes no Accumulator but a real one."""
    return Sender(buffers._inner, *wired, seal=coin.around(seal), listener=EdgyListener(listener, coin), **made)


def _send_path(router: Router, buffers: EdgyAccumulator, coin: Coin) -> SendPath | None:
    """Half of the producers keep the compiled fast path; the others take the slow path, which has edges."""
    return ROUTER_SEND_PATH(router, buffers._inner) if coin.heads() else None


def _found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module, fromlist=[attribute]), attribute)
