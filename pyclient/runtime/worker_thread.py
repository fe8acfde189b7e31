"""The thread for work that would block a step of a client."""
from __future__ import annotations

import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pyclient.held_lock import Held

P = ParamSpec("P")
T = TypeVar("T")


class _Task(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]


class Worker(Executor):
    """One daemon thread, started with the first work. It ends on `shutdown`, or when the worker is garbage collected.

    Unlike with ThreadPoolExecutor, the interpreter does not wait for it at exit: a user's token function may never
    return.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it after the work submitted before.

        Raises RuntimeError after `shutdown`, or while the interpreter shuts down.
        """
        future: Future[T] = Future()
        with Held(self._lock):
            if self._ended:
                raise RuntimeError("this worker was shut down")
            if self._thread is None:
                self._start()
            self._tasks.put(_Task(future, functools.partial(fn, *args, **kwargs)))
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=_run_tasks, args=(self._tasks,), name=self._name, daemon=True)
        thread.start()
        self._thread = thread
        weakref.finalize(self, self._tasks.put, None).atexit = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work. Submitted work is still run, unless it is cancelled."""
        with Held(self._lock):
            self._ended = True
            if cancel_futures:
                _cancel_all(self._tasks)
            self._tasks.put(None)
        if wait and self._thread is not None:
            self._thread.join()


def _cancel_all(tasks: queue.SimpleQueue[_Task | None]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            task = tasks.get_nowait()
            if task is not None:
                task.future.cancel()


def _run_tasks(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """The thread. Keeps no reference to the worker, so that it can be collected."""
    while (task := tasks.get()) is not None:
        _run(task)
        del task  # keep no reference while waiting for the next task


def _run(task: _Task) -> None:
    if not task.future.set_running_or_notify_cancel():
        return
    try:
        result = task.work()
    except BaseException as error:  # noqa: BLE001 also SystemExit: the future must have a result
        task.future.set_exception(error)
    else:
        task.future.set_result(result)
