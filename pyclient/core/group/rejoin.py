"""Pauses before a member of a classic group joins again (G03, G09, G11). Knows times only."""
from __future__ import annotations

import logging
from typing import Final

from pyclient.core.backoff import Backoff
from pyclient.core.group.coordinator import GroupOptions

_log = logging.getLogger(__name__)
CONVERGES_WITHIN: Final = 3
"""Assignments in a row that revoke partitions, each followed by a join at once: more than a rebalance needs."""
LONGEST_DOUBLING: Final = 30


class JoinBackoff:
    """The pause before a member joins again: longer with each failure in a row."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures = 0
        self._begins = False  # the pause begins with the next call of `over`
        self.ends_at: float | None = None

    def failed(self, at_once: int = 0) -> None:
        """Begin a pause, unless this is one of the first *at_once* failures in a row."""
        self._failures += 1
        self._begins = self._failures > at_once

    def succeeded(self) -> None:
        """The next pause is a short one again."""
        self._failures = 0

    def over(self, now: float) -> bool:
        """Whether the member may join now."""
        if self._begins:
            self._begins, self.ends_at = False, now + self._backoff.after(self._failures)
        if self.ends_at is not None and now < self.ends_at:
            return False
        self.ends_at = None
        return True

    def cancel(self) -> None:
        """End the pause."""
        self._begins, self.ends_at = False, None


class RejoinPause:
    """G11: whether the last assignment is a reason to join again, and when.

    A join makes every member of the group rebalance. So a leader whose assignments are wrong or do not converge must
    not be able to cause one after the other.
    """

    def __init__(self, options: GroupOptions, backoff: Backoff) -> None:
        self._options = options
        self._backoff = backoff
        self._reason = ""
        self._wrong = 0  # assignments in a row
        self._revoking = 0  # assignments in a row
        self._begins: float | None = None  # a pause of so many seconds begins with the next call of `due`
        self.ends_at: float | None = None

    def assigned(self, wrong: str, *, revokes: bool) -> None:
        """An assignment has arrived. *wrong*: what the leader did wrong; *revokes*: it moves partitions to others."""
        self.end()
        self._wrong = self._wrong + 1 if wrong else 0
        self._revoking = self._revoking + 1 if revokes and not wrong else 0
        if wrong:
            self._reason = wrong
            self._begins = self._after_mistake()
        elif revokes:
            self._reason = "revoked partitions can now be assigned to other members"
            self._begins = self._backoff.after(self._revoking - CONVERGES_WITHIN) if self._revoking > CONVERGES_WITHIN else None
        self._warn()

    def due(self, now: float) -> str:
        """Why the member has to join again now; empty if it has not."""
        if self._begins is not None:
            self.ends_at = now + self._begins
            self._begins = None
        return self._reason if self.ends_at is None or now >= self.ends_at else ""

    def end(self) -> None:
        """The member joins again, or leaves, for another reason."""
        self._reason, self._begins, self.ends_at = "", None, None

    def _after_mistake(self) -> float | None:
        """Joining at once helps if the leader did not know the newest subscription."""
        if self._wrong == 1:
            return None
        return float(min(self._options.heartbeat_interval * 2**min(self._wrong - 2, LONGEST_DOUBLING), self._options.rebalance_timeout))

    def _warn(self) -> None:
        """Once for each doubling, so that a group in trouble does not fill the log."""
        if self._wrong and not self._wrong & (self._wrong - 1):
            pause = "at once" if self._begins is None else f"after {self._begins:.0f} s"
            _log.warning("group %r: %s. The rest is read, and this member joins again %s: look at the assignor of the group's leader",
                         self._options.group_id, self._reason, pause)
        if self._revoking == CONVERGES_WITHIN + 1:
            _log.warning("group %r: %d assignments in a row moved partitions to other members; joining again after pauses from now on. Look at the "
                         "assignor of the group's leader", self._options.group_id, self._revoking)
