"""One partition: its replicas, their leader and epoch, and the leader's writes."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from pyclient.codec.encode import encode_batch
from pyclient.errors import IllegalStateError
from pyclient.testing.fake.model.batch import MARKER_KEY, MARKER_VALUE, NO_PRODUCER, Batch, placed
from pyclient.testing.fake.model.elections import NO_LEADER, Elections
from pyclient.testing.fake.model.notifier import Notifier
from pyclient.testing.fake.model.log import Log
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.replication import Replication
from pyclient.testing.fake.model.validation import Limits, checked

if TYPE_CHECKING:
    from pyclient.testing.fake.model.kafka import Kafka, Topic

HIGH_WATERMARK: Final = -1
"""Delete records up to there."""
NO_TIMESTAMP: Final = -1


class Appended(NamedTuple):
    """The place of a batch in the log, new or a repetition."""

    base_offset: int
    last_offset: int
    append_time: int
    """The broker's time with LogAppendTime; of a repeated batch its max timestamp."""
    epoch: int
    """The leader's when it was appended."""


class Partition:
    """A partition of a topic of the model."""

    def __init__(self, kafka: Kafka, topic: Topic, index: int, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas
        self.isr = [each for each in replicas if kafka.brokers[each].alive] or replicas[:1]
        self.leader = self.isr[0] if kafka.brokers[self.isr[0]].alive else NO_LEADER
        self.leader_epoch = 0
        self.changed = Notifier()
        """Notifies when the leader or the start of its log changes."""
        self._grown = {broker: Notifier() for broker in replicas}
        self._kafka = kafka
        self._born = kafka.clock()
        self._looks = 0.0
        """Number of checks for expired producers."""
        self._limits: Limits | None = None
        self._limits_of: dict[str, str] = {}
        self._last_leader = self.isr[0]
        self.elections = Elections(self, kafka)
        self._replication = Replication(self, replicas, lag_ms=kafka.settings.replica_lag_ms,
                                        max_behind_ms=kafka.settings.replica_lag_time_max_ms)
        if self.leader != NO_LEADER:
            self._replication.lead()

    def __repr__(self) -> str:
        return f"<{self.name} leader {self.leader} epoch {self.leader_epoch} isr {self.isr} {self.log}>"

    @property
    def name(self) -> str:
        """As Kafka's messages spell it."""
        return f"{self.topic.name}-{self.index}"

    # ---- reading -----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """The leader's log; the last leader's while there is none."""
        return self.log_of(self._last_leader)

    def log_of(self, broker: int) -> Log:
        """The log of one replica."""
        return self._replication.replicas[broker].log

    def known_end(self, broker: int) -> int:
        """Where the log of a follower ended when the leader last heard of it; -1 before that."""
        return self._replication.replicas[broker].seen

    def notifiers(self, *brokers: int) -> Iterator[Notifier]:
        """The notifiers of changes that readers at these brokers may see."""
        yield self.changed
        for each in brokers:
            if each in self._grown:
                yield self._grown[each]

    def committed(self) -> list[Batch]:
        """The committed batches, for assertions."""
        log = self.log
        return log.range(log.start, log.high_watermark)

    def serving_log(self, broker: int, epoch: int, *, only_leader: bool) -> Log:
        """The log that this broker serves to a client with this leader epoch (-1: none given).

        Raises:
            RefusalError: the broker does not lead (or, without *only_leader*, has no replica), or the epoch differs.
        """
        if broker not in self.replicas:
            raise RefusalError(ErrorCode.not_leader_or_follower)
        if epoch >= 0 and epoch != self.leader_epoch:
            raise RefusalError(ErrorCode.fenced_leader_epoch if epoch < self.leader_epoch else ErrorCode.unknown_leader_epoch)
        if broker != self.leader and only_leader:
            raise RefusalError(ErrorCode.not_leader_or_follower)
        return self.log_of(broker)

    @property
    def is_settling(self) -> bool:
        """Whether a new leader's high watermark has not reached its epoch's start yet."""
        return self._replication.epoch_start > self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        """The lowest start of the logs of live replicas."""
        return min(self.log_of(each).start for each in self.replicas if each == self.leader or self.is_alive(each))

    @property
    def min_insync(self) -> int:
        """``min.insync.replicas``, as far as there are replicas at all."""
        return min(int(self._setting("min.insync.replicas", self._kafka.settings.min_insync_replicas)), len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than ``acks=all`` asks for."""
        return len(self.isr) < len(self.replicas) and len(self.isr) < self.min_insync

    def _setting(self, name: str, default: object) -> str:
        return self.topic.config.get(name, str(default))

    # ---- writing -----------------------------------------------------------------------------------------------------

    def write(self, broker: int, data: bytes, *, all_in_sync: bool) -> Appended:
        """Append a client's batch at its leader.

        Raises:
            RefusalError: this broker does not lead, too few replicas are in sync, or the batch is invalid.
        """
        log = self._writable(broker)
        if all_in_sync and self.is_under_min_isr:
            raise RefusalError(ErrorCode.not_enough_replicas)
        now = self._kafka.wall()
        limits = self._limits_now()
        data = checked(data, limits, now)
        batch = Batch.of(placed(data, log.end, self.leader_epoch))
        if batch.producer_id != NO_PRODUCER:
            repeated = log.producers.repeated(batch)
            if repeated is not None:
                return Appended(repeated.first_offset, repeated.last_offset, repeated.timestamp, self.leader_epoch)
            self._expire_producers(log, now)
            log.producers.check(batch)
        self._append(log, batch)
        return Appended(batch.base_offset, batch.last_offset, now if limits.by_broker else NO_TIMESTAMP, self.leader_epoch)

    def joins(self, broker: int, batch: Batch, *, begins_at_0: bool) -> bool:
        """Whether this is its producer's first batch of a transaction here, which the coordinator must know of.

        Raises:
            RefusalError: this broker does not lead.
        """
        producers = self._writable(broker).producers
        if batch.producer_id == NO_PRODUCER or producers.has_open(batch.producer_id, batch.producer_epoch):
            return False
        producers.join(batch, begins_at_0=begins_at_0)
        return True

    def write_marker(self, broker: int, producer_id: int, producer_epoch: int, *, commits: bool, coordinator_epoch: int) -> Appended:
        """Append the marker that ends a producer's transaction.

        Raises:
            RefusalError: this broker does not lead, or the producer or coordinator is fenced.
        """
        log = self._writable(broker)
        record = (self._kafka.wall(), MARKER_KEY.pack(0, int(commits)), MARKER_VALUE.pack(0, coordinator_epoch), None)
        data = encode_batch([record], base_offset=log.end, producer_id=producer_id, producer_epoch=producer_epoch,
                            transactional=True, control=True, leader_epoch=self.leader_epoch)
        batch = Batch.of(data)
        log.producers.check_marker(batch, coordinator_epoch)
        self._append(log, batch)
        return Appended(batch.base_offset, batch.last_offset, NO_TIMESTAMP, self.leader_epoch)

    def _limits_now(self) -> Limits:
        """The limits of the topic's current settings."""
        config = self.topic.config
        if self._limits is None or config != self._limits_of:
            self._limits, self._limits_of = Limits.of(self.name, config, self._kafka.settings), dict(config)
        return self._limits

    def _writable(self, broker: int) -> Log:
        if broker != self.leader:
            raise RefusalError(ErrorCode.not_leader_or_follower, has_log_start=False)
        return self.log_of(broker)

    def _expire_producers(self, log: Log, now: int) -> None:
        """Expire producers at regular checks only: records may have old timestamps, and their producers stay known."""
        settings = self._kafka.settings
        looks, since_ms = divmod((self._kafka.clock() - self._born) * 1000, settings.producer_id_expiration_check_interval_ms)
        if looks > self._looks:
            self._looks = looks
            log.producers.expire(now - int(since_ms) - settings.producer_id_expiration_ms)

    def _append(self, log: Log, batch: Batch) -> None:
        log.append(batch)
        self._report("appended", broker=self.leader, epoch=self.leader_epoch, base_offset=batch.base_offset,
                   last_offset=batch.last_offset, batch=batch)
        self._replication.spread()
        self._retain(log)

    def _retain(self, log: Log) -> None:
        """Delete the oldest committed batches when there are too many bytes; the newest stays."""
        limit = int(self._setting("retention.bytes", self._kafka.settings.log_retention_bytes))
        if log.size <= limit or limit < 0:
            return
        excess, start = log.size - limit, log.start
        for batch in log.batches[:-1]:
            if excess <= 0 or batch.last_offset >= log.high_watermark:
                break
            excess -= batch.size
            start = batch.last_offset + 1
        self.begin_at(start)

    def begin_at(self, offset: int) -> None:
        """Advance retention to this offset.

        Raises:
            RefusalError: the offset is not committed.
        """
        log = self.log
        if offset > log.high_watermark:
            raise RefusalError(ErrorCode.offset_out_of_range)
        if offset <= log.start:
            return
        log.begin_at(offset)
        self._report("retention", broker=self._last_leader, start=offset)
        if self.leader != NO_LEADER:
            self._replication.spread()
        self.changed.notify()

    def delete_records(self, broker: int, offset: int) -> int:
        """Delete the records before this offset (-1: the high watermark) at the leader; returns the offset.

        Raises:
            RefusalError: this broker does not lead, or the offset is not committed.
        """
        log = self._writable(broker)
        before = log.high_watermark if offset == HIGH_WATERMARK else offset
        if before < 0:
            raise RefusalError(ErrorCode.offset_out_of_range)
        self.begin_at(before)
        return before

    # ---- leadership --------------------------------------------------------------------------------------------------

    def lead(self, broker: int, *, clean: bool = True) -> None:
        """Change the leader to this broker, or to none; without *clean*, to one that was not in sync."""
        self.leader = broker
        self.leader_epoch += 1
        if broker != NO_LEADER:
            self._last_leader = broker
        self._report("leader", broker=broker, epoch=self.leader_epoch, clean=clean)
        if broker == NO_LEADER:
            self._replication.stop()
        else:
            self._replication.lead()
        self.changed.notify()
        self._kafka.changed.notify()

    def set_isr(self, isr: list[int]) -> None:
        """Change the in-sync replicas."""
        self.isr = isr
        self._report("isr", isr=list(isr))
        self._kafka.changed.notify()

    def advance(self) -> None:
        """Raise the high watermark if the remaining in-sync replicas allow it; followers learn it."""
        self._replication.spread()

    def broker_down(self, broker: int, *, lose_tail: bool = False) -> None:
        """A broker was killed; with *lose_tail* it loses what it has above its high watermark."""
        if broker not in self.replicas:
            return
        self._replication.stop(broker)
        log = self.log_of(broker)
        end = log.end
        if lose_tail and log.truncate(log.high_watermark):
            self.truncated(broker, log, end)
        self.elections.broker_down(broker)

    def broker_up(self, broker: int) -> None:
        """A broker restarted: it leads if there is no leader, else follows and rejoins the ISR after catching up."""
        if broker not in self.replicas:
            return
        self.elections.broker_up(broker)
        if self.leader == NO_LEADER:
            self.elections.elect()
        else:
            self._replication.restarted(broker)

    def set_lag(self, ms: float, broker: int | None = None) -> None:
        """Set the fetch delay of a follower, or (None) of all (0: none, infinity: they never fetch)."""
        self._replication.lag(ms, broker)

    def cut(self, broker: int, end: int) -> None:
        """A broker that is down loses what its disk did not have yet: its log ends there when it comes back,
        or where the batch with this offset begins.

        Raises:
            IllegalStateError: the broker runs.
        """
        if self.is_alive(broker):
            raise IllegalStateError(f"broker {broker} runs: kill it before its log of {self.name} is cut")
        self._replication.cut(broker, end)

    def delete(self) -> None:
        """The topic is gone."""
        self._replication.stop()
        self.elections.cancel()
        self.leader = NO_LEADER
        self.leader_epoch += 1  # waiting fetches fail and refresh metadata
        self.changed.notify()

    @property
    def offline(self) -> list[int]:
        """Replicas whose broker does not run."""
        return [each for each in self.replicas if not self.is_alive(each)]

    # ---- what replication reports ------------------------------------------------------------------------------------

    def is_alive(self, broker: int) -> bool:
        """Whether this broker runs."""
        return broker != NO_LEADER and self._kafka.brokers[broker].alive

    def in_sync(self, broker: int) -> None:
        """A follower has caught up."""
        self.set_isr([each for each in self.replicas if each in self.isr or each == broker])

    def lagging(self, broker: int) -> None:
        """A follower was behind for too long."""
        if broker in self.isr:
            self.set_isr([each for each in self.isr if each != broker])
            self.advance()

    def truncated(self, broker: int, log: Log, lost_to: int) -> None:
        """A replica lost the records from its end to this offset."""
        self._report("truncated", broker=broker, end=log.end, lost_to=lost_to)
        self.changed.notify()

    def committed_to(self, offset: int) -> None:
        """The leader's high watermark rose."""
        self._report("high watermark", broker=self.leader, epoch=self.leader_epoch, offset=offset)
        self._grown[self.leader].notify()

    def learned(self, broker: int) -> None:
        """This follower's readers can have more."""
        self._grown[broker].notify()

    def _report(self, event: str, **facts: object) -> None:
        self._kafka.report(event, topic=self.topic.name, partition=self.index, **facts)
