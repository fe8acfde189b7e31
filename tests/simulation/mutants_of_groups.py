"""Deliberate bugs of groups: classic members, KIP-848 members, commits, and the user's thread."""
from __future__ import annotations

from typing import Any, Final

from pyclient.buffers.records_view import join, positions_before, records_after, split_at
from pyclient.core.group.changes import ChangeKind
from pyclient.testing.simulation.invariants import GROUPS
from tests.simulation.mutation import Museum, Target, Without, nothing, returns
from tests.simulation.situations import AREAS, cooperative

MUSEUM: Final = Museum(GROUPS, AREAS)
bug = MUSEUM.bug
MEMBER: Final = "pyclient.core.group.membership:Membership"
CLASSIC: Final = "pyclient.core.group.classic_member:ClassicMember"
CHANGES: Final = "pyclient.core.group.changes:ChangeQueue"
CONSUMER: Final = "pyclient.core.group.consumer_member:ConsumerMember"
HEARTBEAT: Final = "pyclient.core.group.consumer_heartbeat:ConsumerHeartbeat"
RECONCILIATION: Final = "pyclient.core.group.reconciliation:Reconciliation"
COMMITS: Final = "pyclient.consumer.commits:Commits"
CONSUMED: Final = "pyclient.consumer.consumed_positions:ConsumedPositions"
MEMBER_COMMIT: Final = "pyclient.core.group.member_commit:MemberCommit"
CORE: Final = "pyclient.consumer.core:ConsumerCore"

# --- classic members -------------------------------------------------------------------------------------------------

bug("classic", "a member joins again without a pause after a failure", "busy loops", "pyclient.core.group.rejoin:JoinBackoff.over")(returns(True))
bug("classic", "a member ignores a heartbeat response that announces a rebalance", "G01", f"{CLASSIC}._on_rebalance")(nothing)
bug("classic", "a member sends no heartbeats", "G01", f"{CLASSIC}._sends_heartbeats")(returns(False))
bug("classic", "a member that does not poll stays in the group", "G04", f"{MEMBER}._poll_overdue")(returns(False))


@bug("classic", "an eager member keeps its partitions while it joins", "G06", f"{CLASSIC}._rejoin")
def _(original: Target) -> Target:
    def rejoin(self: Any, *rest: Any) -> None:
        assignors, self._assignors = self._assignors, _Cooperative(self._assignors)
        try:
            original(self, *rest)
        finally:
            self._assignors = assignors
    return rejoin


class _Cooperative(Without):
    cooperative = True


@bug("classic", "time spent waiting in poll counts as absence", "G04", f"{MEMBER}._poll_deadline")
def _(_original: Target) -> Target:
    return lambda self: self.polled_at + self._options.rebalance_timeout


@bug("classic", "a cooperative member keeps partitions that it was not assigned again", "G06", f"{CLASSIC}._take_over", cooperative)
def _(original: Target) -> Target:
    return lambda self, assigned: original(self, tuple(dict.fromkeys((*assigned, *self.owned))))


@bug("classic", "a member that was put out keeps what it owned", "G04", f"{MEMBER}._lose_all")
def _(_original: Target) -> Target:
    def lose_all(self: Any) -> None:
        self._changes.withdraw()
        self._next_change()
    return lose_all


@bug("classic", "a change is carried out twice", "G10", f"{CHANGES}.complete")
def _(original: Target) -> Target:
    def complete(self: Any, change: Any) -> bool:
        first = original(self, change)
        if first:
            self._queue.appendleft(change)
        return bool(first)
    return complete


@bug("classic", "a member is stable before its user has carried out the changes", "N06", f"{MEMBER}._next_change")
def _(_original: Target) -> Target:
    def next_change(self: Any) -> None:
        if self._changes.due is not None:
            self._notify_user()
        self._all_completed()
    return next_change


# --- KIP-848 members -------------------------------------------------------------------------------------------------

bug("KIP-848", "a member does not request the names of topic ids", "N09", f"{RECONCILIATION}.unnamed")(returns(()))
bug("KIP-848", "a failed heartbeat is sent again at once", "busy loops", f"{HEARTBEAT}.back_off")(nothing)


@bug("KIP-848", "a member reports partitions as revoked that it still reads", "N05", f"{RECONCILIATION}.with_ids")
def _(_original: Target) -> Target:
    return lambda self, _owned: self._assignment or frozenset()


