"""The part of a consumer that runs in steps of its reactor: positions, fetches and group membership."""
from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.config import ConsumerConfig
from pyclient.core.fetching.fetcher import Fetcher
from pyclient.core.fetching.limits import READ_COMMITTED, FetchLimits
from pyclient.core.fetching.lookups import EARLIEST, LATEST, OffsetLookups
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.membership import Membership
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Manager, Use
from pyclient.errors import AuthenticationError, BootstrapError, ConfigurationError, IllegalStateError, KafkaError, KafkaTimeoutError, raisable
from pyclient.metrics import ASSIGNED_PARTITIONS, FAILED_REBALANCES, FETCH_BUFFERED, REBALANCES, RECORDS_LAG
from pyclient.reactor.tasks import Future
from pyclient.records import NO_LEADER_EPOCH, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pyclient.client.core import ClientCore
from pyclient.consumer.commit_order import Turn
from pyclient.consumer.commits import Commits
from pyclient.consumer.data_waiter import DataWaiter
from pyclient.consumer.membership import membership
from pyclient.consumer.batch_decompressor import BatchDecompressor
from pyclient.runtime.environment import ASSIGNOR_THREAD
from pyclient.runtime.offload import Offload
from pyclient.runtime.portals import Portal

_log = logging.getLogger(__name__)
LEAVE_TIMEOUT: Final = 5.0
"""Seconds to wait for the coordinator's answer to a LeaveGroup. Without one the member's session times out there."""
SESSION_CLOSE_TIMEOUT: Final = 0.1
"""Seconds to wait for the responses to closing fetch sessions. The requests reach the brokers in any case."""


