"""What the user's thread does in a rebalance: commit, call the listener, give up and take partitions (C23, G10).

Written as generators of steps, which sync and async consumers perform each in their way. Rule: once the user's thread
has begun a change, the group learns that it was carried out, whatever was raised meanwhile.
"""
from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyclient.consumer.arguments import as_offsets
from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.consumer.polls import GroupPolls
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.single_user import SingleUser
from pyclient.consumer.steps import CallListener
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.coordinator import Identity
from pyclient.errors import KafkaError, UnknownMemberIdError, raisable, said_of
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyclient.runtime.steps import InStep, Step, Steps, WaitFor
from pyclient.signatures import takes

_log = logging.getLogger(__name__)
_NOT_COMMITTED: Final = "the commit before partitions are given up failed; records since the last commit are read again"


class Rebalancing(GroupPolls):
    """The user's side of membership. Belongs to the one thread that uses the consumer, as `ConsumedPositions` does."""

    def __init__(self, core: ConsumerCore, consumed_positions: ConsumedPositions, single_user: SingleUser) -> None:
        super().__init__(core)
        self._consumed_positions = consumed_positions
        self._single_user = single_user
        self.listener: object = None
        self._carried_out: tuple[Change, BaseException | None] | None = None
        """The last change that the group was not notified of: Ctrl-C may end that step; the next poll repeats it."""

    def metadata(self) -> ConsumerGroupMetadata:
        """The identity by which the member owns its partitions now; if it has lost them, the one that owned them, until
        it has joined again or left: coordinators take a transaction's offsets without a generation from anyone.

        A member does not join again before the user's thread has carried a loss out, in a poll. So a newer generation
        is one in which it still owns what it read before, and an older one is refused.
        """
        present = self._group.identity if self._group is not None else self._identity
        identity = present if present.joined else self._identity
        return ConsumerGroupMetadata(self._core.commits.group(), identity.generation, identity.member_id, self._core.config.group_instance_id)

    # ---- a rebalance ------------------------------------------------------------------------------------------------

    def carry_out(self) -> Steps[Step, None]:
        """As `GroupPolls.carry_out`.

        Raises:
            BaseException: the first exception of a listener, after everything is done (G10); or the reason why this
                consumer cannot be a member of the group.
        """
        self._core.buffer.poll_requested = False
        if self._group is None:
            return
        try:
            yield from self._carry_out()
        except BaseException:
            self._core.buffer.request_poll()  # there may be more to do
            raise

    def _carry_out(self) -> Steps[Step, None]:
        group = self._core.member()
        if group.wants_poll:
            yield InStep(self._core.join)
        first: Exception | None = None
        while (change := (yield InStep(self._core.begin_change))) is not None:
            try:
                yield from self._change(change)
            except Exception as error:  # noqa: BLE001 raised by the user's listener
                first = first or error
        if first is None:
            first = yield InStep(group.take_error)
        if first is not None:
            raise raisable(first) if isinstance(first, KafkaError) else first

    def _change(self, change: Change) -> Steps[Step, None]:
        """Ctrl-C ends it; the next poll carries the change out again."""
        if self._carried_out is not None and self._carried_out[0] is change:
            yield from self._end_change(*self._carried_out)
            return
        try:
            yield from self._before_change(change)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            yield from self._end_change(change, error)
            raise
        yield from self._end_change(change, None)

    def _end_change(self, change: Change, error: BaseException | None) -> Steps[Step, None]:
        self._consumed_positions.forget(change.partitions)
        self._carried_out = change, error
        yield InStep(lambda: self._core.end_change(change, error))
        self._carried_out = None

    def _before_change(self, change: Change) -> Steps[Step, None]:
        if change.kind is ChangeKind.REVOKED:
            self._warn_of_commit((yield from self._commit_consumed()))
        if change.partitions or change.kind is ChangeKind.ASSIGNED:
            yield from self._call_listener(change.kind, change.partitions)
        if change.kind is ChangeKind.REVOKED:
            self._warn_of_commit((yield from self._commit_the_rest()))

    def _call_listener(self, kind: ChangeKind, partitions: tuple[TopicPartition, ...]) -> Steps[Step, None]:
        """The time that a listener takes counts towards max_poll_interval_ms (G04)."""
        method = _METHODS[kind](self.listener)
        if method is None:
            return
        group = self._core.member()
        polling, group.polled_at, group.polling = group.polling, self._core.clock(), False
        try:
            yield CallListener(self._single_user, method, partitions)
        finally:
            group.polling = polling

    def leave(self, reason: str, timeout: float | None, *, clean: bool, leaves: bool | None = None) -> Steps[Step, None]:
        """Leave the group within *timeout* seconds. Every step is tried, whatever the one before raised (C26).

        *leaves* as in `Membership.leave`.
        """
        deadline = None if timeout is None else self._core.clock() + timeout
        self.begin_poll()  # as in a poll, max_poll_interval_ms does not run
        change: Change = yield InStep(self._core.begin_leave)
        not_committed: list[KafkaError | None] = []
        try:
            if change.kind is ChangeKind.REVOKED and clean:
                not_committed.append((yield from self._commit_consumed(deadline)))
            if change.partitions:
                yield from self._call_listener(change.kind, change.partitions)
            if change.kind is ChangeKind.REVOKED:
                not_committed.append((yield from self._commit_the_rest(deadline, clean=clean)))
        finally:
            self._consumed_positions.forget(change.partitions)
            try:
                not_left = yield WaitFor(lambda: self._core.leave(reason, self._left(deadline), leaves=leaves))
                self._warn_of_leaving(next(filter(None, not_committed), None), not_left)
            finally:
                self.end_poll()
                self._identity = Identity()

    def _warn_of_leaving(self, not_committed: BaseException | None, not_left: BaseException | None) -> None:
        """One line with all that brokers have not confirmed. That the group went on without the member is no news."""
        open_ends = []
        if not_committed is not None:
            open_ends.append(f"{_NOT_COMMITTED}: {self._said(not_committed)}")
        if not_left is not None and not isinstance(not_left, UnknownMemberIdError):
            open_ends.append(f"the group has not confirmed that the member leaves; other members get its partitions when its session has timed out: {self._said(not_left)}")
        if open_ends:
            _log.warning("group %r: %s", self._core.config.group_id, " And ".join(open_ends))

    # ---- commits before partitions are given up ---------------------------------------------------------------------

    def _commit_consumed(self, deadline: float | None = None) -> Steps[Step, KafkaError | None]:
        """C23: what is consumed is committed before its partition is given up, unless the deadline has passed.

        Returns why it could not be.
        """
        if not self._consumed_positions.auto_commits:
            return None
        return (yield from self._commit(as_offsets(self._consumed_positions.uncommitted()), deadline))

    def _commit_the_rest(self, deadline: float | None = None, *, clean: bool = True) -> Steps[Step, KafkaError | None]:
        """The commits of `commit_async`, and what the listener has stored, are sent before the next generation can
        begin.
        """
        stored = clean and self._consumed_positions.auto_commits and not self._core.config.enable_auto_offset_store
        return (yield from self._commit(as_offsets(self._consumed_positions.uncommitted() if stored else {}), deadline))

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float | None) -> Steps[Step, KafkaError | None]:
        left = self._left(deadline)
        limit = min(self._core.config.default_api_timeout_ms, self._core.config.max_poll_interval_ms) / 1000
        timeout = limit if left is None else min(left, limit)
        try:
            yield WaitFor(lambda: self._core.commit(offsets, timeout, automatic=True))
            self._consumed_positions.note_commits()
        except KafkaError as error:
            return error
        return None

    def _warn_of_commit(self, error: KafkaError | None) -> None:
        if error is not None:
            _log.warning("group %r: %s: %s", self._core.config.group_id, _NOT_COMMITTED, self._said(error))

    def _said(self, error: BaseException) -> str:
        """The error in a line that begins with the group."""
        return said_of(f"group {self._core.config.group_id!r}", error)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._core.clock())


