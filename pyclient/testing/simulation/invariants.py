"""The invariants of every run: one function each, called after its event; it raises `InvariantError` when violated.

The ids are those of the page of protocol rules; ids with an S belong to the simulation itself.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.errors import (
    BufferExhaustedError, DeliveryTimeoutError, IllegalTransitionError, InvalidTimestampError, KafkaError, LogTruncationError, OffsetOutOfRangeError, PolicyViolationError,
)
from pyclient.testing.simulation.facts import Facts, Handed, Key, Reading, Sent
from pyclient.testing.simulation.network import Link
from pyclient.testing.simulation.world import World

SLACK_S: Final = 0.25
"""What timers and the network may add to a timeout."""
RECOVERY_S: Final = 10.0
"""How long a client may take to recover after the last fault: its own timeouts and backoffs, and one more attempt."""
TURNS_PER_SECOND: Final = 6000
"""Callbacks of the whole world in one virtual second, beyond what its requests and records account for."""
TURNS_PER_REQUEST: Final = 60
TURNS_PER_RECORD: Final = 20
REQUESTS_PER_SECOND: Final = 300
"""Of one client."""
CONTROL_PER_SECOND: Final = 30
"""Metadata, ApiVersions and coordinator look-ups of one client."""
CALM_REFRESHES: Final = 4
"""Metadata requests of a client without faults, beyond those for age: for its start and its close."""
INSTANT_S: Final = 0.001
"""A write at the time of a response's arrival may have begun before."""
CONNECTS_PER_SECOND: Final = 60
"""Of one client: each broker and use, and connections that break again at once."""


class InvariantError(AssertionError):
    """An invariant was violated."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@attrs.frozen
class Invariant:
    """A rule, the event after which it is evaluated, and its check."""

    name: str
    rule: str
    event: str
    check: Callable[..., None]
    family: str
    """The family of runs that must evaluate it."""


INVARIANTS: Final[dict[str, Invariant]] = {}
ALONE: Final = "alone"
"""Runs whose consumers have a group each, with all partitions."""
GROUPS: Final = "groups"
"""Runs whose consumers share one group."""
TRANSACTIONS: Final = "transactions"
"""Chains of workers that process exactly once."""
HANGS: Final = "hangs"
"""Runs in which nothing is wrong but brokers that hang."""


def holds(event: str, rule: str, family: str = ALONE) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a function as an invariant evaluated after *event*."""
    def declare(check: Callable[..., None]) -> Callable[..., None]:
        INVARIANTS[check.__name__] = Invariant(check.__name__, rule, event, check, family)
        return check
    return declare


class Judge:
    """Evaluates a run's invariants (*rules*) after their events, and counts the evaluations."""

    def __init__(self, world: World, facts: Facts, rules: Iterable[Invariant]) -> None:
        self.world = world
        self.facts = facts
        self.broken: InvariantError | None = None
        self._by_event: dict[str, list[Callable[..., None]]] = {}
        self._completed: Counter[str] = Counter()
        """Event → how often all of its invariants held."""
        self._until_violation: Counter[str] = Counter()
        """Invariants evaluated for events that violated one: up to that one."""
        for each in rules:
            self._by_event.setdefault(each.event, []).append(each.check)

    def after(self, event: str, *about: Any) -> None:
        """Evaluate the invariants of an event. The first violation is kept in `broken` and raised."""
        check: Callable[..., None] | None = None
        try:
            for check in self._by_event.get(event, ()):
                check(self, *about)
        except InvariantError as broken:
            assert check is not None
            self._until_violation.update(_up_to(check.__name__, self._by_event[event]))
            self.broken = self.broken or broken
            self.world.journal.note("BROKEN", str(broken))
            raise
        self._completed[event] += 1

    @property
    def evaluated(self) -> Counter[str]:
        """Invariant → number of evaluations."""
        held = {check.__name__: self._completed[event] for event, checks in self._by_event.items() for check in checks}
        return self._until_violation + Counter(held)


def _up_to(last: str, checks: Iterable[Callable[..., None]]) -> list[str]:
    names = [check.__name__ for check in checks]
    return names[:names.index(last) + 1]