@bug("KIP-848", "a member revokes nothing", "N05", f"{RECONCILIATION}.next_change")
def _(original: Target) -> Target:
    def next_change(*arguments: Any) -> Any:
        change = original(*arguments)
        return None if change is not None and change.kind is ChangeKind.REVOKED else change
    return next_change


@bug("KIP-848", "a fenced member goes on as before", "N07", f"{CONSUMER}._lose")
def _(_original: Target) -> Target:
    return lambda self, cause: self._back_off(cause)


@bug("KIP-848", "news for the coordinator waits for the heartbeat interval", "N04", f"{HEARTBEAT}.next_deadline")
def _(original: Target) -> Target:
    return lambda self, **named: max(original(self, **named), self._sent_at + self.interval)


# --- commits ---------------------------------------------------------------------------------------------------------


@bug("commits", "a commit does not name its member", "C25", f"{COMMITS}._send")
def _(original: Target) -> Target:
    async def send(self: Any, offsets: Any, left: Any, *_: Any, **named: Any) -> Any:
        return await original(self, offsets, left, automatic=named["automatic"])
    return send


@bug("commits", "commits overtake each other", "C24", "pyclient.consumer.commit_order:Turn.begins")
def _(_original: Target) -> Target:
    async def begins(_self: Any) -> None:
        return
    return begins


bug("commits", "the position of an earlier assignment counts in this one", "C24", f"{CONSUMED}.forget")(nothing)

@bug("commits", "the records of the current poll are committed before they are handled", "C21", f"{CONSUMED}.returned_with")
def _(original: Target) -> Target:
    def returned_with(self: Any, records: Any) -> Any:
        self._consumed.update(records.next_offsets())
        return original(self, records)
    return returned_with


@bug("commits", "a commit within an iteration leaves out the current record", "C21", f"{CONSUMED}.committable")
def _(_original: Target) -> Target:
    def committable(self: Any) -> Any:
        inside = {} if self.current is None else positions_before(self._iterated, self.current)
        self._consume_returned()
        return {**self._consumed.all(), **inside}
    return committable


@bug("commits", "a commit stores positions of partitions that went and came back", "C24", f"{MEMBER_COMMIT}.begin")
def _(original: Target) -> Target:
    def begin(self: Any) -> Any:
        self._assignments = {tp: self._group.owned.get(tp) for tp in self._assignments}
        return original(self)
    return begin


# --- the user's thread -----------------------------------------------------------------------------------------------


@bug("user", "revoked partitions are still read", "Java 19781", f"{CORE}.end_change")
def _(original: Target) -> Target:
    return _with_fetcher_without(original, "remove")


@bug("user", "assigned partitions are never read", "a stall", f"{CORE}.end_change")
def _(original: Target) -> Target:
    return _with_fetcher_without(original, "release")


bug("user", "records of a topic that is not subscribed any more are returned", "G06", f"{CORE}._hold_unsubscribed")(nothing)


@bug("user", "an iteration that is interrupted loses what it had not shown", "C21", f"{CONSUMED}.stop_iteration")
def _(original: Target) -> Target:
    def stop_iteration(self: Any) -> None:
        iterates, leftover = self._cursor is not None, self._leftover
        original(self)
        if iterates:
            self._leftover = leftover
    return stop_iteration


@bug("user", "the record at which an iteration is interrupted counts as consumed", "C21", f"{CONSUMED}.stop_iteration")
def _(original: Target) -> Target:
    def stop_iteration(self: Any) -> None:
        original(self)
        self._consume_returned()
    return stop_iteration


@bug("user", "the record at which an iteration is interrupted is returned again", "C21", f"{CONSUMED}.stop_iteration")
def _(original: Target) -> Target:
    def stop_iteration(self: Any) -> None:
        iterated, current, later = self._iterated, self.current, self._leftover
        original(self)
        if current is not None:
            self._leftover = join(split_at(iterated, len(iterated) - len(records_after(iterated, current)) - 1)[1], later)
    return stop_iteration


def _with_fetcher_without(original: Target, name: str) -> Target:
    def end_change(self: Any, *rest: Any) -> None:
        fetcher = self.fetcher
        self.fetcher = Without(fetcher, name)
        try:
            original(self, *rest)
        finally:
            self.fetcher = fetcher
    return end_change
