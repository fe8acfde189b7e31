"""What an all-seeing observer of a run knows: every record accepted, settled, stored and consumed. Judges nothing."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

import attrs

from pyclient.buffers.delivery import Delivery
from pyclient.records import TopicPartition

Key = tuple[str, int]
"""Topic and partition."""


@attrs.define(eq=False)
class Sent:
    """One record that a producer accepted."""

    name: bytes
    """Its value begins with this; no two records of a run have the same."""
    producer: str
    value: bytes
    order: int = -1
    """How many records this producer had accepted before."""
    at: float = -1.0
    due_from: float = -1.0
    due: float = float("inf")
    """Settled by a time between *due_from* and *due*: a bulk queues its records between its call and return."""
    delivery: Delivery | None = None
    """None while the bulk that it is part of is being taken."""
    once: bool = False
    """Its producer is idempotent."""
    settled: int = 0
    settled_at: float = -1.0
    offset: int | None = None
    """Where it was acknowledged to be stored."""
    error: BaseException | None = None

    @property
    def tp(self) -> Key:
        """Its partition."""
        assert self.delivery is not None
        return self.delivery.topic, self.delivery.partition


class Entry(NamedTuple):
    """What a log holds at an offset. A tuple, because each record creates and compares several."""

    name: bytes
    epoch: int
    """The leader's who wrote it."""


Log = dict[int, Entry]
"""By offset."""


@attrs.frozen(eq=False)
class Handed:
    """A record that a reader got, and what was known of its place when it came: looked up once for all who judge it."""

    reader: str
    tp: Key
    offset: int
    entry: Entry
    reading: Reading
    logs: list[tuple[int, Log, int | None]]
    """`Facts.logs` for it."""


@attrs.frozen(eq=False)
class Cut:
    """An unclean election took the end of a log."""

    at: int
    """The first offset that holds something else now, or nothing."""
    before: Log
    """What was there."""

    @property
    def lost(self) -> Log:
        """What was there from there on."""
        return {offset: entry for offset, entry in self.before.items() if offset >= self.at}


@attrs.define(eq=False)
class Reading:
    """What one consumer does with one partition."""

    next: int | None = None
    """The offset it must return next; None after an assignment, a seek or a reset."""
    position: int = -1
    handed: int = 0
    """The offset after the last one that was ever handed out, or stood at."""
    knows: int = 0
    """How many cuts concern it no more: it has gone back, or what it read came later."""
    view: Log = attrs.field(factory=dict)
    """The log as the consumer read it, with what preceded its start. Empty: nothing read, so no cut can be noticed."""
    since: int = 0
    """Where its knowledge of epochs begins: at the first record that it read, or the one before what it committed."""

    def begin(self, at: int | None, cuts: int) -> None:
        """A seek to an offset or a reset to an end (None): whatever was cut before is no matter."""
        self.next, self.position, self.knows, self.view, self.since = at, -1 if at is None else at, cuts, {}, 0

    def stands(self, at: int) -> None:
        """What was read from there on does not count any more."""
        self.next, self.position = at, min(self.position, at)
        self.view = {offset: entry for offset, entry in self.view.items() if offset < at}

    def skips(self) -> None:
        """Retention has moved it on: of the log there it has read nothing."""
        self.next, self.view = None, {}

    def parts_from(self, log: Log) -> int | None:
        """Where it must go on in this log; at its end, if all of what was read lay beyond."""
        found = min((offset for offset, entry in self.view.items() if log.get(offset) != entry), default=self.next)
        return None if found is None else min(found, max(log, default=-1) + 1)

    def may_go_on(self, log: Log) -> list[int | None]:
        """Where it may go on in this log, the first place first: several if it cannot know where the logs part."""
        at = self.parts_from(log)
        if at is None or not self.view or at >= self.since:
            return [at]
        return [*range(at, max(at, self._seems_to_part_from(log)) + 1)]

    def _seems_to_part_from(self, log: Log) -> int:
        """Where the log's last epoch ends that is not above the reader's, or one begins that only the reader knows."""
        newest = self.view[max(self.view)].epoch
        epoch = max((entry.epoch for entry in log.values() if entry.epoch <= newest), default=-1)
        end = max((offset for offset, entry in log.items() if entry.epoch == epoch), default=-1) + 1
        return min([offset for offset, entry in self.view.items() if offset >= self.since and entry.epoch > epoch] + [end])


@attrs.define(eq=False)
class Second:
    """What was done in the current virtual second."""

    turns: int = 0
    requests: int = 0
    records: int = 0
    connects: int = 0
    by_client: Counter[str] = attrs.field(factory=Counter)
    control: Counter[str] = attrs.field(factory=Counter)
    """Requests about the cluster itself, by client."""
    logins: Counter[str] = attrs.field(factory=Counter)
    """Begun, by client."""
    joins: Counter[str] = attrs.field(factory=Counter)
    """JoinGroup requests, by client."""
    starts: Counter[str] = attrs.field(factory=Counter)
    """How often a client was made, by its name: each instance has connections of its own."""