def _method(*names: str) -> Callable[[object], Callable[[list[TopicPartition]], Any] | None]:
    """Finds the first of these methods that a listener has; it need not have all."""
    def find(listener: object) -> Callable[[list[TopicPartition]], Any] | None:
        return next((getattr(listener, name) for name in names if hasattr(listener, name)), None)

    return find


_METHODS = {
    ChangeKind.ASSIGNED: _method("on_partitions_assigned"),
    ChangeKind.REVOKED: _method("on_partitions_revoked"),
    ChangeKind.LOST: _method("on_partitions_lost", "on_partitions_revoked"),
}


LISTENER_METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


def check_listener(listener: Any, *, awaited: bool) -> None:
    """Reject a listener that could not be called: a class, one without any of the methods or with one that takes no
    partitions, or, unless they are *awaited*, one whose methods are coroutine functions.

    Raises:
        TypeError: says what to give.
    """
    if listener is None:
        return
    if isinstance(listener, type):
        raise TypeError(f"a rebalance listener is an object, not a class: give {listener.__name__}()")
    methods = {name: method for name in LISTENER_METHODS if callable(method := getattr(listener, name, None))}
    if not methods:
        raise TypeError(f"a rebalance listener needs at least one of the methods {', '.join(LISTENER_METHODS)}; got {listener!r}, which has none")
    wrong = next((name for name, method in methods.items() if not takes(method, 1)), None)
    if wrong is not None:
        raise TypeError(f"{wrong} of {listener!r} must take one argument, the list of partitions")
    coroutines = [name for name, method in methods.items() if inspect.iscoroutinefunction(method)]
    if coroutines and not awaited:
        raise TypeError(f"a Consumer cannot await {coroutines[0]} of {listener!r}: write it without async, or use AsyncConsumer")
