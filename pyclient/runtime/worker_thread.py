"""The thread in which a client does what would hold up its loop."""
from __future__ import annotations

import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Task(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]


class Worker(Executor):
    """One thread, begun with the first work. It ends when it is shut down, or when nobody has the worker any more.

    Unlike a ThreadPoolExecutor's, the end of the interpreter does not wait for it: a user's token function may never return.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do it after what was given before. Raises RuntimeError after the end, also the interpreter's, which starts no threads."""
        future: Future[T] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError("this worker was shut down")
            if self._thread is None:
                self._start()
            self._tasks.put(_Task(future, functools.partial(fn, *args, **kwargs)))
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=_work_off, args=(self._tasks,), name=self._name, daemon=True)
        thread.start()
        self._thread = thread
        weakref.finalize(self, self._tasks.put, None).atexit = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more. What was given is done all the same, unless it is cancelled."""
        with self._lock:
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


def _work_off(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """The thread. Holds no worker, so that one can be forgotten."""
    while (task := tasks.get()) is not None:
        _do(task)
        del task  # waiting for the next one, keep nobody's things alive


def _do(task: _Task) -> None:
    if not task.future.set_running_or_notify_cancel():
        return
    try:
        result = task.work()
    except BaseException as error:  # noqa: BLE001 also sys.exit(): whoever waits is told
        task.future.set_exception(error)
    else:
        task.future.set_result(result)
