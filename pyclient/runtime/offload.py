"""Work that would hold up the loop, done by one worker thread; what came of it is told on the loop."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pyclient.runtime.environment import Environment


class Offload:
    """One worker, begun with the first work. *on_end* is called on the loop after each."""

    def __init__(self, environment: Environment, name: str, on_end: Callable[[], None]) -> None:
        self._environment = environment
        self._name = name
        self._on_end = on_end
        self._workers: Executor | None = None

    def run(self, work: Callable[[], Any], tell: Callable[[Any, BaseException | None], None]) -> None:
        """Do *work*; *tell* is called on the running loop with its result, or what it raised."""
        loop = asyncio.get_running_loop()

        def ended(future: Future[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(told, future)

        def told(future: Future[Any]) -> None:
            if not future.cancelled():
                error = future.exception()
                tell(None if error is not None else future.result(), error)
                self._on_end()

        self._workers = self._workers or self._environment.workers(self._name)
        try:
            future = self._workers.submit(work)
        except RuntimeError as error:  # the interpreter is ending and starts no threads any more
            loop.call_soon(tell, None, error)
        else:
            future.add_done_callback(ended)

    def close(self) -> None:
        """Begin nothing more; what is under way is not waited for."""
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)
