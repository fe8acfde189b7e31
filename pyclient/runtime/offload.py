"""Work that would block the loop runs in one worker thread; its result is delivered on the loop."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pyclient.runtime.environment import Environment


class Offload:
    """One worker, started with the first work. *on_end* is called on the loop after each."""

    def __init__(self, environment: Environment, name: str, on_end: Callable[[], None]) -> None:
        self._environment = environment
        self._name = name
        self._on_end = on_end
        self._workers: Executor | None = None

    def run(self, work: Callable[[], Any], deliver: Callable[[Any, BaseException | None], None]) -> None:
        """Run *work*; *deliver* is called on the running loop with its result or its exception."""
        loop = asyncio.get_running_loop()

        def ended(future: Future[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, future)

        def finish(future: Future[Any]) -> None:
            if not future.cancelled():
                error = future.exception()
                deliver(None if error is not None else future.result(), error)
                self._on_end()

        self._workers = self._workers or self._environment.workers(self._name)
        try:
            future = self._workers.submit(work)
        except RuntimeError as error:  # the interpreter is shutting down and starts no threads
            loop.call_soon(deliver, None, error)
        else:
            future.add_done_callback(ended)

    def close(self) -> None:
        """Start no more work; running work is not waited for."""
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)
