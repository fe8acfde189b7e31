"""Where clients run: the network, the clocks, randomness and worker threads; a simulation puts its own in their place."""
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
ASSIGNING: Final = "pyclient-assignor"
"""The worker in which leaders of groups share partitions out."""


def wall_ms() -> int:
    """The system's clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@attrs.frozen(kw_only=True)
class Environment:
    """What a client takes from outside. One network, generator and executor per client; the clocks are shared."""

    network: Callable[[], Network] = AsyncioNetwork
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    wall: Callable[[], int] = wall_ms
    """Milliseconds since the epoch, as records are stamped."""
    random: Callable[[], Random] = Random
    token_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Random bytes for logins, which nobody may guess."""
    workers: Callable[[str], Executor] = Worker
    """Makes the executor for work that would hold up the loop; takes a name for its thread."""
    seal_inline_bytes: int = SEAL_INLINE_BYTES
    """Compressing more than this is such work."""


_REAL: Final = Environment()
_current: Final[ContextVar[Environment]] = ContextVar("pyclient environment", default=_REAL)


def environment() -> Environment:
    """The one that clients made here and now run in."""
    return _current.get()


@contextlib.contextmanager
def using(chosen: Environment) -> Iterator[None]:
    """Let clients that are made within the block run in *chosen*."""
    token = _current.set(chosen)
    try:
        yield
    finally:
        _current.reset(token)
