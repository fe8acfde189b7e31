"""Work that would block a step runs in one worker thread; its result is delivered in a step."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pyclient.reactor.reactor import Reactor
from pyclient.runtime.environment import Environment


class Offload:
    """One worker, started with the first work. *on_end* is called in a step after each."""

    def __init__(self, environment: Environment, reactor: Reactor, name: str, on_end: Callable[[], object] = lambda: None) -> None:
        self._environment = environment
        self._reactor = reactor
        self._name = name
        self._on_end = on_end
        self._workers: Executor | None = None
        self._accepted: dict[Future[Any], None] = {}

    def run(self, work: Callable[[], Any], deliver: Callable[[Any, BaseException | None], object]) -> None:
        """Run *work*; *deliver* is called in a step with its result or its exception."""
        self._workers = self._workers or self._environment.workers(self._name)
        try:
            future = self._workers.submit(work)
        except RuntimeError as error:  # the interpreter is shutting down and starts no threads
            self._reactor.call_soon(functools.partial(deliver, None, error))
        else:
            self._accepted[future] = None
            future.add_done_callback(lambda ended: self._reactor.call_soon(functools.partial(self._finish, ended, deliver)))

    def _finish(self, future: Future[Any], deliver: Callable[[Any, BaseException | None], object]) -> None:
        self._accepted.pop(future, None)
        if not future.cancelled():
            error = future.exception()
            deliver(None if error is not None else future.result(), error)
            self._on_end()

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Start no more work but *last*; running work is not waited for."""
        if self._workers is None:
            return
        for future in list(self._accepted):
            future.cancel()
        if last is not None:
            with contextlib.suppress(RuntimeError):  # it was closed before
                self._workers.submit(last)
        self._workers.shutdown(wait=False)
