# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The user's polls: what each does before it waits, between two waits, and behind them.

Belongs to the one thread or task that uses the consumer. Here nothing waits: `Polls.wait` yields what to wait for.
"""
from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final

from pyclient.buffers.records_view import NOTHING, Records
from pyclient.client.facade_base import seconds
from pyclient.clocks import seconds_of
from pyclient.consumer.arguments import as_limit
from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.pending_commits import PendingCommits, log_failure
from pyclient.consumer.single_user import CALLER
from pyclient.consumer.steps import WaitForData
from pyclient.core.group.coordinator import Identity
from pyclient.core.manager import earlier
from pyclient.errors import WakeupError, raisable
from pyclient.metrics import TIME_BETWEEN_POLLS
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.runtime.steps import Step, Steps

MIN_WAIT: Final = 0.1
"""A waiting poll checks at most every so many seconds whether an automatic commit is due."""
LONG_POLL: Final = 300
"""A poll of more seconds was probably meant in milliseconds."""
LONGEST_WAIT: Final = threading.TIMEOUT_MAX
"""Seconds that a lock can wait."""


class GroupPolls:
    """The polls as the group sees them: max_poll_interval_ms runs between them (G04)."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._buffer = core.buffer
        self._clock = core.clock
        self._group = core.membership
        self._between = core.metrics.windows(TIME_BETWEEN_POLLS)
        self._identity = Identity()
        self._has_polled = False
        self.polled_at = 0.0

    def begin_poll(self) -> None:
        """A poll begins: max_poll_interval_ms does not run while it waits."""
        self._sample_interval()
        self.continue_poll()

    def _sample_interval(self) -> float:
        now = seconds_of(self._clock)
        if self._has_polled:
            interval_ms = (now - self.polled_at) * 1000
            self._between.add(interval_ms, 1, interval_ms, now)
        self._has_polled, self.polled_at = True, now
        return now

    def continue_poll(self) -> None:
        """The poll found no record, and waits."""
        if self._group is not None:
            self._group.polling = True

    def end_poll(self) -> None:
        """A poll ends: max_poll_interval_ms runs again."""
        if self._group is not None:
            self._group.polled_at = seconds_of(self._clock)
            self._group.polling = False
            if (identity := self._group.identity).joined:  # else the one by which it owned what it has read
                self._identity = identity

    def read_on(self) -> bool:
        """Whether records may be taken between two polls: nothing waits for one. If so it counts as a poll for
        max_poll_interval_ms.

        It does not change the identity by which the member owns what it has read, as the end of a poll does.
        """
        if self.due():
            return False
        now = self._sample_interval()
        if self._group is not None:
            self._group.polled_at = now
        return True

    def carry_out(self) -> Steps[Step, None]:
        """Everything that the group needs from the user's thread now."""
        raise NotImplementedError

    def due(self) -> bool:
        """Whether `carry_out` has anything to do."""
        return self._buffer.poll_requested or (self._group is not None and (self._group.wants_poll or self._group.failure is not None))


