"""The deliberate bugs that the simulation must find: every row of every state table, every named guard, and the bug museum's."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyclient.testing.simulation.families import FAMILIES
from pyclient.testing.simulation.sweep import NOT_TAKEN, RARE, rows
from tests.simulation.mutants_of_groups import BUGS_OF_GROUPS
from tests.simulation.mutants_of_logins import BUGS_OF_LOGINS
from tests.simulation.mutation import DroppedRow, Edit, Mutant

SENDER: Final = "pyclient.core.sending.sender:Sender"
LANE: Final = "pyclient.core.sending.sequencing:PartitionSequence"
VERDICTS: Final = "pyclient.core.sending.produce_outcome"
METADATA: Final = "pyclient.core.metadata:Metadata"
CLUSTER: Final = "pyclient.core.cluster"
FETCHER: Final = "pyclient.core.fetching.fetcher:Fetcher"
SOURCES: Final = "pyclient.core.fetching.sources:Sources"
SESSION: Final = "pyclient.core.fetching.sessions:Session"
LOOKUPS: Final = "pyclient.core.fetching.lookups:OffsetLookups"
CONNECTION: Final = "pyclient.net.connection:Connection"
LINKS: Final = "pyclient.net.pool:ConnectionPool"
DRIVER: Final = "pyclient.client.driver:Driver"
PRODUCER: Final = "pyclient.producer.core:ProducerCore"
RECONNECTS: Final = "pyclient.core.connection:Reconnects"


def _bug(area: str, name: str, source: str, target: str, old: str, new: str, survives: str = "") -> Mutant:
    return Mutant(name, area, source, (Edit(target, old, new),), survives)


BUGS: Final = (
    # --- produce: orders, outcomes, time and memory
    _bug("produce", "the next batch leaves while one is under way", "aiokafka: reordering on retry", f"{LANE}.has_room",
         "if not self.under_way:", "if True:"),
    Mutant("a failed batch makes room for the next one before its pause is over", "produce", "Java 20253: busy loops", (
        Edit(f"{SENDER}._place", "if queue in self._resting:", "if False:"),
        Edit(f"{SENDER}._sendable", "queue in self._resting or", ""))),
    _bug("produce", "a queue in which somebody still seals a batch is let go of, and nobody is to tell", "a lost wake-up", f"{SENDER}._sendable",
         "if not self._accumulator.watch(queue):", "if True:"),
    _bug("produce", "what came while a batch was under way is not looked at when its answer comes", "a lost wake-up", f"{SENDER}._ended",
         " or self._accumulator.watch(batch.queue)", ""),
    _bug("produce", "what is behind a batch that leaves waits for its answer", "Java 20780: stuck", f"{SENDER}._drain",
         "if self._start(batch, node, now):", "if self._start(batch, node, now) and False:", "it leaves with the answer: the unit tests see how much leaves at once"),
    _bug("produce", "a lost answer counts as stored", "franz-go: success reported on UNKNOWN_SERVER_ERROR", f"{SENDER}._verdicts",
         "case Unknown(cause) if cause.retriable:\n                yield batch, TryAgain(cause, moved=True, in_doubt=True)",
         "case Unknown(cause) if cause.retriable:\n                yield batch, Stored(0)"),
    _bug("produce", "every error of a partition counts as stored", "franz-go: success reported on UNKNOWN_SERVER_ERROR", f"{VERDICTS}:judge",
         "if not answer.error_code:", "if answer.error_code >= 0:"),
    _bug("produce", "a partition left out of the answer counts as stored", "Java: entries missing from an answer", f"{SENDER}._verdicts",
         "case Reply() if where in answers:", "case Reply() if True:", "a broker's answer leaves no partition out"),
    _bug("produce", "the batch's memory goes back when it is overdue, though it is being sent", "Java 19012: buffer reused while in flight",
         f"{SENDER}._expire", "self._accumulator.drop(batch)",
         "overdue = batch.state is BatchState.IN_FLIGHT; self._accumulator.drop(batch); overdue and self._accumulator.release(batch)"),
    _bug("produce", "memory of an overdue batch in flight is never given back", "Java 19012 the other way round: a leak", f"{SENDER}._settle",
         "self._own_reasons(batch, verdict))\n            self._accumulator.release(batch)",
         "self._own_reasons(batch, verdict))\n            overdue or self._accumulator.release(batch)"),
    _bug("produce", "memory of a stored batch is never given back", "a leak", f"{SENDER}._settle",
         "batch.result.complete(base_offset, stamped)\n            self._accumulator.release(batch)", "batch.result.complete(base_offset, stamped)"),
    _bug("produce", "overdue batches wait for ever", "aiokafka: idempotent batches never expire", f"{SENDER}._expire",
         "if now < batch.created + self._limits.delivery_timeout:", "if True:"),
    _bug("produce", "batches expire an instant too early", "P18", f"{SENDER}._expire",
         "batch.created + self._limits.delivery_timeout", "batch.created + 0.5 * self._limits.delivery_timeout",
         "a delivery may fail at any time before its limit: too early is a matter of degree, tested by the unit tests"),
    _bug("produce", "a retriable error is given up", "franz-go: stale metadata fails records", f"{VERDICTS}:judge",
         "if error.retriable:", "if False:"),
    _bug("produce", "a batch that fails for good is never told", "Java: a delivery that never completes", f"{SENDER}._settle",
         "self._fail(batch, self._failure(batch, error), self._own_reasons(batch, verdict))", "pass"),
    _bug("produce", "the acknowledgement tells another offset", "P25", f"{VERDICTS}:judge",
         "Stored(answer.base_offset, append_time(answer))", "Stored(answer.base_offset + 1, append_time(answer))"),
    _bug("produce", "after a failure the batch is sent again without a pause", "Java 20253: busy loops", f"{SENDER}._rest",
         "now + self._backoff.after(batch.attempts, error)", "now"),
    _bug("produce", "a queue without leader is forgotten", "franz-go: no usable partition during a restart", f"{SENDER}._place",
         "self._leaderless[queue] = None", "pass"),
    _bug("produce", "queues stay with the old leader", "Java: stale leader", f"{SENDER}._follow_leaders",
         "if self._view == self._metadata.cluster.version:", "if self._view:"),
    _bug("produce", "a failed leader is not looked up anew", "M01", f"{SENDER}._rest", "if moved:", "if False:"),
    # --- produce: sequences
    _bug("produce", "batches of a lane that has proved nothing leave together", "Java 15591: the first write is lost unseen", f"{LANE}.has_room",
         "self.state is SequenceState.FLOWING", "True"),
    _bug("produce", "batches are under way to two leaders at once", "franz-go: two sinks", f"{LANE}.has_room", "to == self.leader", "True"),
    _bug("produce", "a leader in another epoch counts as the same", "I09: state that a broker lost", f"{SENDER}._leader",
         "self._leader_epoch(queue)", "-1", "a leader that lost its state comes back under another node here; the unit tests let it keep its number"),
    _bug("produce", "a broker remembers a silent producer for ever", "I09: producer.id.expiration.ms", f"{LANE}._follow",
         "before != to or idle > REMEMBERED", "before != to", "brokers of the simulation forget nobody within a run; the unit tests let one"),
    _bug("produce", "a batch that comes back is overtaken by later ones", "aiokafka: reordering on retry", f"{LANE}.may_send",
         "not self.under_way or not batch.stamped", "True"),
    _bug("produce", "every attempt has a sequence of its own", "P16: duplicates", f"{LANE}.sent", "if self.stamps and not batch.stamped:", "if self.stamps:"),
    _bug("produce", "sequences count batches, not records", "I01", f"{LANE}.sent", "self.next_sequence + batch.count", "self.next_sequence + 1"),
    _bug("produce", "a sequence that the broker lacks ends the batch", "aiokafka: no recovery from gaps", f"{LANE}.judged",
         "case OutOfOrderSequenceError() | UnknownProducerIdError() as error:", "case UnknownProducerIdError() as error:"),
    _bug("produce", "a later batch out of order begins a new epoch", "librdkafka 4953: duplicates after a bump", f"{LANE}.judged",
         "case OutOfOrderSequenceError() as error if not first:", "case OutOfOrderSequenceError() as error if False:",
         "an epoch that nobody needs: what waits is stored nowhere then, and comes under the new one; the unit tests count epochs"),
    _bug("produce", "a new epoch goes on with the old sequences", "I06: KIP-360", f"{LANE}._begin", "self.epoch + 1, 0", "self.epoch + 1, self.next_sequence"),
    _bug("produce", "what waits keeps the stamps of the epoch before", "I06: KIP-360", f"{LANE}.prepare", "unstamp()", "pass"),
    _bug("produce", "a batch that expired in doubt has used no sequence", "P19: Java's unresolved sequences", f"{SENDER}._forgo", "if batch.in_doubt:", "if False:"),
    _bug("produce", "records leave without a producer id", "I11", f"{SENDER}._has_id", "self._ids is None or self._ids.current is not None", "True"),
    _bug("produce", "a producer id that was not given is never asked for again", "I12", "pyclient.core.sending.producer_ids:ProducerIds._told",
         "self._call = None", "pass", "while the simulation's brokers live they all give ids: what fails is tried again within the same call"),
    _bug("produce", "a batch that is too large fails", "P20: no split", f"{VERDICTS}:judge", "return Split(error)", "return GiveUp(error)"),
    _bug("produce", "halves of a batch change places", "Java 8350: splits", "pyclient.buffers.batch_split:halves",
         "(records[:at], records[at:])", "(records[at:], records[:at])"),
    _bug("produce", "an answer never leaves anything to do for other batches", "Java 20780: stuck", f"{SENDER}._ended",
         "return quiet and not any(self._by_leader.values())", "return quiet"),
    _bug("produce", "an answer never leaves anything to do", "Java 20780: stuck", f"{SENDER}._ended",
         "return quiet and not any(self._by_leader.values())", "return True"),
    _bug("produce", "the loop is not told of what a worker has sealed", "Java 20780: stuck", f"{PRODUCER}._seal_or_fail",
         "self.accumulator.on_ready()", "pass"),
    # --- fetch
    _bug("fetch", "an answer from before a seek is taken", "franz-go: a seek undone by a late answer", f"{FETCHER}._read",
         "(position.generation, position.offset) != (wish.generation, wish.offset)", "False"),
    _bug("fetch", "the position does not move over what was fetched", "Java 15529: position and consumed", f"{FETCHER}._buffer_up",
         "position.read(batches, batches[-1].next_offset)", "pass"),
    _bug("fetch", "the position moves one too far", "Java 15529: position and consumed", f"{FETCHER}._buffer_up",
         "batches[-1].next_offset", "batches[-1].next_offset + 1"),
    _bug("fetch", "batches before the position are handed out again", "C04", f"{FETCHER}._on_data",
         "if batch.next_offset > position.offset", "if True", "a broker never sends a batch that ends before the position"),
    _bug("fetch", "a partition with an error is never asked for again", "franz-go: stuck partitions", f"{FETCHER}._wake",
         "del self._resting[where]", "continue"),
    _bug("fetch", "errors are retried at the network's speed", "Java 20426: busy loops", f"{FETCHER}._pause_after_failure",
         "self._resting[position.where] = now + self._backoff.after(position.failures)", "pass"),
    _bug("fetch", "a drained partition is not asked for again", "Java 20780: stuck poll", f"{FETCHER}.poll",
         "for where in (*drained, ", "for where in ("),
    _bug("fetch", "what waits for the answer of its old leader is never asked for", "Java 20780: stuck poll", f"{FETCHER}._ended",
         "self._place(where)", "pass"),
    _bug("fetch", "fetches stay with the old leader", "C12", f"{FETCHER}._follow_leaders",
         "if self._view == self._metadata.cluster.version:", "if self._view:"),
    _bug("fetch", "a position that the log lost is kept", "C10", f"{FETCHER}._on_error",
         "if isinstance(error, OffsetOutOfRangeError):", "if False:"),
    _bug("fetch", "no fetch names an epoch", "C11: KIP-320", f"{FETCHER}._wish", "known.epoch, position.epoch,", "known.epoch, -1,"),
    _bug("fetch", "a log that was cut back is read on", "C11: KIP-320", f"{FETCHER}._on_data", "if diverging is not None and", "if False and"),
    _bug("fetch", "a session is not told that a partition is wanted from another offset", "C07: KIP-227", f"{SESSION}._news",
         "elif new != self.partitions.get(where):", "elif where not in self.partitions:"),
    _bug("fetch", "a session goes on after an answer that was lost", "C07: KIP-227", f"{SESSION}.renew", "self.epoch = FULL", "pass"),
    _bug("fetch", "what is not to be read any more stays in the session", "C07: KIP-227", f"{SESSION}.leave", "self._left[where] = None", "pass"),
    _bug("fetch", "a partition that is wanted again is forgotten", "C07: KIP-227", f"{SESSION}.want", "self._left.pop(where, None)", "pass"),
    _bug("fetch", "a session that the broker has forgotten is asked for again and again", "C07: KIP-227", f"{SESSION}.refused",
         "self._forget()", "pass"),
    _bug("fetch", "what a broker is to drop is not told it", "C07: KIP-227", f"{SESSION}.next",
         "forgotten = {where: self._drop(where) for where in self._left}", "forgotten = {where: self._drop(where) for where in self._left} and {}",
         "it tells of what was not asked for then, and a new session begins: the unit tests see what is told"),
    _bug("fetch", "every request of a session is its first", "C07: KIP-227", f"{SESSION}.answered", "self.epoch = following(self.epoch)", "pass",
         "a broker that is asked in the wrong epoch says so, and a new session begins: the unit tests see the epochs"),
    _bug("fetch", "an offset out of a follower's range is reset", "C09: aiokafka resets it", f"{FETCHER}._on_error",
         "node != self._metadata.cluster.leader(position.where)", "False",
         "leaders here name only replicas that hold the offset, as real ones do: the unit tests let followers refuse it"),
    # --- metadata
    _bug("metadata", "an older leader epoch is believed", "M02: a stale broker's answer", f"{CLUSTER}:_newer",
         "before if before is not None and stale else told", "told"),
    _bug("metadata", "a hint of an older leader is believed", "C12: an old hint", f"{CLUSTER}:Cluster.moved",
         "epoch <= known.epoch or ", "", "the model's brokers hint at the newest leader only"),
    _bug("metadata", "asks again at the network's speed", "Java 20854: busy loops", f"{METADATA}._due",
         "now >= self._not_before and (self._asked or now >= self._refresh_at)", "self._asked or now >= self._refresh_at"),
    _bug("metadata", "a failed request is the last one", "franz-go: metadata that stops", f"{METADATA}._answered",
         "self._in_flight = False", "self._in_flight = not isinstance(outcome, Reply)"),
    _bug("metadata", "an update asked for during a request is forgotten", "M01", f"{METADATA}._adopt",
         "self._asked = self._asked or unfinished", "self._asked = unfinished",
         "what an old answer misleads to fails once more, and asks again: no more than a round trip is lost; the unit tests count requests"),
    _bug("metadata", "a topic without a leader is not asked for again", "M01: LEADER_NOT_AVAILABLE", f"{METADATA}._unfinished",
         "return any(part.leader is None for part in topic.partitions)", "return False",
         "whoever has something for such a partition asks after every answer by itself; the unit tests look at what is asked for"),
    _bug("metadata", "a new topic is never asked for", "M01", f"{METADATA}.want", "self._fresh.add(topic)", "pass"),
    _bug("metadata", "the view is replaced by the answer about one topic", "M01: partial updates", f"{CLUSTER}:Cluster.updated",
         "if not everything or name in but}", "if False}"),
    _bug("metadata", "a bad answer without brokers is believed", "M03: a broker that is still starting", f"{METADATA}._answered",
         "case Reply(message=message) if message.brokers:", "case Reply(message=message):"),
    # --- connection
    _bug("connection", "an overdue answer does not end the connection", "half-open connections", f"{CONNECTION}.expire",
         "now >= each.deadline", "False"),
    _bug("connection", "requests in flight are forgotten when the connection breaks", "aiokafka: futures that never end", f"{CONNECTION}._lost",
         "each.done(now, Unknown(cause))", "pass"),
    _bug("connection", "answers are taken without looking at their number", "M10", f"{CONNECTION}._on_frame",
         "if correlation_id != expected.correlation_id:", "if False:", "brokers answer in order; the unit tests send an answer out of order"),
    _bug("connection", "a frame in two pieces is read as two", "M10", f"{CONNECTION}._take",
         "if self._filled == len(self._frame):", "if self._filled:"),
    _bug("connection", "a throttled client goes on", "M09: KIP-219", f"{CONNECTION}._throttle", "if not throttle:", "if True:"),
    _bug("connection", "reconnecting does not back off", "Java: connection storms", f"{RECONNECTS}.failed",
         "now + self._backoff.after(self.failures)", "now"),
    _bug("connection", "a failed node is never tried again", "franz-go: no usable node", f"{RECONNECTS}.allowed",
         "now >= self.not_before", "self.failures == 0"),
    _bug("connection", "an idle connection is closed with requests in flight", "M13", f"{LINKS}.tick",
         "not link.in_flight and now >= link.idle_since + self._options.max_idle", "now >= link.idle_since + self._options.max_idle",
         "a retired connection still takes its answers: nothing is lost by it"),
    _bug("connection", "the loop does not sleep to the next deadline", "Java 20780: stuck", f"{DRIVER}._wake_by",
         "if self._loop is None or (self._timer_at is not None and self._timer_at <= deadline):", "if True:"),
    _bug("connection", "an earlier deadline waits for the timer that is set", "Java 20780: stuck", f"{DRIVER}._wake_by",
         "self._timer_at is not None and self._timer_at <= deadline", "self._timer_at is not None"),
    _bug("connection", "what happens during a turn waits for the next one", "Java 20780: stuck", f"{DRIVER}._poll_managers", "if not self._again:", "if True:",
         "inside a turn only requests that cannot be written happen, and who asks for slots first emits none; the unit tests emit some"),
    _bug("connection", "nothing is ever overdue", "half-open connections", f"{LINKS}.tick", "if self._due is None or now < self._due:", "if True:"),
    _bug("connection", "the loop never sleeps", "Java 20253: busy loops", f"{DRIVER}._wake_by",
         "self._loop.time() + max(0.0, deadline - self._clock())", "self._loop.time()"),
)

GUARDS: Final = (
    _bug("guard", "Connection.ready inverted in its state", "guard", f"{CONNECTION}.send", "if request.answered:", "if not request.answered:"),
    _bug("guard", "ConnectionPool._free ignores what is in flight", "guard", f"{LINKS}._free",
         "self._options.max_in_flight.get(use, 1) - link.in_flight", "self._options.max_in_flight.get(use, 1)"),
    _bug("guard", "ConnectionPool._free inverted", "guard", f"{LINKS}._free", "not link.ready", "link.ready"),
    _bug("guard", "ConnectionPool._usable inverted", "guard", f"{LINKS}._usable",
         "bool(host.links or host.tasks) or host.reconnects.allowed(self._clock())",
         "not (bool(host.links or host.tasks) or host.reconnects.allowed(self._clock()))"),
    _bug("guard", "Reconnects.allowed inverted", "guard", f"{RECONNECTS}.allowed", "now >= self.not_before", "now < self.not_before"),
    _bug("guard", "Fetcher._fetchable inverted", "guard", f"{FETCHER}._fetchable", "return (position.known and", "return not (position.known and"),
    _bug("guard", "Sources.put forgets what is under way", "guard", f"{SOURCES}.put",
         "if old in self._under_way and where in self._sessions[old].partitions:", "if False:"),
    _bug("guard", "Fetcher._is_current inverted", "guard", f"{FETCHER}._is_current", "is position", "is not position"),
    _bug("guard", "Metadata._due inverted", "guard", f"{METADATA}._due",
         "return bool(self._fresh) or self._all_unasked or (now >= self._not_before and (self._asked or now >= self._refresh_at))",
         "return not (bool(self._fresh) or (now >= self._not_before and (self._asked or now >= self._refresh_at)))"),
    _bug("guard", "Metadata._unfinished inverted", "guard", f"{METADATA}._unfinished", "part.leader is None", "part.leader is not None"),
    _bug("guard", "one metadata request at a time: not", "guard", f"{METADATA}.poll", "if self._in_flight:", "if False:"),
    _bug("guard", "Sender sends what is not sealed", "guard", f"{SENDER}._sendable",
         "if batch is not None and batch.state is BatchState.SEALED:", "if batch is not None:"),
    _bug("guard", "Sender wakes queues before their pause is over", "guard", f"{SENDER}._wake_rested", "now >= rest.until", "now < rest.until"),
)


def dropped_rows() -> Iterator[Mutant]:
    """Each row of each state table, dropped; those that nothing takes yet cannot be missed."""
    for family in FAMILIES.values():
        for table, state, event in rows(family):
            yield Mutant(f"{table} without {state} + {event}", "table", "state tables", (DroppedRow(table, state, event),),
                         {**NOT_TAKEN, **RARE}.get((table, state, event), ""), family.name)


def everything() -> list[Mutant]:
    """All mutants, by name."""
    return [*BUGS, *GUARDS, *BUGS_OF_GROUPS, *BUGS_OF_LOGINS, *dropped_rows()]
