"""What a client takes from outside: network, clocks, randomness and worker threads. A simulation provides its own."""
from __future__ import annotations

import contextlib
import secrets
import select
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextvars import ContextVar
from random import Random
from typing import Final

import attrs

from pyclient.reactor.pollers import Poller, SelectorPoller
from pyclient.reactor.reactor import Reactor
from pyclient.runtime.network import Network, SocketNetwork
from pyclient.runtime.worker_thread import Worker

SEAL_INLINE_BYTES: Final = 65_536
OPEN_INLINE_BYTES: Final = 1_048_576
ASSIGNOR_THREAD: Final = "pyclient-assignor"
"""Name of the worker in which a group leader assigns partitions."""


def wall_ms() -> int:
    """The system clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_poller() -> Poller:
    """The best one of this system."""
    if hasattr(select, "epoll"):
        from pyclient.reactor.epoll_poller import EpollPoller

        return EpollPoller()
    return SelectorPoller(time.monotonic)


@attrs.frozen(kw_only=True)
class Environment:
    """One network, random generator and executor per client; the clocks are shared."""

    network: Callable[[], Network] = SocketNetwork
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    wall: Callable[[], int] = wall_ms
    """Milliseconds since the epoch, as records are stamped."""
    random: Callable[[], Random] = Random
    token_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Unpredictable bytes for logins."""
    workers: Callable[[str], Executor] = Worker
    """Creates the executor for work that would block a step; the argument names its thread."""
    poller: Callable[[], Poller] = new_poller
    """What the threads of sync clients sleep in."""
    defers: bool = True
    """Whether exceptions from outside, which signal handlers and other threads raise, wait for the end of a step."""
    seal_inline_bytes: int = SEAL_INLINE_BYTES
    """Compressing more than this is done by a worker."""
    open_inline_bytes: int = OPEN_INLINE_BYTES
    """The most that one poll of an async consumer decompresses on the loop; larger batches are opened by a worker."""


_REAL: Final = Environment()
_current: Final[ContextVar[Environment]] = ContextVar("pyclient environment", default=_REAL)


def environment() -> Environment:
    """The environment of clients created in this context."""
    return _current.get()


def thread_reactor() -> Reactor:
    """For a sync client."""
    made = environment()
    return Reactor(made.poller(), made.clock, made.defers)


def loop_reactor() -> Reactor:
    """For an async client."""
    from pyclient.reactor.loop_poller import LoopPoller

    made = environment()
    return Reactor(LoopPoller(made.clock), made.clock, made.defers)


@contextlib.contextmanager
def using(chosen: Environment) -> Iterator[None]:
    """Clients created within the block run in *chosen*."""
    token = _current.set(chosen)
    try:
        yield
    finally:
        _current.reset(token)