def breach(check: Callable[..., None], text: str) -> InvariantError:
    """The error of a violated invariant. Its text is made only now: formatting took most of the evaluation's time."""
    return InvariantError(f"{INVARIANTS[check.__name__].rule} {check.__name__}", text)


# --- producing --------------------------------------------------------------------------------------------------------


@holds("settled", "P23")
def a_record_is_settled_once(judge: Judge, sent: Sent) -> None:
    """A delivery completes exactly once."""
    if sent.settled != 1:
        raise breach(a_record_is_settled_once, f"{sent.name!r} was settled {sent.settled} times")


@holds("settled", "P18")
def a_record_is_settled_in_time(judge: Judge, sent: Sent) -> None:
    """Nothing is pending longer than delivery_timeout_ms."""
    now = judge.world.loop.time()
    if now > sent.due + SLACK_S:
        raise breach(a_record_is_settled_in_time, f"{sent.name!r} was sent at {sent.at:.3f}, was due at {sent.due:.3f}, and was settled at {now:.3f}")


@holds("second", "P18")
def no_record_is_overdue(judge: Judge) -> None:
    """The same for records that are never settled."""
    now = judge.world.loop.time()
    late = next((each for each in judge.facts.unsettled.values() if now > each.due + 1.0), None)
    if late is not None:
        raise breach(no_record_is_overdue, f"{late.name!r} is still pending at {now:.3f}; due at {late.due}")


@holds("failed", "P12")
def records_fail_only_because_of_faults(judge: Judge, sent: Sent) -> None:
    """A record fails only by a delivery timeout during faults, a wrong clock's timestamp, or a broker's policy."""
    if isinstance(sent.error, InvalidTimestampError | PolicyViolationError):
        return
    calm = judge.facts.calm_from + RECOVERY_S
    if not isinstance(sent.error, DeliveryTimeoutError) or sent.due_from > calm:
        raise breach(records_fail_only_because_of_faults, f"{sent.name!r} failed at {judge.world.loop.time():.3f}, was due at {sent.due_from:.3f}, and all was well from {calm:.3f} on: {sent.error!r}")


@holds("refused", "P04")
def records_are_refused_only_when_memory_is_full(judge: Judge, who: str, error: BaseException) -> None:
    """Before the first fault and after the last one, a producer refuses records only when its memory is full."""
    facts, now = judge.facts, judge.world.loop.time()
    if who in facts.block_s and not isinstance(error, BufferExhaustedError):
        wrong = facts.troubled_from <= now and now - facts.block_s[who] <= facts.calm_from + RECOVERY_S
        if not wrong:
            raise breach(records_are_refused_only_when_memory_is_full, f"{who} refuses a record at {now:.3f} while all is well: {error!r}")


@holds("acked", "S06")
def an_acknowledged_record_is_stored_at_its_offset(judge: Judge, sent: Sent) -> None:
    """With acks=all an acknowledgement means that the log holds the record at that offset."""
    if sent.name in judge.facts.lost:
        return
    if sent.offset is None and sent.once:  # the broker knew it again, but not where it is (I03)
        if sent.name not in judge.facts.ever_stored:
            raise breach(an_acknowledged_record_is_stored_at_its_offset, f"{sent.name!r} was acknowledged, and never stored")
        return
    found = judge.facts.stored[sent.tp].get(sent.offset) if sent.offset is not None else None
    if found is None or found.name != sent.name:
        raise breach(an_acknowledged_record_is_stored_at_its_offset, f"{sent.name!r} was acknowledged at {sent.tp} offset {sent.offset}, which holds {found!r}")


@holds("end", "S06")
def acknowledged_records_stay_stored(judge: Judge) -> None:
    """At the end of the run the logs hold every acknowledged record that no unclean election lost."""
    facts = judge.facts
    present = {entry.name for log in facts.stored.values() for entry in log.values()}
    for sent in facts.sent.values():
        should = sent.offset is not None and sent.name not in facts.lost and sent.offset >= facts.log_start[sent.tp]
        if should and sent.name not in present:
            raise breach(acknowledged_records_stay_stored, f"{sent.name!r}, acknowledged at {sent.offset}, is gone")


