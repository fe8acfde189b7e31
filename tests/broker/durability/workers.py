"""Exactly-once loops in processes of their own that are killed, frozen and replaced, and the outputs they committed."""
from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyclient.testing import LocalCluster
from tests.broker.durability import worker
from tests.broker.durability.processes import LIMIT_S, Member, Processes, reading
from tests.waiting import eventually

WAYS: Final = ("records", "async", "tables")
STATIC: Final = 0
"""The slot whose members are static: the others join as new ones after each death. The last to join fences the other,
also an older worker that was thawed."""
HASTY: Final = 2
"""The slot whose transactions end after `HASTY_MS`: a worker that learns this from its commit has a fatal error."""
HASTY_MS: Final = 10_000
LONG_BLOCK_MS: Final = 60_000


class Workers:
    """A worker in each slot. A slot's workers have the same ``transactional_id``; only the last one may commit."""

    def __init__(self, cluster: LocalCluster, source: str, target: str, strategy: str, processes: Processes) -> None:
        self.froze = self.restarted = 0
        self.source, self.target, self.processes = source, target, processes
        self._reading = reading(cluster.bootstrap_servers, source, strategy) | {
            "enable_auto_commit": False, "isolation_level": "read_committed", "max_poll_records": 200}
        self._running: dict[int, Member] = {}
        self._replaced: list[Member] = []

    @property
    def fenced(self) -> int:
        """How many were replaced; `end` checks that each was fenced."""
        return len(self._replaced)

    def begin(self, slot: int) -> None:
        """The slot's next worker; it need not have had another."""
        self._running[slot] = self.processes.start(self._wish(slot))

    def _wish(self, slot: int) -> dict[str, Any]:
        shared = {name: self._reading[name] for name in ("bootstrap_servers", "request_timeout_ms")}
        writing = {"transactional_id": f"{self.source}-{slot}", "linger_ms": 0,
                   "transaction_timeout_ms": HASTY_MS if slot == HASTY else LONG_BLOCK_MS}
        instance = {"group_instance_id": f"slot-{slot}" if slot == STATIC else None}
        return {"way": WAYS[slot % len(WAYS)], "target": self.target, "consumer": self._reading | instance, "producer": shared | writing}

    def kill(self, slot: int) -> None:
        """Kill the slot's worker and start a new one."""
        self.processes.kill(self._alive(slot))
        self.begin(slot)

    def replace(self, slot: int) -> None:
        """Freeze the slot's worker, start another, thaw the first: it is fenced, and ends."""
        eventually(lambda: self._initialized(slot), LIMIT_S)  # or it would fence the other
        with self.frozen(slot) as first:
            self.begin(slot)
            eventually(lambda: self._initialized(slot), LIMIT_S)
        self._replaced.append(first)

    @contextlib.contextmanager
    def frozen(self, slot: int) -> Iterator[Member]:
        """The slot's worker does nothing in the block, wherever it was."""
        member = self._alive(slot)
        member.process.send_signal(signal.SIGSTOP)
        self.froze += 1
        try:
            yield member
        finally:
            member.process.send_signal(signal.SIGCONT)

    def _alive(self, slot: int) -> Member:
        """The slot's worker; another one after a fatal error, where it may have one."""
        if slot in (STATIC, HASTY) and self._running[slot].process.poll() == worker.FENCED:
            self.restarted += 1
            self.begin(slot)
        self.processes.alive(self._running[slot])
        return self._running[slot]

    def _initialized(self, slot: int) -> bool:
        return self._alive(slot).is_running()

    def end(self) -> None:
        """Those that were replaced end by a fatal error; the others leave at SIGTERM."""
        self.processes.wait(self._replaced, worker.FENCED)
        eventually(lambda: all(map(self._initialized, self._running)), LIMIT_S)
        self.processes.end(self._running.values())


@contextlib.contextmanager
def workers(cluster: LocalCluster, source: str, target: str, folder: Path, strategy: str, slots: int) -> Iterator[Workers]:
    """A group with a worker in each slot that works in the block."""
    with Processes(worker.__name__, folder) as processes:
        group = Workers(cluster, source, target, strategy, processes)
        for slot in range(slots):
            group.begin(slot)
        yield group
        group.end()