@attrs.define(eq=False)
class Facts:
    """Filled by workloads and by the fake cluster's events."""

    sent: dict[bytes, Sent] = attrs.field(factory=dict)
    unsettled: dict[bytes, Sent] = attrs.field(factory=dict)
    stored: dict[Key, Log] = attrs.field(factory=lambda: defaultdict(dict))
    """What the leader's log holds now, by offset."""
    first_stored: dict[tuple[str, Key], int] = attrs.field(factory=dict)
    """Producer and partition → the latest order of a record that was stored for the first time."""
    ever_stored: set[bytes] = attrs.field(factory=set)
    lost: set[bytes] = attrs.field(factory=set)
    """Stored once, then cut off by an unclean election: no client can prevent that."""
    log_start: dict[Key, int] = attrs.field(factory=lambda: defaultdict(int))
    """Where the leader's log begins now."""
    starts: dict[Key, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    """Every log start of any leader: what was fetched between two of them may come later."""
    latest_start: dict[Key, int] = attrs.field(factory=lambda: defaultdict(int))
    """The highest log start of any leader: retention may have moved a reader there."""
    readings: dict[tuple[str, Key], Reading] = attrs.field(factory=lambda: defaultdict(Reading))
    watermarks: dict[Key, dict[int, int]] = attrs.field(factory=lambda: defaultdict(dict))
    """The highest high watermark under each leader epoch."""
    second: Second = attrs.field(factory=Second)
    errors: list[str] = attrs.field(factory=list)
    """What the client logged as an error."""
    committed: dict[tuple[str, Key], tuple[int, int]] = attrs.field(factory=dict)
    """Group and partition → offset and leader epoch that its coordinator stored last."""
    troubled_from: float = 0.0
    """From when on something may be wrong."""
    calm_from: float = 0.0
    """From when on nothing is wrong any more."""
    live_since: dict[Key, tuple[tuple[int, int], float]] = attrs.field(factory=dict)
    """Partition → its leader and epoch, and since when that leader answers."""
    block_s: dict[str, float] = attrs.field(factory=dict)
    """Producer → seconds that its `send` may wait."""
    pipelines: dict[str, int] = attrs.field(factory=dict)
    """Producer → how many requests it may have in flight on a connection."""
    in_line: dict[str, int] = attrs.field(factory=dict)
    """Producer → how many batches of a partition it may have under way."""
    fetchers: dict[str, Any] = attrs.field(factory=dict)
    """Consumer → who knows what brokers are being asked for now."""
    rests: dict[str, dict[TopicPartition, tuple[int, float]]] = attrs.field(factory=lambda: defaultdict(dict))
    """Consumer → failed partition → generation of its position, and until when it is not fetched."""
    resets: dict[str, str] = attrs.field(factory=dict)
    """Consumer → its auto_offset_reset."""
    max_age: dict[str, float] = attrs.field(factory=dict)
    """Client → seconds after which it refreshes metadata."""
    wanted: dict[str, Collection[str]] = attrs.field(factory=dict)
    """Client → the topics that it wants to know."""
    views: Counter[str] = attrs.field(factory=Counter)
    """Client → how many views of the cluster it got while nothing was wrong."""
    logins: dict[object, float] = attrs.field(factory=dict)
    """Connection → when a login last began on it."""
    answered: dict[object, float] = attrs.field(factory=dict)
    """Connection → when anything but a login was last answered on it, where clients log in."""
    tokens: int = 0
    """How often any was asked for until the last second."""
    consumed: int = 0
    acked: int = 0
    failed: int = 0
    cuts: dict[Key, list[Cut]] = attrs.field(factory=lambda: defaultdict(list))
    """Each partition's, in their order."""

    def accept(self, sent: Sent) -> None:
        """A producer took a record."""
        self.sent[sent.name] = self.unsettled[sent.name] = sent

    def refuse(self, sent: Sent) -> None:
        """A producer did not take a record, though it had looked so: part of a bulk."""
        del self.sent[sent.name], self.unsettled[sent.name]

    def lose_sight(self, sent: Sent) -> None:
        """The outcome of a record that may have been accepted stays unknown."""
        del self.unsettled[sent.name]

    def append(self, tp: Key, base_offset: int, names: list[bytes], epoch: int) -> None:
        """A leader stored records."""
        log = self.stored[tp]
        for position, name in enumerate(names):
            log[base_offset + position] = Entry(name, epoch)

    def begin(self, tp: Key, start: int) -> None:
        """The leader's log begins there from now on."""
        self.log_start[tp] = start
        self.latest_start[tp] = max(self.latest_start[tp], start)
        self.starts[tp].add(start)

    def led_by_retention(self, tp: Key, due: int, offset: int) -> bool:
        """Whether a reader, due before the start of a log, may be at *offset*; of any leader's log, old or new."""
        return any(due < start <= offset for start in self.starts[tp])

    def lead(self, tp: Key, log: Log, *, start: int, clean: bool) -> None:
        """A new leader's log counts from now on, which begins at *start*: what it does not hold is gone."""
        before, begin = self.stored[tp], max(self.log_start[tp], start) if clean else start
        self.begin(tp, start)  # what retention took from the old leader may be here again, or be written again
        known = self.stored[tp] = {**{offset: entry for offset, entry in before.items() if offset < begin}, **log}
        if clean:
            return
        at = min((offset for offset, entry in before.items() if known.get(offset) != entry), default=None)
        if at is None:
            return
        present = {entry.name for entry in log.values()}
        self.lost.update(entry.name for entry in before.values() if entry.name not in present)  # to retention, some of them
        self.cuts[tp].append(Cut(at, before))
        for (_, place), reading in self.readings.items():
            if place == tp and not reading.view:
                reading.next, reading.position = None, -1

    def end(self, tp: Key) -> int:
        """Where the leader's log ends now."""
        return max(self.stored[tp], default=-1) + 1

    def committed_end(self, tp: Key) -> int:
        """The leader's high watermark, or the one before where the leader has none yet."""
        marks = self.watermarks[tp]
        return min(self.end(tp), marks[max(marks)] if marks else 0)

    def logs(self, reading: Reading, tp: Key) -> list[tuple[int, Log, int | None]]:
        """The logs that this reader may be reading in, how many cuts it knows then, and where it must go on there."""
        cuts = self.cuts[tp]
        if reading.knows == len(cuts):
            return [(len(cuts), self.stored[tp], reading.next)]
        logs = [*(cut.before for cut in cuts), self.stored[tp]][reading.knows:]
        found: list[tuple[int, Log, int | None]] = []
        for number, log in enumerate(logs, reading.knows):
            places = reading.may_go_on(log)
            at = places[0]
            # It may have gone back for a log in between, and go on from there in this one.
            back = {before for other, _, before in found if other > reading.knows and before is not None and at is not None and before < at}
            found += [(number, log, each) for each in (*places, *sorted(back))]
        return found

    def start_for(self, reading: Reading, tp: Key) -> int:
        """To where retention may have moved this reader: one that reads in the newest log, within that."""
        starts = self.log_start if reading.knows == len(self.cuts[tp]) else self.latest_start
        return starts[tp]

    def handed(self, reader: str, tp: Key, offset: int, entry: Entry) -> Handed:
        """A reader is handed a record."""
        reading = self.readings[reader, tp]
        return Handed(reader, tp, offset, entry, reading, self.logs(reading, tp))

    def read(self, handed: Handed) -> None:
        """A reader has it now."""
        reading, offset, entry, logs = handed.reading, handed.offset, handed.entry, handed.logs
        if reading.next is None:
            reading.position = -1  # wherever a reset has put it since
        elif offset > reading.next:
            reading.skips()
            logs = self.logs(reading, handed.tp)
        if not reading.view or offset <= reading.since:
            reading.since = offset
        for number, log, at in logs:
            if log.get(offset) == entry and at in (None, offset):
                if number > reading.knows:
                    reading.position = min(reading.position, offset)  # it went back before anybody looked
                if number > reading.knows or not reading.view:
                    reading.view = {before: each for before, each in log.items() if before < offset}
                reading.knows = number
                break
        if offset != reading.next:
            reading.stands(offset)
        reading.view[offset] = entry
        reading.next = offset + 1
        reading.handed = max(reading.handed, reading.next)

    def moved(self, reader: str, tp: Key, position: int) -> None:
        """A reader stands somewhere; further back than before where the log was cut."""
        reading = self.readings[reader, tp]
        if position < reading.position:
            number, log = next(((number, log) for number, log, at in self.logs(reading, tp) if at == position), (reading.knows, reading.view))
            reading.knows = number
            reading.stands(position)
            known = position > reading.since
            reading.view = {at: entry for at, entry in log.items() if at < position} if known else {}
            if not known and number < len(self.cuts[tp]):
                reading.next = None  # it notices no cut: its policy may decide
        elif reading.next is not None and position > reading.next:
            reading.skips()
        reading.position = position
        reading.handed = max(reading.handed, position)

    def sought(self, reader: str, tp: Key, offset: int) -> None:
        """A reader is put somewhere; beyond the log's end, its policy decides where it goes on."""
        self.readings[reader, tp].begin(offset if offset <= self.end(tp) else None, len(self.cuts[tp]))

    def resumed(self, reader: str, tp: Key, offset: int, epoch: int) -> None:
        """A reader comes back to what it has committed."""
        reading, cuts = self.readings[reader, tp], self.cuts[tp]
        logs = [*(cut.before for cut in cuts), self.stored[tp]]
        number = max((number for number, log in enumerate(logs) if offset - 1 in log and log[offset - 1].epoch == epoch), default=None)
        reading.begin(offset if number is not None or not cuts else None, len(cuts) if number is None else number)
        reading.position = -1
        if number is not None:
            reading.view = {at: entry for at, entry in logs[number].items() if at < offset}
            reading.since = offset - 1

    def shown(self, tp: Key, epoch: int) -> int:
        """The end of what may have been returned of this epoch: the high watermark of any leader that can have it."""
        return max([offset for leaders, offset in self.watermarks[tp].items() if leaders >= epoch], default=0)
