"""Replication: followers copy the leader's log, and the high watermark follows.

Without lag (``replica_lag_ms=0``) followers copy at once. With lag they fetch that long after the leader has news; the
leader learns a follower's end from its fetch, and followers learn the high watermark with the next one. Each follower
may have a lag of its own.
"""
from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Final, Protocol

import attrs

from pyclient.testing.fake.model.batch import Batch
from pyclient.testing.fake.model.log import Log

MS: Final = 0.001


class Roles(Protocol):
    """What replication needs of the partition: leader, ISR, and methods that report changes."""

    isr: list[int]
    leader: int
    leader_epoch: int

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for anything to be committed."""

    def is_alive(self, broker: int) -> bool:
        """Whether this broker runs."""

    def in_sync(self, broker: int) -> None:
        """A follower has caught up."""

    def lagging(self, broker: int) -> None:
        """A follower was behind for too long."""

    def truncated(self, broker: int, log: Log, lost_to: int) -> None:
        """A replica lost the records from its end to this offset."""

    def committed_to(self, offset: int) -> None:
        """The leader's high watermark rose."""

    def learned(self, broker: int) -> None:
        """This follower's readers can have more."""


@attrs.define(eq=False)
class Replica:
    """A broker's copy of the partition."""

    broker: int
    lag_ms: float
    """It fetches so long after the leader has news (0: at once, infinity: never)."""
    log: Log = attrs.field(factory=Log)
    seen: int = -1
    """Its log end as known to the leader; -1 until it fetched from this leader."""
    follows: int = -1
    """The leader epoch its log agrees with."""
    fetch: asyncio.TimerHandle | None = None
    behind: asyncio.TimerHandle | None = None

    def rest(self) -> None:
        """Cancel the timers."""
        for timer in (self.fetch, self.behind):
            if timer is not None:
                timer.cancel()
        self.fetch = self.behind = None


