"""What the thread that uses a consumer does in a rebalance: commits, tells the listener, gives up and takes over (C23, G10).

The steps are generators: they yield what is to be done, and sync and async consumers do it each in their way. Rule: once the
user's thread has begun with a change, the group hears that it was carried out, whatever was raised meanwhile.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.coordinator import Identity
from pyclient.errors import KafkaError, raisable
from pyclient.metrics import TIME_BETWEEN_POLLS
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.arguments import as_offsets
from pyclient.consumer.consumed_positions import ConsumedPositions

_log = logging.getLogger(__name__)


@attrs.frozen
class OnLoop:
    """Do *work* on the client's loop; answered with its result."""

    work: Callable[[], Any]


@attrs.frozen
class WaitFor:
    """Wait for what *make* makes, on the client's loop; answered with its result."""

    make: Callable[[], Coroutine[Any, Any, Any]]


@attrs.frozen
class Tell:
    """Call the listener's *method* with *partitions*."""

    method: Callable[[Sequence[TopicPartition]], Any]
    partitions: tuple[TopicPartition, ...]


Step: TypeAlias = OnLoop | WaitFor | Tell
Steps: TypeAlias = Generator[Step, Any, None]


def next_step(steps: Steps, answer: object, error: BaseException | None) -> Step | None:
    """Answer the last step, or raise in it; the next one, or None at the end."""
    try:
        return steps.send(answer) if error is None else steps.throw(error)
    except StopIteration:
        return None


class Rebalancing:
    """The user's side of membership: belongs to the one thread that uses the consumer, as `ConsumedPositions` does."""

    def __init__(self, core: ConsumerCore, progress: ConsumedPositions) -> None:
        self._core = core
        self._consumed_positions = progress
        self._group = core.membership
        self._identity = Identity()
        self._polled_at: float | None = None
        self.listener: object = None

    # ---- around a poll ----------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """The user polls: as long as it does, max_poll_interval_ms does not run."""
        now = self._core.clock()
        if self._polled_at is not None:
            self._core.metrics.sample(TIME_BETWEEN_POLLS, (now - self._polled_at) * 1000, now)
        self._polled_at = now
        if self._group is not None:
            self._group.polling = True

    def end_poll(self) -> None:
        """The user goes on with what it got."""
        if self._group is not None:
            self._group.polled_at = self._core.clock()
            self._group.polling = False
            self._identity = self._group.identity

    @property
    def due(self) -> bool:
        """Whether `carry_out` has anything to do."""
        return self._core.buffer.nudged or (self._group is not None and (self._group.wants_poll or self._group.failure is not None))

    def metadata(self) -> ConsumerGroupMetadata:
        """As whom the last poll ended."""
        group = self._core.commits.group()
        return ConsumerGroupMetadata(group, self._identity.generation, self._identity.member_id, self._core.config.group_instance_id)

    # ---- the steps --------------------------------------------------------------------------------------------------

    def carry_out(self) -> Steps:
        """All that the group wants from the user's thread now.

        Raises:
            BaseException: what a listener raised first, after all is done (G10); or why the group does not take this member.
        """
        self._core.buffer.nudged = False
        if self._group is None:
            return
        try:
            yield from self._carry_out()
        except BaseException:
            self._core.buffer.nudge()  # there may be more to do
            raise

    def _carry_out(self) -> Steps:
        group = self._core.member()
        if group.wants_poll:
            yield OnLoop(self._core.join)
        first: Exception | None = None
        while (change := (yield OnLoop(self._core.begin_change))) is not None:
            try:
                yield from self._change(change)
            except Exception as error:  # noqa: BLE001 of the user's making
                first = first or error
        if first is None:
            first = yield OnLoop(group.take_error)
        if first is not None:
            raise raisable(first) if isinstance(first, KafkaError) else first

    def _change(self, change: Change) -> Steps:
        error: BaseException | None = None
        try:
            yield from self._told(change)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._consumed_positions.forget(change.partitions)
            yield OnLoop(lambda: self._core.end_change(change, error))

    def _told(self, change: Change) -> Steps:
        if change.kind is ChangeKind.REVOKED:
            yield from self._save()
        if change.partitions or change.kind is ChangeKind.ASSIGNED:
            yield from self._tell(change.kind, change.partitions)
        if change.kind is ChangeKind.REVOKED:
            yield from self._flush()

    def _tell(self, kind: ChangeKind, partitions: tuple[TopicPartition, ...]) -> Steps:
        """The time that a listener takes counts as the user's own (G04)."""
        method = _METHODS[kind](self.listener)
        if method is None:
            return
        group = self._core.member()
        polling, group.polled_at, group.polling = group.polling, self._core.clock(), False
        try:
            yield Tell(method, partitions)
        finally:
            group.polling = polling

    def part(self, reason: str, timeout: float | None, *, clean: bool) -> Steps:
        """Leave the group within *timeout* seconds: every step is tried, whatever the one before raised (C26)."""
        ends = None if timeout is None else self._core.clock() + timeout
        self.begin_poll()  # it is at work on the group, as in a poll: max_poll_interval_ms does not run
        change: Change = yield OnLoop(self._core.part)
        try:
            if change.kind is ChangeKind.REVOKED and clean:
                yield from self._save(ends)
            if change.partitions:
                yield from self._tell(change.kind, change.partitions)
            if change.kind is ChangeKind.REVOKED:
                yield from self._flush(ends)
        finally:
            self._consumed_positions.forget(change.partitions)
            try:
                yield WaitFor(lambda: self._core.leave(reason, self._left(ends)))
            finally:
                self.end_poll()

    # ---- commits before partitions go -------------------------------------------------------------------------------

    def _save(self, ends: float | None = None) -> Steps:
        """C23: what is consumed is committed before its partition goes, unless the time is over."""
        if self._consumed_positions.auto_commits:
            yield from self._commit(as_offsets(self._consumed_positions.uncommitted()), ends)

    def _flush(self, ends: float | None = None) -> Steps:
        """What `commit_async` was asked for is on its way before the next generation can begin."""
        yield from self._commit({}, ends)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], ends: float | None) -> Steps:
        left = self._left(ends)
        limit = min(self._core.config.default_api_timeout_ms, self._core.config.max_poll_interval_ms) / 1000
        try:
            yield WaitFor(lambda: self._core.commit(offsets, limit if left is None else min(left, limit), automatic=True))
            self._consumed_positions.note_commits()
        except KafkaError as error:
            _log.warning("group %r: what is consumed could not be committed before its partitions go, and is read again: %s",
                         self._core.config.group_id, error)

    def _left(self, ends: float | None) -> float | None:
        return None if ends is None else max(0.0, ends - self._core.clock())


def _method(*names: str) -> Callable[[object], Callable[[Sequence[TopicPartition]], Any] | None]:
    """The first of these methods that a listener has; it need not have all."""
    def find(listener: object) -> Callable[[Sequence[TopicPartition]], Any] | None:
        return next((getattr(listener, name) for name in names if hasattr(listener, name)), None)

    return find


_METHODS = {
    ChangeKind.ASSIGNED: _method("on_partitions_assigned"),
    ChangeKind.REVOKED: _method("on_partitions_revoked"),
    ChangeKind.LOST: _method("on_partitions_lost", "on_partitions_revoked"),
}


def check_listener(listener: Any, names: Iterable[str] = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")) -> None:
    """Refuse what has none of a listener's methods: it would never be told anything.

    Raises:
        TypeError: names them.
    """
    if listener is not None and not any(callable(getattr(listener, name, None)) for name in names):
        raise TypeError(f"{listener!r} is no rebalance listener: it has none of {', '.join(names)}")