class Polls:
    """The steps of a poll. *auto_commit* starts the commit of some positions."""

    def __init__(self, core: ConsumerCore, consumed_positions: ConsumedPositions, group_polls: GroupPolls, pending_commits: PendingCommits,
                 auto_commit: Callable[[dict[TopicPartition, OffsetAndMetadata]], object]) -> None:
        self._core = core
        self._buffer = core.buffer
        self._clock = core.clock
        self._consumed_positions = consumed_positions
        self._group_polls = group_polls
        self._pending_commits = pending_commits
        self._start_auto_commit = auto_commit
        self._max_poll_records = core.config.max_poll_records
        self._warned_of_long_poll = False
        self._view = core.metadata.view
        self._has_bootstrapped = False

    # ---- arguments --------------------------------------------------------------------------------------------------

    def limit(self, max_records: int | None) -> int:
        """The checked number of records that a poll may return: *max_records*, or ``max_poll_records``."""
        return self._max_poll_records if max_records is None else as_limit(max_records)

    def timeout(self, timeout: float | None) -> float | None:
        """The checked timeout of a poll in seconds. Called by `poll` itself: the warning names its caller."""
        if timeout is None:
            return None
        limit = seconds(timeout, 0)
        assert limit is not None
        if LONG_POLL < limit < math.inf and not self._warned_of_long_poll:
            self._warned_of_long_poll = True
            warnings.warn(f"poll({timeout!r}) waits up to {limit:g} s: timeouts are in seconds. If {limit:g} ms are meant, write poll({limit / 1000:g}).",
                          stacklevel=2 + CALLER)  # poll, and this if it is not compiled
        return limit

    # ---- a poll -----------------------------------------------------------------------------------------------------

    def begin(self, limit: int) -> Records[Any, Any]:
        """Begin a poll: take the records that are there, unless a rebalance comes first. Most polls need no more."""
        self._consumed_positions.settle()
        self.auto_commit()
        self._group_polls.begin_poll()
        try:
            return NOTHING if self._group_polls.due() else self.take(limit)
        finally:
            self._group_polls.end_poll()

    def read_on(self, limit: int) -> Records[Any, Any]:
        """Up to *limit* records between two polls; none if something waits for a poll."""
        self._consumed_positions.settle()
        if not self._group_polls.read_on() or self._buffer.woken:
            return NOTHING
        return self._consumed_positions.take(limit)

    def wait(self, taken: Records[Any, Any], limit: int, timeout: float | None) -> Steps[Step, Records[Any, Any]]:
        """Continue until there is a record. `begin` has *taken* none, but positions may have moved."""
        self._core.check_readable()
        deadline = None if timeout is None else seconds_of(self._clock) + timeout
        self._group_polls.continue_poll()
        try:
            while not taken:
                dropped = self._skip(taken)
                preparation = self._consumed_positions.preparation()
                if preparation is not None:
                    yield preparation
                elif not self._group_polls.due():
                    came = yield WaitForData(self._core, self._max_wait(deadline), dropped)
                    if not came and deadline is not None and seconds_of(self._clock) >= deadline:
                        break
                    self.auto_commit()
                if self._group_polls.due():
                    yield from self._group_polls.carry_out()
                taken = self.take(limit)
            return taken
        finally:
            self._group_polls.end_poll()

    def take(self, limit: int) -> Records[Any, Any]:
        """The records that are there now; a pending wakeup is raised first."""
        if self._buffer.take_wake():
            raise raisable(self._core.closed or WakeupError("wakeup() was called"))
        return self._consumed_positions.take(limit)

    def _skip(self, records: Records[Any, Any]) -> bool:
        """Go on after positions that moved without records for the user. True when records were dropped.

        Then this may go on for long, so their positions are committed meanwhile.
        """
        if not (self._consumed_positions.may_drop_records and records.next_offsets()):
            self._consumed_positions.move_on(records)
            return False
        self._consumed_positions.skip(records)
        self.auto_commit()
        return True

    def auto_commit(self) -> None:
        """Commit what earlier polls returned, every auto_commit_interval_ms, also while a poll waits (C21)."""
        if self._pending_commits.commits:
            self._pending_commits.run_callbacks(log_failure)
        if self._pending_commits.commits or not self._consumed_positions.auto_commit_is_due() or not self._core.may_auto_commit:
            return
        positions = self._consumed_positions.begin_auto_commit()
        if positions:
            self._start_auto_commit(positions)

    def _max_wait(self, deadline: float | None) -> float | None:
        """Seconds that a poll may wait before it must look after something; None: no limit."""
        commit_in = self._consumed_positions.auto_commit_in()
        until_commit = None if commit_in is None else max(commit_in, MIN_WAIT)
        until_deadline = None if deadline is None else min(max(0.0, deadline - seconds_of(self._clock)), LONGEST_WAIT)
        return earlier(earlier(self._bootstrap_time_left(), until_deadline), until_commit)

    def _bootstrap_time_left(self) -> float | None:
        """As `ConsumerCore.bootstrap_time_left`, which is asked until a broker has answered."""
        if self._has_bootstrapped and self._view.cluster.nodes and self._core.refused is None:
            return None
        time_left = self._core.bootstrap_time_left()
        self._has_bootstrapped = time_left is None
        return time_left