class Replication:
    """The replicas of one partition."""

    def __init__(self, roles: Roles, brokers: Iterable[int], *, lag_ms: float, max_behind_ms: float) -> None:
        self.replicas = {each: Replica(each, lag_ms) for each in brokers}
        self._roles = roles
        self._max_behind_ms = max_behind_ms
        self.epoch_start = 0
        """Where the current leader's log ended when it was elected."""

    # ---- what the partition decides ----------------------------------------------------------------------------------

    def lead(self) -> None:
        """A new leader starts; it knows no follower's end yet."""
        leader = self._leader
        for each in self.replicas.values():
            each.rest()
            each.seen = -1
        leader.follows = self._roles.leader_epoch
        self.epoch_start = leader.log.end
        leader.log.epochs.assign(self._roles.leader_epoch, leader.log.end)
        self.spread()

    def stop(self, broker: int | None = None) -> None:
        """Cancel the timers of a broker that is down, or (None) of all."""
        for each in self.replicas.values() if broker is None else (self.replicas[broker],):
            each.rest()

    def restarted(self, broker: int) -> None:
        """A follower restarted; its known end is reset."""
        self.replicas[broker].seen = -1
        self.spread()

    def lag(self, ms: float, broker: int | None = None) -> None:
        """Set the fetch delay of a broker, or (None) of all; with infinity they never fetch."""
        for each in self.replicas.values() if broker is None else (self.replicas[broker],):
            each.lag_ms = ms
            each.rest()
        self.spread()

    def cut(self, broker: int, end: int) -> None:
        """A follower lost what its log held from the batch with this offset on."""
        replica = self.replicas[broker]
        log, before = replica.log, replica.log.end
        replica.seen = -1
        lost = log.range(end, before)
        if lost and log.truncate(lost[0].base_offset):
            self._roles.truncated(broker, log, before)

    def spread(self) -> None:
        """The leader's log changed: followers copy it, now or with their next fetch."""
        if self._roles.leader not in self.replicas:
            return  # no leader
        followers = self._followers()
        prompt = [each for each in followers if not each.lag_ms]
        for each in prompt:
            self._copy(each)
        self.advance()
        for each in prompt:
            self._learn(each)
        for each in followers:
            if each.lag_ms:
                self._schedule(each)

    def advance(self) -> None:
        """Raise the leader's high watermark to what all in-sync replicas have, if there are enough of them."""
        roles, log = self._roles, self._leader.log
        if roles.is_under_min_isr:
            return
        ends = (self.replicas[each].seen for each in roles.isr if each != roles.leader)
        offset = min(ends, default=log.end)
        offset = min(offset, log.end)
        if offset > log.high_watermark:
            log.high_watermark = offset
            roles.committed_to(offset)

    # ---- fetching ----------------------------------------------------------------------------------------------------

    @property
    def _leader(self) -> Replica:
        return self.replicas[self._roles.leader]

    def _followers(self) -> list[Replica]:
        """The live ones; none while the leader is dead."""
        roles = self._roles
        if not roles.is_alive(roles.leader):
            return []
        return [each for each in self.replicas.values() if each.broker != roles.leader and roles.is_alive(each.broker)]

    def _is_behind(self, replica: Replica) -> bool:
        log, leader = replica.log, self._leader.log
        return (replica.seen, log.high_watermark, log.start) != (leader.end, leader.high_watermark, leader.start)

    def _schedule(self, replica: Replica) -> None:
        if not self._is_behind(replica):
            return
        loop = asyncio.get_running_loop()
        if replica.fetch is None and replica.lag_ms < math.inf:
            replica.fetch = loop.call_later(replica.lag_ms * MS, self._fetched, replica)
        if replica.behind is None and replica.seen < self._leader.log.end:
            replica.behind = loop.call_later(self._max_behind_ms * MS, self._waited, replica)

    def _fetched(self, replica: Replica) -> None:
        """A fetch of this follower is answered."""
        replica.rest()
        if replica in self._followers():
            self._copy(replica)
            self.spread()

    def _waited(self, replica: Replica) -> None:
        """Only a leader that runs takes a follower out of the ISR."""
        replica.behind = None
        if self._roles.is_alive(self._roles.leader) and replica.seen < self._leader.log.end:
            self._roles.lagging(replica.broker)

    def _copy(self, replica: Replica) -> None:
        log, leader = replica.log, self._leader.log
        if replica.follows != self._roles.leader_epoch:
            self._agree(replica)
        if log.end < leader.start:
            log.restart_at(leader.start)
        for batch in _missing(log, leader):
            log.append(batch)
        replica.seen = log.end
        self._learn(replica)
        if replica.broker not in self._roles.isr and log.end >= max(leader.high_watermark, self.epoch_start):
            self._roles.in_sync(replica.broker)

    def _learn(self, replica: Replica) -> None:
        if _learn(replica.log, self._leader.log):
            self._roles.learned(replica.broker)

    def _agree(self, replica: Replica) -> None:
        """Truncate to the last common epoch, as OffsetForLeaderEpoch does."""
        log, leader = replica.log, self._leader.log
        end = log.end
        if log.start > leader.end:
            log.restart_at(leader.start)
        while (to := _divergence(log, leader)) is not None:
            log.truncate(to)
        replica.follows = self._roles.leader_epoch
        if log.end < end:
            self._roles.truncated(replica.broker, log, end)


def _missing(log: Log, leader: Log) -> Iterable[Batch]:
    if log.end == leader.end:
        return ()
    newest = leader.batches[-1]
    return (newest,) if newest.base_offset == log.end else leader.range(log.end, leader.end)


def _learn(log: Log, leader: Log) -> bool:
    """Copy high watermark and log start of a fetch response; returns whether they changed."""
    committed = min(log.end, leader.high_watermark)
    has_more, has_less = committed > log.high_watermark, log.start < leader.start <= log.end
    if has_more:
        log.high_watermark = committed
    if has_less:
        log.begin_at(leader.start)
    return has_more or has_less


def _divergence(log: Log, leader: Log) -> int | None:
    """The offset to truncate a follower's log to; None when it matches the leader's."""
    latest = log.epochs.latest
    if latest < 0:
        return None if log.end <= leader.end else leader.end
    theirs = leader.epochs.end_of(latest, leader.end)
    if theirs.epoch < 0:
        return log.start if log.end > log.start or log.epochs.entries else None
    if theirs.epoch == latest and theirs.offset >= log.end:
        return None
    ours = log.epochs.end_of(theirs.epoch, log.end)
    return min(theirs.offset, ours.offset if ours.epoch >= 0 else theirs.offset, log.end)
