"""Commits of one consumer, sent in the order in which they were started (C24), and lookups of committed offsets."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyclient.config import ConsumerConfig
from pyclient.core.group.member_commit import MemberCommit
from pyclient.core.group.coordinator import Identity
from pyclient.core.group.membership import Membership
from pyclient.core.group.offsets import NOT_A_MEMBER, commit_call, committed_call
from pyclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError, RebalanceInProgressError
from pyclient.reactor.tasks import Timeout
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.client.core import ClientCore
from pyclient.consumer.commit_order import CommitOrder, Turn


class Commits:
    """Commits for a group: as its member, or without a subscription as a consumer outside of it."""

    def __init__(self, core: ClientCore, config: ConsumerConfig, membership: Membership | None) -> None:
        self._core = core
        self._group_id = config.group_id
        self._instance_id = config.group_instance_id
        self._membership = membership
        self.order = CommitOrder(core.reactor)

    def group(self) -> str:
        """The group id.

        Raises:
            IllegalStateError: the consumer has none.
        """
        if not self._group_id:
            raise IllegalStateError("committed offsets belong to a group: give the consumer a group_id")
        return self._group_id

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None, *, as_member: bool,
                     automatic: bool = False, turn: Turn | None = None) -> None:
        """Store *offsets*, after all commits that were announced before; *turn* is its place, if it has one already.

        An *automatic* commit does not wait for topics that brokers do not know.

        Raises:
            CommitFailedError: a partition is not assigned to this member (any more).
            RebalanceInProgressError: the group was rebalancing until the timeout.
            KafkaError: not stored, or (`KafkaTimeoutError`) not known to be.
        """
        turn = turn or self.order.announce()
        try:
            self._core.check_open()
            group = self.group()
            deadline = None if timeout is None else self._core.clock() + timeout
            commit = MemberCommit(self._membership, group, offsets) if as_member and self._membership is not None else None
            await self._begins(turn, timeout)
            if offsets and commit is not None:
                await self._as_member(commit, offsets, deadline, automatic=automatic)
            elif offsets:
                await self._send(offsets, self._left(deadline), automatic=automatic)
        finally:
            turn.end()

    async def _begins(self, turn: Turn, timeout: float | None) -> None:
        try:
            async with Timeout(self._core.reactor, timeout):
                await turn.begins()
        except TimeoutError:
            raise KafkaTimeoutError(f"earlier commits have not ended after {timeout} s; this one was not sent") from None

    async def _as_member(self, commit: MemberCommit, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float | None, *,
                         automatic: bool) -> None:
        while True:
            await self._core.driver.until(lambda: commit.is_ready or None, self._left(deadline), self._rebalancing)
            identity = commit.begin()
            try:
                await self._send(offsets, self._left(deadline), identity, self._instance_id, automatic=automatic)
            except KafkaError as error:
                commit.refused(error)
            else:
                return

    async def _send(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], left: float | None,
                    identity: Identity = NOT_A_MEMBER, instance_id: str | None = None, *, automatic: bool) -> None:
        await self._core.call(lambda finish, until: commit_call(
            self.group(), offsets, finish, until, identity=identity, instance_id=instance_id, automatic=automatic), left)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._core.clock())

    def _rebalancing(self) -> KafkaError:
        return RebalanceInProgressError(f"group {self._group_id!r} was rebalancing until the timeout: nothing was committed. poll(), then commit again "
                                        "what is still assigned.")

    # ---- committed offsets ------------------------------------------------------------------------------------------

    async def committed(self, partitions: Iterable[TopicPartition], timeout: float | None) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed position of each partition; None where nothing is committed."""
        group, wanted = self.group(), list(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = await self._core.call(
            lambda finish, deadline: committed_call(group, wanted, finish, deadline), timeout)
        return found

    def look_up(self, partitions: Sequence[TopicPartition],
                found: Callable[[TopicPartition, OffsetAndMetadata | None, KafkaError | None, float], None]) -> Callable[[TopicPartition], None]:
        """Look up committed positions, as `FindCommitted`; the returned function cancels it for one partition."""
        wanted = set(partitions)

        def finish(committed: Any, error: BaseException | None) -> None:
            for tp in partitions:
                if isinstance(error, KafkaError):
                    found(tp, None, error, self._core.clock())
                elif committed is not None:
                    found(tp, committed[tp], None, self._core.clock())

        def cancel(tp: TopicPartition) -> None:
            wanted.discard(tp)
            if not wanted:
                self._core.calls.cancel(call)

        call = committed_call(self.group(), partitions, finish, None)
        self._core.calls.submit(call)
        return cancel
