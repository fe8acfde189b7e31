"""Exactly-once loops in processes of their own that are killed, frozen and replaced, and the outputs they committed."""
from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyclient.testing import LocalCluster
from tests.broker.durability import worker
from tests.broker.durability.readers import SESSION_MS, Started
from tests.waiting import eventually

LIMIT_S: Final = 120
WAYS: Final = ("records", "async", "tables")
STATIC: Final = 0
"""The slot whose members are static: the others join as new ones after each death. The last to join fences the other,
also an older worker that was thawed."""
HASTY: Final = 2
"""The slot whose transactions end after `HASTY_MS`: a worker that learns this from its commit has a fatal error."""
HASTY_MS: Final = 10_000
PATIENT_MS: Final = 60_000


class Workers:
    """A worker in each slot. A slot's workers have the same ``transactional_id``; only the last one may commit."""

    def __init__(self, cluster: LocalCluster, source: str, target: str, folder: Path, strategy: str) -> None:
        self.killed = self.fenced = self.froze = self.restarted = 0
        self.source, self.target = source, target
        self._cluster, self._folder, self._strategy = cluster, folder, strategy
        self._running: dict[int, Started] = {}
        self._replaced: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count()

    def begin(self, slot: int) -> None:
        """The slot's next worker; it need not have had another."""
        number = next(self._numbers)
        path = self._folder / f"{number}.reported"
        with path.open("wb") as reported, (self._folder / f"{number}.errors").open("wb") as errors:
            process = subprocess.Popen([sys.executable, worker.__file__, json.dumps(self._wish(slot))], stdout=reported, stderr=errors)
        self._running[slot] = Started(process, path)

    def _wish(self, slot: int) -> dict[str, object]:
        shared = {"bootstrap_servers": self._cluster.bootstrap_servers, "request_timeout_ms": 3000}
        reading = {
            "group_id": self.source, "topics": [self.source], "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "isolation_level": "read_committed", "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500, "max_poll_records": 200,
            "assignors": [self._strategy], "group_instance_id": f"slot-{slot}" if slot == STATIC else None}
        writing = {"transactional_id": f"{self.source}-{slot}", "linger_ms": 0,
                   "transaction_timeout_ms": HASTY_MS if slot == HASTY else PATIENT_MS}
        return {"way": WAYS[slot % len(WAYS)], "target": self.target, "consumer": shared | reading, "producer": shared | writing}

    def kill(self, slot: int) -> None:
        """Kill the slot's worker with SIGKILL and start a new one."""
        process = self._alive(slot)
        process.kill()
        process.wait()
        self.killed += 1
        self.begin(slot)

    def replace(self, slot: int) -> None:
        """Freeze the slot's worker, start another, thaw the first: it is fenced, and ends."""
        eventually(lambda: self._initialized(slot), LIMIT_S)  # or it would fence the other
        with self.frozen(slot) as process:
            self.begin(slot)
            eventually(lambda: self._initialized(slot), LIMIT_S)
        self._replaced.append(process)

    @contextlib.contextmanager
    def frozen(self, slot: int) -> Iterator[subprocess.Popen[bytes]]:
        """The slot's worker does nothing in the block, wherever it was."""
        process = self._alive(slot)
        process.send_signal(signal.SIGSTOP)
        self.froze += 1
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)

    def _alive(self, slot: int) -> subprocess.Popen[bytes]:
        """The slot's worker; another one after a fatal error, where it may have one."""
        if slot in (STATIC, HASTY) and self._running[slot].process.poll() == worker.FENCED:
            self.restarted += 1
            self.begin(slot)
        process = self._running[slot].process
        assert process.poll() is None, f"the worker of slot {slot} ended, with {process.returncode}:\n{self.errors}"
        return process

    def _initialized(self, slot: int) -> bool:
        self._alive(slot)
        return self._running[slot].reported.read_text().startswith(worker.RUNNING)

    def end(self) -> None:
        """Those that were replaced end by a fatal error; the others leave at SIGTERM."""
        codes = [each.wait(LIMIT_S) for each in self._replaced]
        assert codes == [worker.FENCED] * len(codes), f"replaced workers ended with {codes}\n{self.errors}"
        self.fenced = len(codes)
        eventually(lambda: all(map(self._initialized, self._running)), LIMIT_S)
        for each in self._running.values():
            each.process.terminate()
        codes = [each.process.wait(LIMIT_S) for each in self._running.values()]
        assert codes == [0] * len(codes), f"workers ended with {codes}\n{self.errors}"

    def abandon(self) -> None:
        """The test has failed: end every process."""
        for process in (*self._replaced, *(each.process for each in self._running.values())):
            process.kill()
            process.wait()

    @property
    def reported(self) -> dict[str, list[str]]:
        """What each worker has done, and the error that ended it."""
        return {file.stem: file.read_text().splitlines() for file in sorted(self._folder.glob("*.reported"))}

    @property
    def errors(self) -> str:
        """What they wrote to standard error."""
        return "".join(file.read_text() for file in sorted(self._folder.glob("*.errors")))


@contextlib.contextmanager
def workers(cluster: LocalCluster, source: str, target: str, folder: Path, strategy: str, slots: int) -> Iterator[Workers]:
    """A group with a worker in each slot that works in the block."""
    group = Workers(cluster, source, target, folder, strategy)
    try:
        for slot in range(slots):
            group.begin(slot)
        yield group
        group.end()
    except BaseException:
        group.abandon()
        raise