@holds("stored", "P17")
def records_keep_their_order(judge: Judge, tp: Key, names: list[bytes]) -> None:
    """A producer's records are first stored in the order in which they were sent to a partition."""
    facts = judge.facts
    for name in names:
        sent = facts.sent.get(name)
        if sent is None or name in facts.ever_stored:
            continue
        key = (sent.producer, tp)
        if sent.order <= facts.first_stored.get(key, -1):
            raise breach(records_keep_their_order, f"{name!r} comes to {tp} after a record that was sent later (order {facts.first_stored.get(key)})")


@holds("stored", "I04")
def an_idempotent_producers_record_is_stored_once(judge: Judge, tp: Key, names: list[bytes]) -> None:
    """A record is appended again only where the log has lost it."""
    facts = judge.facts
    for name in names:
        sent = facts.sent.get(name)
        if sent is not None and sent.once and name in facts.ever_stored and name not in facts.lost:
            again = [offset for offset, entry in facts.stored[tp].items() if entry.name == name and offset >= facts.log_start[tp]]
            if again:
                raise breach(an_idempotent_producers_record_is_stored_once, f"{name!r} comes to {tp} again, which holds it at {again}")


@holds("stored", "P07")
def only_what_was_sent_is_stored(judge: Judge, tp: Key, names: list[bytes]) -> None:
    """No record is damaged or invented: memory was not reused while it was being written."""
    unknown = next((name for name in names if name not in judge.facts.sent), None)
    if unknown is not None:
        raise breach(only_what_was_sent_is_stored, f"{tp} holds {unknown!r}, which no producer sent")


@holds("produced", "P03")
def memory_is_accounted(judge: Judge, name: str, used: int, total: int) -> None:
    """Memory in use is between 0 and buffer_memory."""
    if not 0 <= used <= total:
        raise breach(memory_is_accounted, f"{name} has {used} of {total} B in use")


@holds("idle", "P07")
def memory_is_returned(judge: Judge, name: str, used: int) -> None:
    """A closed producer has no memory in use."""
    if used != 0:
        raise breach(memory_is_returned, f"{name} is idle and has {used} B in use")


# --- consuming --------------------------------------------------------------------------------------------------------


@holds("consumed", "C04")
def a_record_is_what_the_log_holds(judge: Judge, got: Handed) -> None:
    """Offset and content match; truncated records may be returned until the consumer learns of the truncation."""
    found = judge.facts.stored[got.tp].get(got.offset)
    held = found == got.entry or any(log.get(got.offset) == got.entry for _, log, _ in got.logs)
    if not held:
        raise breach(a_record_is_what_the_log_holds, f"{got.reader} got {got.entry.name!r} at {got.tp} offset {got.offset}, which holds {found!r}")


@holds("consumed", "S07")
def nothing_above_the_high_watermark_is_returned(judge: Judge, got: Handed) -> None:
    """Records that may still be lost are not returned."""
    highest = judge.facts.shown(got.tp, got.entry.epoch)
    if got.offset >= highest:
        raise breach(nothing_above_the_high_watermark_is_returned, f"{got.reader} got {got.entry.name!r} at {got.tp} offset {got.offset}; the high watermark never was above {highest}")


@holds("consumed", "C04")
def no_record_is_skipped_or_repeated(judge: Judge, got: Handed) -> None:
    """Without a seek, offsets are consecutive; after a truncation they continue at the point of divergence."""
    if got.reading.next is None:
        return
    begin = judge.facts.latest_start[got.tp]
    expected = [at or 0 for _, log, at in got.logs if log.get(got.offset) == got.entry]
    # Where retention has overtaken it, what was fetched before may still come, or the policy decides.
    fits = any(got.offset == at or begin > at <= got.offset for at in expected)
    if not fits:
        raise breach(no_record_is_skipped_or_repeated, f"{got.reader} got {got.entry.name!r} at {got.tp} offset {got.offset}; {expected} comes next")


