"""What a consumer's facades remember between calls: what was handed out, and what counts as consumed."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyclient.buffers.fetched import Records, collect
from pyclient.codec.record import Record, decoded
from pyclient.config import ConsumerConfig
from pyclient.errors import SerializationError
from pyclient.metrics import RECORDS_CONSUMED
from pyclient.plugins import as_deserializer
from pyclient.records import Headers, OffsetAndMetadata, TopicPartition
from pyclient.runtime.consuming import ConsumerCore


class Progress:
    """What was handed out and what counts as consumed. Belongs to the one thread that uses the consumer.

    A result of poll counts as consumed when the next poll, a commit or a clean close follows; a record of an iteration
    when the next one is asked for, or at a commit inside the loop's body.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._decode = decoder(core.config)
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._handed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._saved: dict[TopicPartition, int] = {}
        self._save_at = core.clock() + core.config.auto_commit_interval_ms / 1000
        self._rest = Records()
        self._iterated = Records()
        self.current: Record | None = None
        """The record an iteration has handed out last; the iteration sets it."""

    # ---- poll -------------------------------------------------------------------------------------------------------

    def take(self, limit: int) -> Records:
        """What is there now, at most *limit* records; positions may move even if there is none."""
        paused = self._core.fetcher.paused
        rest = self._rest.without(paused)
        if rest:
            records, later = rest.split(limit)
            self._rest = later.joined(self._rest.only(paused))
            return records
        return collect(self._core.buffer, limit, self._decode)

    def hand(self, records: Records) -> None:
        """A poll returns *records*."""
        self._core.metrics.add(RECORDS_CONSUMED, len(records))
        self._handed.update(records.next_offsets())

    def settle(self) -> None:
        """What was handed out counts as consumed from now on; an iteration under way gives back what it has not shown."""
        self.interrupt()
        self._consumed.update(self._handed)
        self._handed.clear()

    def take_back(self) -> None:
        """What was handed out last does not count: the user was not done with it."""
        self.interrupt()
        self._handed.clear()

    # ---- iteration --------------------------------------------------------------------------------------------------

    def begin(self, records: Records) -> None:
        """An iteration goes through *records*. Positions that moved without records while it waited for them lie behind it, and are no news afterwards."""
        self._consumed.update(self._handed)
        self._handed.clear()
        self._iterate(records)

    def exhausted(self) -> None:
        """The iteration asks for more: all of it is consumed."""
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated))
        self._consumed.update(self._iterated.next_offsets())
        self._iterate(Records())

    def abandon(self, last: Record | None) -> None:
        """An iteration that has shown *last* ended early; one that was interrupted before has nothing to say any more."""
        if last is self.current:
            self.interrupt()

    def interrupt(self) -> None:
        """The iteration under way, if any, ends here: its last record counts like a poll's, the others come first in the next poll."""
        if self.current is not None:
            self._consumed.update(self._iterated.through(self.current, inclusive=False))
            self._handed[TopicPartition(self.current.topic, self.current.partition)] = OffsetAndMetadata(
                self.current.offset + 1, leader_epoch=self.current.leader_epoch)
            rest = self._iterated.after(self.current)
            if not rest:
                self._handed.update(self._iterated.next_offsets())  # with what lies behind the last record and is not handed out
        else:
            rest = self._iterated
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated) - len(rest))
        self._rest = rest.joined(self._rest)
        self._iterate(Records())

    def _iterate(self, records: Records) -> None:
        self._iterated, self.current = records, None

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, where: TopicPartition) -> int | None:
        """The consumed position; None before anything of the partition was consumed."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=False)
        consumed = inside.get(where, self._consumed.get(where))
        return None if consumed is None else consumed.offset

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``commit()`` stores: everything handed out, of an iteration up to and with the current record."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=True)
        self._consumed.update(self._handed)
        self._handed.clear()
        return {**self._consumed, **inside}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These were assigned anew or sought: nothing from before counts."""
        gone = set(partitions)
        self.interrupt()  # in the body of a loop: its next record comes from the new position
        self._rest = self._rest.without(gone)
        for where in gone:
            for each in (self._consumed, self._handed, self._saved):
                each.pop(where, None)

    def start_at(self, where: TopicPartition, offset: int) -> None:
        """A seek: the position is *offset*."""
        self.forget([where])
        self._consumed[where] = OffsetAndMetadata(offset)

    # ---- automatic commits ------------------------------------------------------------------------------------------

    def due(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions to commit automatically now; empty most of the time."""
        now = self._core.clock()
        if not self.commits_itself or now < self._save_at:
            return {}
        self._save_at = now + self._core.config.auto_commit_interval_ms / 1000
        return self.unsaved()

    def save_in(self) -> float | None:
        """Seconds until `due` has something; None when it will not, as long as nothing more is consumed."""
        if not self.commits_itself or not self.unsaved():
            return None
        return max(0.0, self._save_at - self._core.clock())

    @property
    def commits_itself(self) -> bool:
        """Whether enable_auto_commit applies."""
        return bool(self._core.config.enable_auto_commit and self._core.config.group_id)

    def unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Consumed positions that were not committed yet."""
        return {where: position for where, position in self._consumed.items() if self._saved.get(where) != position.offset}

    def saved(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        self._saved.update({where: position.offset for where, position in offsets.items()})


def decoder(config: ConsumerConfig) -> Callable[[Record], Record] | None:
    """A function that applies the deserializers to a record; None when there are none."""
    if config.key_deserializer is None and config.value_deserializer is None:
        return None
    key = _unchanged if config.key_deserializer is None else as_deserializer(config.key_deserializer)
    value = _unchanged if config.value_deserializer is None else as_deserializer(config.value_deserializer)

    def decode(record: Record) -> Record:
        try:
            return decoded(record, key(record.topic, record.key, record.headers), value(record.topic, record.value, record.headers))
        except SerializationError as error:
            where = TopicPartition(record.topic, record.partition)
            raise SerializationError(f"the record at offset {record.offset}: {error.message}. seek() past it to go on.",
                                     topic_partition=where) from error

    return decode


def _unchanged(topic: str, data: bytes | None, headers: Headers) -> bytes | None:
    return data
