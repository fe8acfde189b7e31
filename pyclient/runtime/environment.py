"""What a client takes from outside: network, clocks, randomness and worker threads. A simulation provides its own."""
from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextvars import ContextVar
from random import Random
from typing import Final

import attrs

from pyclient.runtime.transport import AsyncioNetwork, Network
from pyclient.runtime.worker_thread import Worker

SEAL_INLINE_BYTES: Final = 65_536
OPEN_INLINE_BYTES: Final = 1_048_576
ASSIGNOR_THREAD: Final = "pyclient-assignor"
"""Name of the worker in which a group leader assigns partitions."""


def wall_ms() -> int:
    """The system clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@attrs.frozen(kw_only=True)
class Environment:
    """One network, random generator and executor per client; the clocks are shared."""

    network: Callable[[], Network] = AsyncioNetwork
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    wall: Callable[[], int] = wall_ms
    """Milliseconds since the epoch, as records are stamped."""
    random: Callable[[], Random] = Random
    token_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Unpredictable bytes for logins."""
    workers: Callable[[str], Executor] = Worker
    """Creates the executor for work that would block the loop; the argument names its thread."""
    seal_inline_bytes: int = SEAL_INLINE_BYTES
    """Compressing more than this is done by a worker."""
    open_inline_bytes: int = OPEN_INLINE_BYTES
    """The most that one poll of an async consumer decompresses on the loop; larger batches are opened by a worker."""


_REAL: Final = Environment()
_current: Final[ContextVar[Environment]] = ContextVar("pyclient environment", default=_REAL)


def environment() -> Environment:
    """The environment of clients created in this context."""
    return _current.get()


@contextlib.contextmanager
def using(chosen: Environment) -> Iterator[None]:
    """Clients created within the block run in *chosen*."""
    token = _current.set(chosen)
    try:
        yield
    finally:
        _current.reset(token)
