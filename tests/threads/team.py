"""Threads that start at once, are watched for hangs, and all end with the test."""
from __future__ import annotations

import faulthandler
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.waiting import eventually

LIMIT_S: Final = 30.0
"""Much longer than any case takes: a thread not done by then hangs."""


class Team:
    """Runs each function in a thread of its own; raises the first error, and fails a hang with every thread's stack."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._works: list[tuple[str, Callable[[], object]]] = []
        self.errors: list[BaseException] = []

    def add(self, name: str, work: Callable[[], object]) -> None:
        """Run *work* in a thread called *name*, which seeds its coin."""
        self._works.append((name, work))

    def add_many(self, count: int, work: Callable[[int], object]) -> None:
        """Run ``work(n)`` for each n below *count*, each in its own thread."""
        for number in range(count):
            self.add(f"{work.__name__}-{number}", lambda number=number: work(number))  # type: ignore[misc]  # bound early on purpose

    def run(self) -> None:
        """Start all threads at once and wait for their end."""
        gate = threading.Barrier(len(self._works))
        threads = [threading.Thread(target=self._run, args=(gate, work), name=name, daemon=True) for name, work in self._works]
        for thread in threads:
            thread.start()
        until = time.monotonic() + self._limit_s
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if hanging := [thread.name for thread in threads if thread.is_alive()]:
            pytest.fail(f"{hanging} hang; errors so far: {self.errors}\n{stacks()}")
        if self.errors:
            raise self.errors[0]

    def _run(self, gate: threading.Barrier, work: Callable[[], object]) -> None:
        try:
            gate.wait(self._limit_s)
            work()
        except BaseException as error:  # noqa: BLE001 it is raised by run()
            self.errors.append(error)


def stacks() -> str:
    """The stack of every thread of the process."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def watched(done: threading.Event, what: str, limit_s: float = LIMIT_S) -> None:
    """Wait for *done*; fail with every thread's stack when it is not set in time."""
    if not done.wait(limit_s):
        pytest.fail(f"no {what} within {limit_s} s\n{stacks()}")


def assert_none_left(before: set[threading.Thread]) -> None:
    """Check that every thread started since *before* ends."""
    try:
        eventually(lambda: set(threading.enumerate()) <= before, 5.0)
    except AssertionError:
        left = sorted(thread.name for thread in set(threading.enumerate()) - before)
        pytest.fail(f"threads still running: {left}\n{stacks()}")
