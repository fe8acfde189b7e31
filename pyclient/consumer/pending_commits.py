"""Commits that no call waits for: those of `commit_async`, and automatic ones. Their callbacks run in order (C24).

Rule: a callback runs in the thread or task that uses the consumer, and may use the consumer itself.
"""
from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.consumer.core import ConsumerCore
from pyclient.errors import counted
from pyclient.held_lock import Held
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.reactor.tasks import all_done
from pyclient.runtime.portals import Call

_log = logging.getLogger(__name__)
OnCommit: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], BaseException | None], object]
CommitTask: TypeAlias = Call[None]


class PendingCommits:
    """Commits that were started and whose callbacks have not run."""

    def __init__(self, core: ConsumerCore, consumed_positions: ConsumedPositions) -> None:
        self._core = core
        self._consumed_positions = consumed_positions
        self.commits: Final[deque[tuple[CommitTask, dict[TopicPartition, OffsetAndMetadata], OnCommit]]] = deque()
        """In the order in which they were started."""
        self._lock = threading.RLock()  # reentrant: a callback may use the consumer, which runs the next callbacks

    def __bool__(self) -> bool:
        return bool(self.commits)

    @property
    def tasks(self) -> list[CommitTask]:
        """The commits, in the order in which they were started."""
        return [task for task, _, _ in self.commits]

    def add(self, task: CommitTask, offsets: dict[TopicPartition, OffsetAndMetadata], callback: OnCommit) -> None:
        """*task* commits *offsets*; *callback* is called with the outcome."""
        self.commits.append((task, offsets, callback))

    def run_callbacks(self, only: OnCommit | None = None) -> None:
        """Run the callbacks of commits that have ended, in order.

        Called while no other call runs, since callbacks may use the consumer.

        In the middle of a call: *only* that callback, which does not use the consumer, up to the first other one.

        A second thread runs none while the first is here; the first one checks again. The second gets its
        ConcurrentUseError later.
        """
        while self.commits and self._first_has_ended(only):
            with Held(self._lock, 0) as alone:
                if alone and self._first_has_ended(only):
                    self._report_first()
            if not alone:
                return

    def _first_has_ended(self, only: OnCommit | None) -> bool:
        try:
            task, _, callback = self.commits[0]
            return only in (None, callback) and task.done()
        except IndexError:
            return False

    def _report_first(self) -> None:
        task, offsets, callback = self.commits.popleft()
        error = self._core.closed if task.cancelled() else task.exception()
        if error is None:
            self._consumed_positions.note_commits()
        try:
            callback(offsets, error)
        except Exception:  # noqa: BLE001 a user's error does not undo the commit
            _log.exception("commit callback %r raised; the commit of %s is unaffected", callback, counted(len(offsets), "offset"))

    async def wait(self) -> None:
        """Wait until all have ended (async consumers, at close)."""
        await all_done(self._core.reactor, [call.task for call in self.tasks if call.task is not None])


def log_failure(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
    """The callback of a commit without one: a failure is only logged; the next commit stores newer positions."""
    if error is not None:
        _log.warning("committing %s failed: %s", counted(len(offsets), "offset"), error)