class ConsumerCore(ClientCore):
    """The consumer's managers, and what its facade calls in a step."""

    config: ConsumerConfig
    data_use = Use.FETCH

    def __init__(self, config: ConsumerConfig, portal: Portal) -> None:
        super().__init__(config, portal, create_topics=config.allow_auto_create_topics)
        isolation = READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self.buffer = FetchBuffer()
        self._offload = Offload(self.environment, self.reactor, ASSIGNOR_THREAD, self.driver.wake)
        self.membership = membership(self, config, config.group_id, self._offload, self.buffer.request_poll) if config.group_id else None
        self.commits = Commits(self, config, self.membership)
        self.lookups = OffsetLookups(self.metadata, isolation=isolation, request_timeout=self.request_timeout, backoff=self.backoff)
        self.fetcher = Fetcher(
            self.buffer, self.metadata, self.lookups, _limits(config, isolation), backoff=self.backoff,
            reset_time=lambda: reset_time(config, self.environment.wall()),
            find_committed=self.commits.look_up if config.group_id else None)
        self.finished_commits: deque[Mapping[TopicPartition, OffsetAndMetadata]] = deque()
        """Commits that succeeded, in order; the user's thread takes them from here."""
        self.data = DataWaiter(self.buffer, self.reactor, self.clock)
        self._decompressor = BatchDecompressor(self.buffer, self.environment, self.reactor, config.fetch_buffer_memory, self.data.look_again)
        self._unanswered_since: float | None = None
        self._joins = "joined; "  # what the next assignment is logged as
        self._logged: frozenset[TopicPartition] = frozenset()
        self.metrics.watch(FETCH_BUFFERED, lambda: self.buffer.bytes)
        self.metrics.watch(ASSIGNED_PARTITIONS, lambda: len(self.fetcher.positions))
        self.metrics.watch(RECORDS_LAG, self.fetcher.largest_lag)

    def managers(self) -> Sequence[Manager]:
        """The group and the fetcher come first: the calls and lookups that they submit are sent in the same turn."""
        group = [] if self.membership is None else [self.membership]
        return [*group, self.fetcher, *super().managers(), self.lookups]

    def data_manager(self) -> Manager:
        """As `ClientCore.data_manager`."""
        return self.fetcher

    async def start(self) -> None:
        """Connect, and fetch again when the user takes data from a full buffer."""
        await super().start()
        self.buffer.on_room = self.driver.wake_from_anywhere
        self.buffer.on_data = self.data.notify

    async def wait_for_data(self, timeout: float | None) -> bool:
        """As `DataWaiter.until`. Batches that are too large for the loop are opened meanwhile."""
        self.check_open()
        return await self.data.until(self._decompressor.has_data, timeout)

    def bootstrap_time_left(self) -> float | None:
        """Seconds that polls may still wait for a first broker to answer; None once one has answered.

        Raises:
            BootstrapError: none has answered for ``default_api_timeout_ms`` since the first poll that waited for it.
        """
        if self.refused is not None:
            raise raisable(self.refused)
        if self.metadata.cluster.nodes or not (self.fetcher.positions or self.subscribed):
            self._unanswered_since = None
            return None
        now = self.clock()
        since = self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
        left = since + self.config.default_api_timeout_ms / 1000 - now
        if left <= 0:
            self._unanswered_since = None  # a further poll waits as long again
            raise BootstrapError(self.connections.failure_report(), waited_s=now - since)
        return left

    # ---- assignment and positions -----------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self.fetcher.assign(partitions, self.clock())
        self.driver.wake()

    def seek(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        """Continue at *position*."""
        self.check_assigned(tp)
        self.fetcher.seek(tp, position.offset, NO_LEADER_EPOCH if position.leader_epoch is None else position.leader_epoch)
        self.driver.wake()

    def reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Continue at the start or the end of the log."""
        for tp in self._all_assigned(partitions):
            self.fetcher.reset(tp, timestamp, self.clock())
        self.driver.wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`."""
        self.fetcher.pause(self._all_assigned(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End `pause`."""
        self.fetcher.resume(self._all_assigned(partitions))
        self.driver.wake()

    async def position(self, tp: TopicPartition, timeout: float | None) -> int:
        """Where reading begins, once that is known."""
        self.check_open()
        self.check_assigned(tp)

        def known() -> int | None:
            error = self.fetcher.why_unknown(tp)
            if error is not None:
                raise raisable(error)
            position = self.fetcher.positions[tp]
            self.fetcher.locate(tp, self.clock())
            return position.start if position.known else None

        return await self.driver.until(known, timeout, lambda: KafkaTimeoutError(
            f"the position of {tp} is not known after {timeout} s: {self.metadata.last_error or 'its leader did not answer'}"))

    def check_readable(self) -> None:
        """Raise when there is nothing that a poll could wait for."""
        if not (self.fetcher.positions or self.subscribed):
            raise IllegalStateError("this consumer has nothing to read: subscribe([topic]) as a member of its group, or "
                                    "assign([TopicPartition(topic, partition)]); topics= at its creation subscribes too")

    def check_assigned(self, tp: TopicPartition) -> None:
        """Raise when the partition is not assigned."""
        if tp not in self.fetcher.positions:
            cause = "the group assigns partitions, in poll()" if self.subscribed else "assign([...]) it first"
            raise IllegalStateError(f"{tp} is not assigned to this consumer: {cause}")

    def _all_assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(partitions)
        for tp in wanted:
            self.check_assigned(tp)
        return wanted

    # ---- offsets ----------------------------------------------------------------------------------------------------

    async def offsets(self, targets: Mapping[TopicPartition, int], timeout: float | None) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offsets at these timestamps (ms, or `EARLIEST`, `LATEST`); None where no record is that late."""
        self.check_open()
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        errors: list[KafkaError] = []

        def on_found(tp: TopicPartition, answer: OffsetAndTimestamp | None, error: KafkaError | None, _now: float) -> None:
            found[tp] = answer
            errors.extend([error] if error is not None else [])

        now = self.clock()
        deadline = None if timeout is None else now + timeout
        lookups = self.lookups.submit(targets, on_found, deadline=deadline, now=now)
        try:
            await self.driver.until(lambda: True if errors or len(found) == len(targets) else None, None, _never)
        finally:
            for lookup in lookups:
                self.lookups.cancel(lookup)
        if errors:
            raise self._unreachable(errors[0], timeout)
        return {tp: found[tp] for tp in targets}

    # ---- the group --------------------------------------------------------------------------------------------------

    @property
    def subscribed(self) -> bool:
        """Whether partitions come from a subscription."""
        return self.membership is not None and self.membership.subscribed

    def subscribe(self, subscription: Subscription) -> None:
        """Read the partitions of *subscription* that the group assigns to this member; the next poll joins."""
        group = self.member()
        if subscription.brokers_pattern is not None and self.config.group_protocol != "consumer":
            raise ConfigurationError("brokers match a SubscriptionPattern only for groups of the consumer protocol: set group_protocol=consumer, "
                                     "or give a compiled pattern (re.compile), which the client matches", option="topics")
        group.subscribe(subscription)
        self._hold_unsubscribed(group)
        self.driver.wake()

    def _hold_unsubscribed(self, group: Membership) -> None:
        """G06: until the group takes the partitions of topics that are not subscribed any more, nothing of them is
        returned or fetched.
        """
        assigned = list(self.fetcher.positions)
        self.fetcher.hold([tp for tp in assigned if not group.may_read(tp.topic)])
        self.fetcher.release([tp for tp in assigned if group.may_read(tp.topic)], self.clock())

    def member(self) -> Membership:
        """The membership.

        Raises:
            ConfigurationError: the consumer has no ``group_id``.
        """
        if self.membership is None:
            raise ConfigurationError("subscribe() needs a group: give the consumer a group_id, or read without one by "
                                     "assign([TopicPartition(...)])", option="group_id")
        return self.membership

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None, *, automatic: bool = False,
                     turn: Turn | None = None) -> None:
        """Store offsets for the group, as `Commits.commit`."""
        await self.commits.commit(offsets, timeout, as_member=self.subscribed, automatic=automatic, turn=turn)
        if offsets:
            self.finished_commits.append(offsets)

    @property
    def may_auto_commit(self) -> bool:
        """Whether an automatic commit may be sent now: not during a rebalance, which it would delay (C22)."""
        group = self.membership
        if group is None or not group.subscribed:
            return True
        return group.identity.joined and group.accepts_commits and not group.generation_in_doubt

    def join(self) -> None:
        """A poll of a consumer that is not a member (any more): join the group."""
        self.member().polled()
        self.driver.wake()

    def begin_change(self) -> Change | None:
        """Begin the next change that the user's thread must carry out; None if there is none.

        First comes one that was begun by a call that Ctrl-C ended.
        """
        group = self.member()
        change = group.change
        if change is None or not group.begin(change):
            return group.begun
        if change.kind is ChangeKind.ASSIGNED:
            self.fetcher.add(change.partitions, self.clock(), held=True)
        else:
            self.fetcher.hold(change.partitions)
        if change.kind is not ChangeKind.REVOKED:
            self.metrics.add(REBALANCES if change.kind is ChangeKind.ASSIGNED else FAILED_REBALANCES)
        return change

    def end_change(self, change: Change, error: BaseException | None) -> None:
        """The user's thread has carried *change* out; its listener raised *error*."""
        group = self.member()
        group.complete(change, error)
        kept = [tp for tp in change.partitions if tp in group.owned and group.may_read(tp.topic)]
        self.fetcher.remove([tp for tp in change.partitions if tp not in group.owned])
        self.fetcher.release(kept, self.clock())
        self._log_membership(change)
        self.driver.wake()

    def _log_membership(self, change: Change) -> None:
        """One line when the member joins, and when it has other partitions; a warning when it had lost them before.

        That they were lost is logged where the group says so.
        """
        if change.kind is ChangeKind.LOST:
            self._joins = "joined again; "
        if change.kind is not ChangeKind.ASSIGNED or not (self._joins or self._logged != self.member().owned.keys()):
            return
        level = logging.WARNING if "again" in self._joins else logging.INFO
        self._logged = frozenset(self.member().owned)
        _log.log(level, "group %r: %sassigned: %s", self.config.group_id, self._joins, ", ".join(map(str, sorted(self._logged))) or "none")
        self._joins = ""

    def begin_leave(self) -> Change:
        """The member is about to leave: the partitions that it gives up, or has lost already (C26)."""
        kind = ChangeKind.REVOKED if self.member().identity.joined else ChangeKind.LOST
        partitions = tuple(self.fetcher.positions)
        self.fetcher.hold(partitions)
        return Change(kind, partitions)

    def enforce_rebalance(self, reason: str) -> None:
        """Make the group assign its partitions again."""
        if not self.subscribed:
            raise IllegalStateError("enforce_rebalance: this consumer is no member of a group: subscribe([topic]) first")
        self.member().enforce_rebalance(reason)
        self.driver.wake()

    async def leave(self, reason: str, timeout: float | None, *, leaves: bool | None = None) -> BaseException | None:
        """Leave the group and report it to the coordinator, as `Membership.leave`. Returns why it has not confirmed
        that.
        """
        self._joins = "joined; "
        self.fetcher.remove(list(self.fetcher.positions))
        if self.refused is not None:
            self.member().drop_subscription()
            return None
        left: Future[BaseException | None] = Future(self.reactor)

        def finish(_result: object, error: BaseException | None) -> None:
            if not left.done():
                left.set_result(error)

        self.member().leave(reason, finish, self.clock() + (LEAVE_TIMEOUT if timeout is None else min(timeout, LEAVE_TIMEOUT)), leaves=leaves)
        self.driver.wake()
        return await left

    def on_refused(self, error: AuthenticationError) -> None:
        """End a waiting poll, which raises the error."""
        self.buffer.request_poll()

    async def close(self) -> None:
        """Close, and end a poll that waits."""
        try:
            if self.closed is None and self.started:
                await self._close_sessions()
        finally:
            await super().close()
            self._offload.close()
            self._decompressor.close()
            self.buffer.wake()

    async def _close_sessions(self) -> None:
        """C07: close the fetch sessions at the brokers whose connections can take a request at once."""
        for request in self.fetcher.session_close.requests(self.connections.free):
            self.connections.send(request)
        with contextlib.suppress(KafkaError):
            await self.driver.until(lambda: self.fetcher.session_close.answered or None, SESSION_CLOSE_TIMEOUT, _late)


def reset_time(config: ConsumerConfig, now: int) -> int | None:
    """The timestamp that auto_offset_reset means, or None: raise an error. *now* is in ms since the epoch."""
    if config.reset_duration_ms is not None:
        time = now - config.reset_duration_ms
        return time if time >= 0 else EARLIEST  # before 1970; a negative number has another meaning for brokers
    return {"earliest": EARLIEST, "latest": LATEST}.get(config.auto_offset_reset)


def _limits(config: ConsumerConfig, isolation: int) -> FetchLimits:
    return FetchLimits(
        min_bytes=config.fetch_min_bytes, max_wait=config.fetch_max_wait_ms / 1000, max_bytes=config.fetch_max_bytes,
        max_partition_bytes=config.max_partition_fetch_bytes, buffer_memory=config.fetch_buffer_memory,
        decompression_limit=config.decompression_limit_bytes, check_crcs=config.check_crcs, isolation=isolation,
        rack=config.client_rack, request_timeout=config.request_timeout_ms / 1000, replica_lease=config.metadata_max_age_ms / 1000)


def _late() -> KafkaError:
    return KafkaTimeoutError("not every broker has answered to the close of its fetch session")


def _never() -> KafkaError:
    raise AssertionError("there is no timeout to report")
