"""A client in a process of its own: a job goes in as a line of JSON, its figures come back as another.

`Child` is the end that asks, in the benchmark; `serve` is the end that answers.
"""
from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

ROOT: Final = Path(__file__).resolve().parent.parent
J = TypeVar("J")


class NotMeasuredError(Exception):
    """The client cannot do this yet: the benchmark leaves the case out and prints why."""


class Child:
    """A process that measures one client; *module* is run in it and calls `serve`."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, job: NamedTuple) -> dict[str, Any]:
        self.send_line(json.dumps(job._asdict()))
        answer: dict[str, Any] = json.loads(self.hear())
        return answer

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a client's process ended with exit code {self._process.wait()}; its error is above")
        return line

    def close(self) -> None:
        with self._process as process:
            process.kill()


def serve(job_of: Callable[..., J], kinds: Mapping[str, Callable[[J], Mapping[str, Any]]]) -> None:
    """Jobs from the standard input, until it ends; a job's ``measure`` says which of *kinds* does it."""
    while line := sys.stdin.readline():
        fields = json.loads(line)
        try:
            answer = kinds[fields["measure"]](job_of(**fields))
        except NotMeasuredError as why:
            answer = {"missing": str(why)}
        print(json.dumps(answer), flush=True)


class Clock:
    """Time, and CPU of this process (user and system, all threads), since it was made."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._began, "cpu": time.process_time() - self._cpu}


@contextlib.contextmanager
def waiting() -> Iterator[Callable[[Any], Any]]:
    """A function for what a client's method returned: an async one's is awaited, on one loop for all."""
    with asyncio.Runner() as runner:
        yield lambda made: runner.run(_awaited(made)) if inspect.isawaitable(made) else made


async def _awaited(made: Any) -> Any:
    return await made


def latencies_us(one: Callable[[int], object], records: int, warm_up: int = 200) -> dict[str, float]:
    """p50 and p99 of the µs that *one* takes, called with 0, 1, 2 …; the first calls do not count."""
    taken = []
    for number in range(records + warm_up):
        began = time.perf_counter()
        one(number)
        if number >= warm_up:
            taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return {"p50": statistics.median(taken), "p99": taken[len(taken) * 99 // 100]}