@holds("returned", "C21")
def the_position_is_behind_what_was_returned(judge: Judge, reader: str, tp: Key, position: int) -> None:
    """After a poll, `position()` is behind the last record that it returned; where the log was cut, at the point of
    divergence; where retention has overtaken it, further on."""
    reading = judge.facts.readings[reader, tp]
    places = [at for _, _, at in judge.facts.logs(reading, tp)]
    if None not in places and not any(position == at or judge.facts.led_by_retention(tp, at or 0, position) for at in places):
        raise breach(the_position_is_behind_what_was_returned, f"position() of {reader} is {position} of {tp}; {places} comes next")


@holds("position", "C01")
def a_position_never_goes_back(judge: Judge, reader: str, tp: Key, before: Reading, position: int) -> None:
    """Except after a seek or a truncation. A consumer that has read nothing cannot know the point of divergence; it
    follows auto_offset_reset."""
    if not before.view and before.knows < len(judge.facts.cuts[tp]):
        return
    lowest = min(before.position, *(before.position if at is None else at for _, _, at in judge.facts.logs(before, tp)))
    if position < lowest:
        raise breach(a_position_never_goes_back, f"{reader} stands at {position} of {tp}, and stood at {before.position} before")


@holds("truncated", "C11")
def only_real_truncations_are_reported(judge: Judge, reader: str, error: LogTruncationError) -> None:
    """LogTruncationError names the point of divergence, and is raised only for a consumer that read beyond it."""
    assert error.topic_partition is not None
    tp = (error.topic_partition.topic, error.topic_partition.partition)
    reading = judge.facts.readings[reader, tp]
    if reading.next is None:
        return
    cuts = [at for _, _, at in judge.facts.logs(reading, tp) if at is not None and at < reading.next]
    if error.divergent_offset not in cuts:
        raise breach(only_real_truncations_are_reported, f"{reader} reads {tp} at {reading.next} and gets {error}; what it read differs from newer logs at {cuts}")


@holds("committed", "S08")
def no_commit_is_ahead_of_the_returned_records(judge: Judge, reader: str, tp: Key, committed: int, _epoch: int | None) -> None:
    """Only offsets of returned records are committed."""
    handed = max(judge.facts.readings[reader, tp].handed, judge.facts.latest_start[tp])  # to where retention may have moved it
    if committed > handed:
        raise breach(no_commit_is_ahead_of_the_returned_records, f"{reader} committed {committed} of {tp}, and was handed what is before {handed}")


@holds("committed", "C11")
def a_commit_names_the_epoch_of_the_record_before_it(judge: Judge, reader: str, tp: Key, committed: int, epoch: int | None) -> None:
    """By it a consumer that comes back notices that the log was cut meanwhile."""
    reading = judge.facts.readings[reader, tp]
    before = reading.view.get(committed - 1)
    if before is not None and committed == reading.next and epoch != before.epoch:
        raise breach(a_commit_names_the_epoch_of_the_record_before_it, f"{reader} committed {committed} of {tp} under epoch {epoch}, behind {before}")


@holds("end", "C14")
def every_consumer_has_read_to_the_end(judge: Judge) -> None:
    """After the last fault every consumer reads to the end of every log."""
    for (reader, tp), reading in judge.facts.readings.items():
        end = judge.facts.end(tp)
        if reading.position != end:
            raise breach(every_consumer_has_read_to_the_end, f"{reader} stands at {reading.position} of {tp}, whose log ends at {end}")


@holds("refused", "C10")
def auto_offset_reset_decides_on_lost_positions(judge: Judge, who: str, error: BaseException) -> None:
    """OffsetOutOfRangeError is raised only without auto_offset_reset."""
    lost = isinstance(error, OffsetOutOfRangeError) and judge.facts.resets.get(who, "none") != "none"
    if lost:
        raise breach(auto_offset_reset_decides_on_lost_positions, f"{who} has auto_offset_reset={judge.facts.resets.get(who)} and gets {error!r}")


# --- the cluster and connections --------------------------------------------------------------------------------------


