"""Deliberate bugs of producers: order, sequences, outcomes, deadlines and memory."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final


from pyclient.core.sending.produce_outcome import GiveUp, Split, Stored, TryAgain
from tests.simulation.mutation import Museum, Target, Without, nothing, returns

MUSEUM: Final = Museum()
bug = MUSEUM.bug
QUEUES: Final = "pyclient.core.sending.leader_queues:LeaderQueues"
SENDER: Final = "pyclient.core.sending.sender:Sender"
SEQUENCE: Final = "pyclient.core.sending.sequencing:PartitionSequence"
JUDGE: Final = "pyclient.core.sending.produce_outcome:produce_outcome"

# --- order and sequences ---------------------------------------------------------------------------------------------

bug("produce", "any number of batches of a partition is in flight at once", "aiokafka: reordering on retry", f"{SEQUENCE}.has_room")(returns(True))
bug("produce", "a later batch overtakes one that is sent again", "aiokafka: reordering on retry", f"{SEQUENCE}.may_send")(returns(True))
bug("produce", "records leave without a producer id", "I11", f"{SENDER}._has_id")(returns(True))


@bug("produce", "several batches leave before the broker has stored the first", "Java 15591: the first write is lost unseen", f"{SEQUENCE}.has_room")
def _(original: Target) -> Target:
    return lambda self, to: original(self, to) or (self.stamps and to == self.leader and len(self.in_flight) < self.limit)


@bug("produce", "each attempt has a sequence of its own", "P16: duplicates", f"{SEQUENCE}.sent")
def _(original: Target) -> Target:
    def sent(self: Any, batch: Any, *rest: Any) -> None:
        if batch.stamped:
            batch.stamp(self.producer_id, self.epoch, self.next_sequence)
            self.next_sequence += batch.count
        original(self, batch, *rest)
    return sent


@bug("produce", "sequences count batches instead of records", "I01", f"{SEQUENCE}.sent")
def _(original: Target) -> Target:
    def sent(self: Any, batch: Any, *rest: Any) -> None:
        before = self.next_sequence
        original(self, batch, *rest)
        self.next_sequence = min(self.next_sequence, before + 1)
    return sent


@bug("produce", "a gap in the sequences ends the batch", "aiokafka: no recovery from gaps", f"{SEQUENCE}.interpret")
def _(_original: Target) -> Target:
    return lambda self, batch, verdict, **_: verdict


@bug("produce", "a new epoch goes on with the old sequences", "I06: KIP-360", f"{SEQUENCE}._begin")
def _(original: Target) -> Target:
    def begin(self: Any, *rest: Any) -> None:
        before = self.next_sequence
        original(self, *rest)
        self.next_sequence = before
    return begin


@bug("produce", "waiting batches keep the stamps of the epoch before", "I06: KIP-360", f"{SEQUENCE}.prepare")
def _(original: Target) -> Target:
    return lambda self, now, to, producer_id, _unstamp: original(self, now, to, producer_id, lambda: None)


@bug("produce", "the halves of a split batch change places", "Java 8350: splits", "pyclient.buffers.batch_split:halves")
def _(original: Target) -> Target:
    return lambda *arguments: original(*arguments)[::-1]


# --- outcomes --------------------------------------------------------------------------------------------------------


@bug("produce", "a lost response counts as success", "franz-go: success reported on UNKNOWN_SERVER_ERROR", "pyclient.core.sending.produce_request:ProduceRequest._outcomes")
def _(original: Target) -> Target:
    def verdicts(*arguments: Any) -> Iterator[tuple[Any, Any]]:
        for batch, verdict in original(*arguments):
            yield batch, Stored(0) if isinstance(verdict, TryAgain) and verdict.in_doubt and verdict.moved else verdict
    return verdicts


@bug("produce", "every error of a partition counts as success", "franz-go: success reported on UNKNOWN_SERVER_ERROR", JUDGE)
def _(_original: Target) -> Target:
    return lambda _tp, answer: Stored(answer.base_offset)


@bug("produce", "an acknowledgement has another offset", "P25", JUDGE)
def _(original: Target) -> Target:
    def classify(*arguments: Any) -> Any:
        verdict = original(*arguments)
        return Stored(verdict.base_offset + 1, verdict.append_time) if isinstance(verdict, Stored) else verdict
    return classify


@bug("produce", "a retriable error is given up", "franz-go: stale metadata fails records", JUDGE)
def _(original: Target) -> Target:
    def classify(*arguments: Any) -> Any:
        verdict = original(*arguments)
        return GiveUp(verdict.error, verdict.in_doubt) if isinstance(verdict, TryAgain) else verdict
    return classify


@bug("produce", "a batch that is too large fails", "P20: no split", JUDGE)
def _(original: Target) -> Target:
    def classify(*arguments: Any) -> Any:
        verdict = original(*arguments)
        return GiveUp(verdict.error) if isinstance(verdict, Split) else verdict
    return classify


bug("produce", "a failed delivery is never reported", "Java: a delivery that never completes", f"{SENDER}._fail")(nothing)

# --- deadlines, memory, progress -------------------------------------------------------------------------------------

bug("produce", "overdue batches wait for ever", "aiokafka: idempotent batches never expire", f"{SENDER}._expire")(nothing)
bug("produce", "a failed batch is not sent again after its back-off", "Java 20780: stuck", f"{QUEUES}._end_pauses")(nothing)
bug("produce", "a completed request starts no other batch", "Java 20780: stuck", f"{QUEUES}.place")(nothing)


@bug("produce", "batches stay in the queue of the old leader", "Java: stale leader", f"{QUEUES}._follow_leaders")
def _(original: Target) -> Target:
    def follow_leaders(self: Any, *rest: Any) -> None:
        if not self._view:
            original(self, *rest)
    return follow_leaders


@bug("produce", "a failed batch is sent again without a back-off", "Java 20253: busy loops", f"{QUEUES}.pause")
def _(original: Target) -> Target:
    return lambda self, queue, _until: original(self, queue, 0.0)


@bug("produce", "memory of a completed batch is never released", "a leak", f"{SENDER}._settle")
def _(original: Target) -> Target:
    def settle(self: Any, *rest: Any) -> None:
        accumulator = self._accumulator
        self._accumulator = Without(accumulator, "release")
        try:
            original(self, *rest)
        finally:
            self._accumulator = accumulator
    return settle


@bug("produce", "the loop does not notice that a worker has sealed a batch", "Java 20780: stuck", "pyclient.producer.sealing:BatchSealer._seal_or_fail")
def _(_original: Target) -> Target:
    return lambda self, batch: self._accumulator.seal(batch)
