"""What a consumer's facades remember between calls: what was handed out, and what counts as consumed."""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyclient.buffers.records_view import Decode, Records, collect
from pyclient.buffers.record_iterator import RecordCursor
from pyclient.codec.record import Record, decoded
from pyclient.config import ConsumerConfig
from pyclient.errors import SerializationError
from pyclient.metrics import RECORDS_CONSUMED
from pyclient.plugins import as_deserializer
from pyclient.records import Headers, OffsetAndMetadata, TopicPartition
from pyclient.consumer.uncommitted import Uncommitted
from pyclient.consumer.core import ConsumerCore
from pyclient.client.interceptors import consumer_interceptors


class ConsumedPositions:
    """What was handed out and what counts as consumed. Belongs to the one thread that uses the consumer.

    A result of poll counts as consumed when the next poll, a commit or a clean close follows; a record of an iteration
    when the next one is asked for, or at a commit inside the loop's body.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._decode = decoder(core.config)
        self._interceptors = consumer_interceptors(core.config.interceptors)
        self._consumed = Uncommitted()
        self._handed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._save_at = core.clock() + core.config.auto_commit_interval_ms / 1000
        self._rest = Records()  # ready to be handed out; interceptors have seen it
        self._unseen = Records()  # taken, and not yet through the interceptors: what Ctrl-C in a user's function left behind
        self._out: Records | None = None  # taken, and not yet in the user's hands: Ctrl-C may come between
        self._iterated = Records()
        self._walk: RecordCursor | None = None
        self.auto_commits = bool(core.config.enable_auto_commit and core.config.group_id)
        """Whether enable_auto_commit applies."""

    # ---- poll -------------------------------------------------------------------------------------------------------

    def take(self, limit: int) -> Records:
        """What is there now, at most *limit* records; positions may move even if there is none.

        Unless `hand`, `begin` or `pass_over` follows, it comes first the next time.
        """
        if self._interceptors is None and not self._rest and not self._unseen:
            self._out = records = self._collect(limit)
            return records
        return self._rest_first(limit, self._core.fetcher.paused)

    def _rest_first(self, limit: int, paused: frozenset[TopicPartition]) -> Records:
        rest = self._rest.without(paused)
        if rest:
            records, later = rest.split(limit)
            # Nothing can come between what one line stores.
            self._out, self._rest = records, later.joined(self._rest.only(paused))
        elif self._interceptors is None and not self._unseen:
            self._out = records = self._collect(limit)
        else:
            records = self._intercepted(limit, paused)
        return records

    def _collect(self, limit: int) -> Records:
        return collect(self._core.buffer, limit, self._decode, self._keep)

    def _keep(self, records: Records) -> None:
        self._unseen = self._unseen.joined(records)

    def _intercepted(self, limit: int, paused: frozenset[TopicPartition]) -> Records:
        """What interceptors leave of what is there. Until they have ended nothing of it is off the line."""
        if not self._unseen.without(paused):
            self._keep(self._collect(limit))
        records, later = self._unseen.without(paused).split(limit)
        shown = records if self._interceptors is None else self._interceptors.on_consume(records)
        self._out, self._unseen = shown, later.joined(self._unseen.only(paused))
        return shown

    def hand(self, records: Records) -> None:
        """A poll returns *records*."""
        self._core.metrics.add(RECORDS_CONSUMED, len(records))
        self._handed, self._out = {**self._handed, **records.next_offsets()}, None

    def _put_back(self) -> None:
        """What a poll took that was broken off is the first in line."""
        if self._out is not None:
            self._rest, self._out = self._out.joined(self._rest), None

    @property
    def may_drop_records(self) -> bool:
        """Whether records may be taken that nobody is handed."""
        return self._interceptors is not None or self._core.config.on_deserialization_error is not None

    def skip(self, records: Records) -> None:
        """A poll goes on behind *records*, of which nothing is left: they count as consumed at once, for nobody has anything to do with them."""
        self._consumed.update(records.next_offsets())
        self._out = None

    def settle(self) -> None:
        """What was handed out counts as consumed from now on; an iteration under way gives back what it has not shown."""
        self._put_back()
        self.interrupt()
        self._consume_handed()

    def _consume_handed(self) -> None:
        if self._handed:
            self._consumed.update(self._handed)
            self._handed = {}

    def discard_returned(self) -> None:
        """What was handed out last does not count: the user was not done with it."""
        self.interrupt()
        self._handed.clear()

    # ---- iteration --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Record | None:
        """The record that the iteration under way has handed out last."""
        return None if self._walk is None else self._walk.current

    def begin(self, records: Records) -> RecordCursor:
        """An iteration goes through *records*; positions that moved while it waited for them lie behind it."""
        self._consume_handed()  # or they would come later than those of *records*, and take them back
        self._iterated, self._walk, self._out = records, (walk := RecordCursor(records.runs())), None
        return walk

    def _end_iteration(self) -> None:
        self._iterated, self._walk = Records(), None

    def exhausted(self) -> None:
        """The iteration asks for more: all of it is consumed."""
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated))
        self._consumed.update(self._iterated.next_offsets())
        self._end_iteration()

    def abandon(self, walk: RecordCursor) -> None:
        """*walk* is left early; one that was interrupted before has nothing to say any more."""
        if walk is self._walk:
            self.interrupt()

    def interrupt(self) -> None:
        """The iteration under way, if any, ends here: its last record counts like a poll's, the others come first in the next poll."""
        if self._walk is None:
            return
        self._walk.stop()
        rest = self._iterated
        if self.current is not None:
            tp = TopicPartition(self.current.topic, self.current.partition)
            self._consumed.update(self._iterated.through(self.current, inclusive=False))
            self._handed[tp] = self._iterated.through(self.current, inclusive=True)[tp]
            rest = self._iterated.after(self.current)
        self._core.metrics.add(RECORDS_CONSUMED, len(self._iterated) - len(rest))
        self._rest = rest.joined(self._rest)
        self._end_iteration()

    # ---- positions --------------------------------------------------------------------------------------------------

    def position(self, tp: TopicPartition) -> int | None:
        """The consumed position; None before anything of the partition was consumed."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=False)
        consumed = inside.get(tp) or self._consumed.get(tp)
        return None if consumed is None else consumed.offset

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``commit()`` stores: everything handed out, of an iteration up to and with the current record."""
        inside = {} if self.current is None else self._iterated.through(self.current, inclusive=True)
        self._consume_handed()
        return {**self._consumed.all(), **inside}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These were assigned anew or sought: nothing from before counts."""
        gone = set(partitions)
        self._put_back()
        self.interrupt()  # in the body of a loop: its next record comes from the new position
        self._rest, self._unseen = self._rest.without(gone), self._unseen.without(gone)
        for tp in gone:
            self._consumed.forget(tp)
            self._handed.pop(tp, None)

    def start_at(self, tp: TopicPartition, offset: int) -> None:
        """A seek: the position is *offset*."""
        self.forget([tp])
        self._consumed.update({tp: OffsetAndMetadata(offset)})

    # ---- automatic commits ------------------------------------------------------------------------------------------

    def due(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions to commit automatically now; empty most of the time."""
        if not self.auto_commits or (now := self._core.clock()) < self._save_at:
            return {}
        self._save_at = now + self._core.config.auto_commit_interval_ms / 1000
        return self.uncommitted()

    def auto_commit_in(self) -> float | None:
        """Seconds until `due` has something; None when it will not, as long as nothing more is consumed."""
        if not self.auto_commits or not self._consumed.any_uncommitted:
            return None
        return max(0.0, self._save_at - self._core.clock())

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Consumed positions that were not committed yet."""
        return self._consumed.uncommitted()

    def note_commits(self) -> None:
        """Hear what was committed since the last time; interceptors are told in that order (C24)."""
        while (offsets := self._next_stored()) is not None:
            self._consumed.note_commits(offsets)
            if self._interceptors is not None:
                self._interceptors.on_commit(offsets)

    def _next_stored(self) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        try:
            return self._core.finished_commits.popleft()
        except IndexError:  # at the end, or a second thread, on its way to hear that it must not be here, was quicker
            return None

    def close(self) -> None:
        """The consumer was closed, and the last commit told."""
        chain, self._interceptors = self._interceptors, None
        if chain is not None:
            chain.close()


def decoder(config: ConsumerConfig) -> Decode | None:
    """A function that applies the deserializers to a record; None when there are none.

    It raises for a record they refuse; or tells ``on_deserialization_error`` of it, and gives None.
    """
    if config.key_deserializer is None and config.value_deserializer is None:
        return None
    key = _unchanged if config.key_deserializer is None else as_deserializer(config.key_deserializer)
    value = _unchanged if config.value_deserializer is None else as_deserializer(config.value_deserializer)
    skip = config.on_deserialization_error

    def decode(record: Record) -> Record | None:
        what = "key"
        try:
            made = key(record.topic, record.key, record.headers)
            what = "value"
            return decoded(record, made, value(record.topic, record.value, record.headers))
        except SerializationError as error:
            refused = _refused(record, what, error)
            if skip is None:
                raise refused from error
            refused.__cause__ = error
        skip(record, refused)  # what it raises is raised in the error's place, and the record stays in line
        return None

    return decode


def _refused(record: Record, what: str, error: SerializationError) -> SerializationError:
    return SerializationError(f"the {what} of the record at offset {record.offset}: {error.message}. seek() past it to go on.",
                              topic_partition=TopicPartition(record.topic, record.partition), record=record)


def _unchanged(topic: str, data: bytes | None, headers: Headers) -> bytes | None:
    return data