@holds("view", "M02")
def metadata_never_goes_back(judge: Judge, who: str, before: Any, after: Any) -> None:
    """Leader epochs never go back, and no response removes brokers or topics that it does not cover."""
    if not after.nodes and before.nodes:
        raise breach(metadata_never_goes_back, f"{who} knows no broker any more")
    for name, known in before.topics.items():
        now = after.topics.get(name)
        if now is None and name in judge.facts.wanted[who]:
            raise breach(metadata_never_goes_back, f"{who} does not know topic {name} any more")
        if now is None:
            continue
        for old, new in zip(known.partitions, now.partitions, strict=False):
            if new.epoch < old.epoch and now.id == known.id:
                raise breach(metadata_never_goes_back, f"{who} knew epoch {old.epoch} of {name}-{old.number}, and believes {new.epoch} now")


@holds("leaves", "I09")
def a_partition_is_sent_to_one_broker_at_a_time(judge: Judge, who: str, batch: Any, node: int, beside: list[int], _state: str) -> None:
    """A partition's batches in flight go to one broker, and never more of them than that broker remembers."""
    if not set(beside) <= {node}:
        raise breach(a_partition_is_sent_to_one_broker_at_a_time, f"{who} sends {batch!r} to {node} while others are under way to {beside}")
    allowed = judge.facts.in_line[who]
    if len(beside) >= allowed:
        raise breach(a_partition_is_sent_to_one_broker_at_a_time, f"{who} sends {batch!r} beside {len(beside)} others; {allowed} are allowed")


@holds("leaves", "P21")
def a_retried_batch_is_sent_alone(judge: Judge, who: str, batch: Any, _node: int, beside: list[int], state: str) -> None:
    """Only batches that were never sent before are sent beside others, and only to a broker that has stored one."""
    if beside and (batch.stamped or state != "FLOWING"):
        raise breach(a_retried_batch_is_sent_alone, f"{who} sends {batch!r} beside {len(beside)} others; it {'was' if batch.stamped else 'was not'} sent before, and its partition is {state}")


@holds("written", "C14")
def a_partition_is_fetched_once_at_a_time(judge: Judge, link: Link) -> None:
    """No two fetches in flight cover the same partition."""
    fetcher = judge.facts.fetchers.get(link.client)
    wanted = fetcher.in_flight if fetcher is not None else []
    if len(wanted) != len(set(wanted)):
        raise breach(a_partition_is_fetched_once_at_a_time, f"{link.client} fetches twice: {sorted(map(str, wanted))}")


@holds("written", "C13")
def a_failed_partition_is_not_fetched_before_its_rest_is_over(judge: Judge, link: Link) -> None:
    """After an error, a partition is fetched again when its back-off is over, or from another position."""
    rests, now = judge.facts.rests.get(link.client), judge.world.loop.time()
    if not rests:
        return
    fetcher = judge.facts.fetchers[link.client]
    for tp in fetcher.in_flight:
        generation, until = rests.get(tp, (-1, now))
        position = fetcher.positions.get(tp)
        if now < until and position is not None and position.generation == generation:
            raise breach(a_failed_partition_is_not_fetched_before_its_rest_is_over, f"{link.client} fetches {tp} {until - now:.3f} s before the end of its back-off")


@holds("written", "P17")
def pipelines_are_bounded(judge: Judge, link: Link) -> None:
    """max.in.flight.requests.per.connection for Produce, one Fetch per connection, one Metadata per client."""
    waiting = [each.api for each in _unanswered(link)]
    if waiting.count(Api.PRODUCE) > judge.facts.pipelines.get(link.client, 1):
        raise breach(pipelines_are_bounded, f"{link!r} has {waiting.count(Api.PRODUCE)} Produce requests in flight")
    if waiting.count(Api.FETCH) > 1:
        raise breach(pipelines_are_bounded, f"{link!r} has {waiting.count(Api.FETCH)} Fetch requests in flight")
    if waiting.count(Api.METADATA):
        asked = [each for link in judge.world.network.of_client(link.client) for each in _unanswered(link) if each.api is Api.METADATA and not each.given_up]
        if len(asked) > 1:
            raise breach(pipelines_are_bounded, f"{link.client} has {len(asked)} Metadata requests in flight")


def _unanswered(link: Link) -> list[Any]:
    return list(link.client_protocol.requests)  # only the client's connection knows


@holds("written", "M09")
def a_throttled_connection_is_silent(judge: Judge, link: Link) -> None:
    """A throttled client sends nothing on that connection until the throttle time is over."""
    since, until = link.silent
    now = judge.world.loop.time()
    if since + INSTANT_S < now < until:
        raise breach(a_throttled_connection_is_silent, f"{link!r} was asked for silence from {since:.3f} to {until:.3f}, and writes at {now:.3f}")


@holds("view", "M01")
def metadata_is_not_refreshed_needlessly(judge: Judge, who: str, before: Any, after: Any) -> None:
    """After the last fault, metadata is fetched only when it reaches metadata_max_age_ms."""
    facts, now = judge.facts, judge.world.loop.time()
    calm = now - facts.calm_from - RECOVERY_S
    if calm > 0:
        facts.views[who] += 1
        allowed = CALM_REFRESHES + 1.5 * calm / facts.max_age[who]
        if facts.views[who] > allowed:
            raise breach(metadata_is_not_refreshed_needlessly, f"{who} got {facts.views[who]} views of the cluster in {calm:.1f} s in which all was well; its metadata_max_age_ms is {1000 * facts.max_age[who]:.0f}")


# --- effort, and the end ----------------------------------------------------------------------------------------------


@holds("second", "S02")
def no_loop_is_busy(judge: Judge) -> None:
    """Callbacks per virtual second are bounded by its requests and records."""
    facts = judge.facts
    allowed = TURNS_PER_SECOND + TURNS_PER_REQUEST * facts.second.requests + TURNS_PER_RECORD * facts.second.records
    if facts.second.turns > allowed:
        raise breach(no_loop_is_busy, f"{facts.second.turns} callbacks in one second with {facts.second.requests} requests and {facts.second.records} records")


@holds("second", "M01")
def requests_are_bounded(judge: Judge) -> None:
    """No client sends requests at the network's speed, whatever the brokers answer."""
    for name, count in judge.facts.second.by_client.items():
        if count > REQUESTS_PER_SECOND + judge.facts.second.records:
            raise breach(requests_are_bounded, f"{name} made {count} requests in one second")
    for name, count in judge.facts.second.control.items():
        if count > CONTROL_PER_SECOND:
            raise breach(requests_are_bounded, f"{name} asked for the cluster's state {count} times in one second")


@holds("second", "M05")
def connects_are_bounded(judge: Judge) -> None:
    """Reconnecting backs off."""
    count, clients = judge.facts.second.connects, max(1, len(judge.world.clients))
    if count > CONNECTS_PER_SECOND * clients:
        raise breach(connects_are_bounded, f"{count} connections were tried in one second")


@holds("turn", "S03")
def no_error_is_hidden(judge: Judge) -> None:
    """No exception is left to the loop, no error is logged, and the model has no defect."""
    for context in judge.world.loop.defects:
        raise InvariantError("S03 no_error_is_hidden", f"{context.get('message')}: {context.get('exception')!r}")
    for line in judge.facts.errors:
        raise InvariantError("S03 no_error_is_hidden", line)


@holds("closed", "S04")
def nothing_is_left_after_close(judge: Judge, left: Mapping[str, list[str]]) -> None:
    """After every client was closed, no task, connection or timer is left."""
    for what, items in left.items():
        if items:
            raise breach(nothing_is_left_after_close, f"{what} left after close: {', '.join(items[:5])}")


@holds("refused", "S05")
def only_kafka_errors_are_raised(judge: Judge, who: str, error: BaseException) -> None:
    """Whatever a broker or the network does, users get a KafkaError, and not IllegalTransitionError."""
    if not isinstance(error, KafkaError) or isinstance(error, IllegalTransitionError):
        raise breach(only_kafka_errors_are_raised, f"{who} was raised {error!r}")


RULES_OF_ALL: Final = tuple(INVARIANTS.values())
"""The invariants of this module: every family has them."""
