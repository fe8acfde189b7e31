"""Producer ids, epochs and sequences: each record once and in order for all answers (P15 to P21, I01 to I12)."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.delivery import Delivery
from pyclient.codec.apis import Api
from pyclient.codec.batches import read_batches
from pyclient.core.manager import Use
from pyclient.core.sending.sequencing import LAST_EPOCH, PRODUCER_EXPIRATION, SEQUENCES, SequenceState
from pyclient.errors import ClusterAuthorizationError, DeliveryTimeoutError, InvalidRecordError, KafkaError, NotEnoughReplicasError, RecordTooLargeError
from pyclient.testing.fake.model.batch import Batch as Stored
from pyclient.testing.fake.model.producers import Producers
from pyclient.testing.fake.model.refusal import RefusalError
from tests.unit.core.test_sender import DELIVERY_TIMEOUT, Producing, body, partitions, produced
from tests.unit.core.world import Sent, topic_id

TOO_LARGE, NOT_ENOUGH_REPLICAS, CLUSTER_AUTHORIZATION, OUT_OF_ORDER, DUPLICATE, BAD_EPOCH, UNKNOWN_ID, INVALID_RECORD = 10, 19, 31, 45, 46, 47, 59, 87
NOT_LEADER, LOADING = 6, 14


class Idempotent(Producing):
    """A producer with ids 1000, 1001 …; each node accepts five requests in flight."""

    def __init__(self, *leaders: int, **options: Any) -> None:
        super().__init__(*(leaders or (1,)), idempotent=True, batch_size=200, **options)
        self.world.capacity[Use.PRODUCE] = 5
        self.next_id = 1000
        self.asked: list[Sent] = []

    def turn(self) -> list[Sent]:
        """One turn of the driver; requests for producer ids are answered at once."""
        sent = self.turn_without_id()
        while self.asked:
            self.asked.pop().reply(producer_id=self.next_id, producer_epoch=0)
            self.next_id += 1
            sent += self.turn_without_id()
        return sent

    def turn_without_id(self) -> list[Sent]:
        self.clock.now = self.world.now
        sent = self.world.turn(self.sender, self.calls)
        self.asked += [each for each in sent if each.api is Api.INIT_PRODUCER_ID]
        produced = [each for each in sent if each.api is Api.PRODUCE]
        STAMPS.update({each: _stamps(each) for each in produced})
        return produced

    def batch(self, partition: int = 0) -> Delivery:
        """A record that fills a batch of its own."""
        return self.send(partition, b"x" * 150)

    def flowing(self) -> None:
        """The leader has stored a batch: from here on several may be in flight."""
        delivery = self.batch()
        (sent,) = self.turn()
        produced(sent)
        assert delivery.exception(0) is None


STAMPS: dict[Sent, list[tuple[int, int, int]]] = {}


def stamps(sent: Sent) -> list[tuple[int, int, int]]:
    """Producer id, epoch and first sequence of each batch of a request."""
    return STAMPS[sent]


def _stamps(sent: Sent) -> list[tuple[int, int, int]]:
    return [(batch.producer_id, batch.producer_epoch, batch.base_sequence)
            for topic in body(sent).topic_data for part in topic.partition_data for batch in read_batches(part.records)]


# --- producer ids ----------------------------------------------------------------------------------------------------


def test_I11_nothing_leaves_before_there_is_a_producer_id() -> None:
    world = Idempotent()
    world.batch()
    assert world.turn_without_id() == []
    (asked,) = world.asked
    assert asked.body.transactional_id is None
    asked.reply(producer_id=7, producer_epoch=0)
    world.asked.clear()
    (sent,) = world.turn()
    assert stamps(sent) == [(7, 0, 0)]


def test_I12_a_retriable_refusal_of_an_id_is_retried_and_a_fatal_one_fails_only_the_waiting_batches() -> None:
    world = Idempotent()
    first = world.batch()
    world.turn_without_id()
    world.asked.pop().reply(producer_id=-1, producer_epoch=-1, error_code=LOADING)
    assert world.turn_without_id() == []
    assert not world.asked, "not at once"
    world.world.after(2.0)
    world.turn_without_id()
    world.asked.pop().reply(producer_id=-1, producer_epoch=-1, error_code=CLUSTER_AUTHORIZATION)
    assert isinstance(first.exception(0), ClusterAuthorizationError)
    world.turn_without_id()
    assert not world.asked, "nothing waits for one any more"
    second = world.batch()
    (sent,) = world.turn()
    produced(sent)
    assert second.exception(0) is None


def test_I12_without_an_id_a_record_expires_and_the_error_says_why() -> None:
    world = Idempotent()
    delivery = world.batch()
    world.turn_without_id()
    world.asked.pop().reply(producer_id=-1, producer_epoch=-1, error_code=LOADING)
    world.world.after(DELIVERY_TIMEOUT)
    world.turn_without_id()
    error = delivery.exception(0)
    assert isinstance(error, DeliveryTimeoutError)
    assert "producer id" in str(error)


# --- sequences -------------------------------------------------------------------------------------------------------


def test_I09_one_batch_is_in_flight_until_the_leader_has_stored_one_then_five() -> None:
    world = Idempotent()
    for _ in range(8):
        world.batch()
    (first,) = world.turn()
    produced(first)
    sent = world.turn()
    assert [stamps(each) for each in [first, *sent]] == [[(1000, 0, number)] for number in range(6)]
    assert world.turn() == []
    produced(sent[0])
    assert [stamps(each) for each in world.turn()] == [[(1000, 0, 6)]]


def test_I09_a_new_leader_gets_one_batch_at_a_time_after_the_old_leaders_requests_ended() -> None:
    world = Idempotent()
    world.flowing()
    world.batch()
    (in_flight,) = world.turn()
    world.batch()
    world.batch()
    world.leaders(2)
    assert world.turn() == []
    produced(in_flight)
    (sent,) = world.turn()
    assert (sent.node, stamps(sent)) == (2, [(1000, 0, 2)])
    produced(sent)
    assert len(world.turn()) == 1


def test_I01_after_the_last_sequence_comes_0() -> None:
    world = Idempotent()
    world.flowing()
    (sequence,) = world.sequences()
    sequence.next_sequence = SEQUENCES - 2
    world.send(count=4)
    (sent,) = world.turn()
    produced(sent)
    world.batch()
    (following,) = world.turn()
    assert stamps(sent) + stamps(following) == [(1000, 0, SEQUENCES - 2), (1000, 0, 2)]


def test_P16_a_batch_keeps_its_stamp_through_all_attempts() -> None:
    world = Idempotent()
    delivery = world.batch()
    (sent,) = world.turn()
    stamp = stamps(sent)
    sent.is_lost()
    (again,) = world.after(2.0)
    produced(again, {0: NOT_LEADER})
    (third,) = world.after(4.0)
    assert stamp == stamps(again) == stamps(third)
    produced(third)
    assert delivery.exception(0) is None


def test_P21_failed_batches_are_retried_one_by_one_in_the_order_of_their_sequences() -> None:
    world = Idempotent()
    world.flowing()
    deliveries = [world.batch() for _ in range(3)]
    sent = world.turn()
    for each in reversed(sent):
        each.is_lost()
    found: list[tuple[int, int, int]] = []
    for _ in range(3):
        (again,) = world.after(2.0) if not found else world.turn()
        found += stamps(again)
        produced(again)
    assert found == [(1000, 0, 1), (1000, 0, 2), (1000, 0, 3)]
    assert [each.exception(0) for each in deliveries] == [None] * 3


def test_P17_a_batch_to_retry_waits_while_later_ones_are_in_flight() -> None:
    world = Idempotent()
    world.flowing()
    world.batch()
    world.batch()
    first, second = world.turn()
    produced(first, {0: NOT_ENOUGH_REPLICAS})
    assert world.after(2.0) == []
    produced(second, {0: OUT_OF_ORDER})
    (again,) = world.after(2.0)
    assert stamps(again) == [(1000, 0, 1)]


def test_I03_DUPLICATE_SEQUENCE_counts_as_stored_at_an_unknown_offset() -> None:
    world = Idempotent()
    delivery = world.batch()
    (sent,) = world.turn()
    produced(sent, {0: DUPLICATE})
    assert delivery.result(0).offset is None


def test_I03_a_base_offset_that_is_none_counts_as_stored_at_an_unknown_offset(caplog: pytest.LogCaptureFixture) -> None:
    world = Idempotent()
    delivery = world.batch()
    (sent,) = world.turn()
    with caplog.at_level(logging.DEBUG):
        produced(sent, {0: 0}, base=-5)
    assert delivery.result(0).offset is None
    assert "a batch of t-0 is stored at an unknown offset" in caplog.text


def test_I04_a_later_batch_out_of_order_waits_for_the_earlier_one_without_a_new_epoch() -> None:
    world = Idempotent()
    world.flowing()
    deliveries = [world.batch(), world.batch()]
    first, second = world.turn()
    produced(second, {0: OUT_OF_ORDER})
    produced(first, {0: NOT_ENOUGH_REPLICAS})
    (again,) = world.after(4.0)
    produced(again)
    (last,) = world.turn()
    produced(last)
    assert stamps(again) + stamps(last) == [(1000, 0, 1), (1000, 0, 2)]
    assert [each.exception(0) for each in deliveries] == [None, None]


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_ID])
def test_I04_I05_the_first_batch_out_of_order_starts_a_new_epoch_for_all_waiting_batches(code: int) -> None:
    world = Idempotent()
    world.flowing()
    world.batch()
    world.batch()
    first, second = world.turn()
    produced(first, {0: code})
    assert world.after(2.0) == [], "I06: not while anything is under way"
    produced(second, {0: OUT_OF_ORDER})
    found: list[tuple[int, int, int]] = []
    for _ in range(2):
        (again,) = world.after(4.0) if not found else world.turn()
        found += stamps(again)
        produced(again)
    assert found == [(1000, 1, 0), (1000, 1, 1)]


def test_I05_a_batch_that_is_stored_behind_a_gap_counts_and_a_new_epoch_starts_all_the_same() -> None:
    """A broker that has forgotten the producer meanwhile accepts any sequence."""
    world = Idempotent()
    world.flowing()
    first, second = world.batch(), world.batch()
    refused, stored = world.turn()
    produced(refused, {0: UNKNOWN_ID})
    produced(stored)
    assert second.exception(0) is None
    (again,) = world.after(4.0)
    assert stamps(again) == [(1000, 1, 0)]
    produced(again)
    assert first.exception(0) is None


def test_I09_after_a_silence_in_which_a_broker_may_forget_the_producer_one_batch_is_in_flight_again() -> None:
    """A broker accepts any first sequence then: it could store the second batch before the refused first one."""
    world = Idempotent()
    world.flowing()
    world.after(PRODUCER_EXPIRATION + 1)
    world.batch()
    world.batch()
    (first,) = world.turn()
    produced(first)
    assert len(world.turn()) == 1


def test_I09_a_leader_in_another_epoch_gets_one_batch_at_a_time() -> None:
    """It may have restarted with a shorter log and not know the producer."""
    world = Idempotent()
    world.flowing()
    world.leaders(1, epoch=99)
    world.batch()
    world.batch()
    assert len(world.turn()) == 1


def test_I06_other_partitions_keep_their_epoch() -> None:
    world = Idempotent(1, 1)
    world.flowing()
    world.batch()
    (sent,) = world.turn()
    produced(sent, {0: OUT_OF_ORDER})
    world.batch(1)
    found = {part: stamp for each in world.after(2.0) for part, stamp in zip(partitions(each), stamps(each), strict=True)}
    assert found == {0: (1000, 1, 0), 1: (1000, 0, 0)}


def test_I06_after_the_last_epoch_the_producer_id_changes() -> None:
    world = Idempotent()
    world.flowing()
    (sequence,) = world.sequences()
    sequence.epoch = LAST_EPOCH
    world.batch()
    (sent,) = world.turn()
    produced(sent, {0: OUT_OF_ORDER})
    (again,) = world.after(2.0)
    assert stamps(again) == [(1001, 0, 0)]


def test_a_fenced_producer_id_is_replaced_unless_the_batch_may_be_stored() -> None:
    world = Idempotent()
    delivery = world.batch()
    (sent,) = world.turn()
    produced(sent, {0: BAD_EPOCH})
    (again,) = world.after(2.0)
    assert stamps(again) == [(1001, 0, 0)]
    again.is_lost()
    (third,) = world.after(4.0)
    produced(third, {0: BAD_EPOCH})
    assert "may or may not be stored" in str(delivery.exception(0))


def test_P25_a_recreated_topic_gets_a_new_epoch() -> None:
    world = Idempotent()
    world.flowing()
    (sequence,) = world.sequences()
    assert sequence.leader is not None
    sequence.leader = type(sequence.leader)(sequence.leader.node, topic_id("another").bytes)
    world.batch()
    (sent,) = world.turn()
    assert stamps(sent) == [(1000, 1, 0)]


# --- batches that are given up ---------------------------------------------------------------------------------------


def test_I07_a_batch_that_is_certainly_not_stored_leaves_a_gap_that_a_new_epoch_closes() -> None:
    world = Idempotent()
    world.flowing()
    refused, later = world.batch(), world.batch()
    first, second = world.turn()
    produced(first, {0: INVALID_RECORD})
    produced(second, {0: OUT_OF_ORDER})
    (again,) = world.after(2.0)
    produced(again)
    assert stamps(again) == [(1000, 1, 0)]
    assert isinstance(refused.exception(0), KafkaError)
    assert later.exception(0) is None


def test_P19_a_batch_that_expires_in_doubt_has_used_its_sequence_and_the_next_response_decides() -> None:
    world = Idempotent()
    world.flowing()
    lost = world.batch()
    (sent,) = world.turn()
    sent.is_lost()
    world.after(DELIVERY_TIMEOUT)
    assert "may or may not be stored" in str(lost.exception(0))
    world.batch()
    (following,) = world.turn()
    assert stamps(following) == [(1000, 0, 2)]
    produced(following, {0: OUT_OF_ORDER})
    (again,) = world.after(2.0)
    assert stamps(again) == [(1000, 1, 0)]


def test_P18_a_batch_that_expires_before_it_was_sent_has_used_no_sequence() -> None:
    world = Idempotent()
    world.flowing()
    world.world.nodes.clear()
    expired = world.batch()
    world.turn()
    world.after(DELIVERY_TIMEOUT)
    assert isinstance(expired.exception(0), DeliveryTimeoutError)
    world.world.nodes.add(1)
    world.batch()
    (sent,) = world.turn()
    assert stamps(sent) == [(1000, 0, 1)]


def test_I10_a_batch_that_expires_in_flight_keeps_its_sequence_until_its_request_ends() -> None:
    world = Idempotent()
    world.flowing()
    expired = world.batch()
    (sent,) = world.turn()
    world.after(DELIVERY_TIMEOUT)
    assert expired.done()
    later = world.batch()
    (following,) = world.turn()
    produced(sent, base=1)
    produced(following, base=2)
    assert stamps(following) == [(1000, 0, 2)]
    assert later.result(0).offset == 2
    assert world.buffers.pool.used == 0


# --- splits ------------------------------------------------------------------------------------------------------


def test_P20_a_batch_that_is_too_large_is_split_until_it_fits_and_each_record_gets_its_offset() -> None:
    world = Idempotent(memory=100_000)
    deliveries = [world.send(value=b"v%d" % number) for number in range(6)]
    left = {0: world.turn()}
    seen: list[list[bytes | None]] = []
    base = 100
    while left[0]:
        sent = left[0].pop(0)
        (values,) = partitions(sent).values()
        if len(values) > 2:
            produced(sent, {0: TOO_LARGE})
        else:
            produced(sent, base=base)
            seen.append(values)
            base += len(values)
        left[0] += world.turn()
    assert [value for values in seen for value in values] == [b"v%d" % number for number in range(6)]
    assert [each.result(0).offset for each in deliveries] == list(range(100, 106))
    assert world.buffers.pool.used == 0
    assert world.sender.idle()


def test_P20_one_record_that_is_too_large_fails_and_the_others_of_its_batch_do_not() -> None:
    world = Idempotent(memory=100_000)
    small, large = world.send(value=b"s"), world.send(value=b"L" * 60)
    waiting = world.turn()
    while waiting:
        sent = waiting.pop(0)
        (values,) = partitions(sent).values()
        produced(sent, {0: TOO_LARGE} if b"L" * 60 in values else {})
        waiting += world.turn()
    assert small.exception(0) is None
    assert isinstance(large.exception(0), RecordTooLargeError)
    assert world.observer.take_failures()[0] == 0, "both were looked at"


def test_P20_a_batch_in_doubt_is_split_too_and_starts_a_new_epoch() -> None:
    world = Idempotent()
    delivery = world.send(count=2)
    (sent,) = world.turn()
    sent.is_lost()
    (again,) = world.after(2.0)
    produced(again, {0: TOO_LARGE})
    for number in range(2):
        (half,) = world.turn()
        assert stamps(half) == [(1000, 1, number)]
        produced(half, base=number)
    assert delivery.result(0).offset == 1


def test_P20_flush_waits_for_the_parts() -> None:
    world = Idempotent()
    first, last = world.send(value=b"a"), world.send(value=b"b")
    results = [batch.result for batch in world.buffers.flush_open()]
    (sent,) = world.turn()
    produced(sent, {0: TOO_LARGE})
    (half,) = world.turn()
    produced(half)
    assert (first.done(), last.done(), results[0].done) == (False, False, False)
    (other,) = world.turn()
    produced(other)
    assert results[0].done
    assert (first.result(0).offset, last.result(0).offset) == (100, 100)


def test_P20_a_flush_that_began_between_two_splits_waits_for_the_parts_of_parts() -> None:
    world = Idempotent(memory=100_000)
    deliveries = [world.send(value=b"%d" % number) for number in range(4)]
    (sent,) = world.turn()
    produced(sent, {0: TOO_LARGE})
    results = [batch.result.whole for batch in world.buffers.flush_open()]
    (half,) = world.turn()
    produced(half, {0: TOO_LARGE})
    waiting = world.turn()
    while waiting:
        assert not any(result.done for result in results)
        produced(waiting.pop())
        waiting += world.turn()
    assert all(result.done for result in results)
    assert all(delivery.exception(0) is None for delivery in deliveries)


def test_P24_an_invalid_record_gets_the_brokers_reason_and_the_errors_of_the_others_name_it() -> None:
    world = Idempotent()
    good, bad = world.send(), world.send()
    (sent,) = world.turn()
    sent.reply(responses=[{"name": "t", "topic_id": topic_id("t"), "partition_responses": [{
        "index": 0, "error_code": INVALID_RECORD, "base_offset": -1, "log_append_time": None, "log_start_offset": 0, "error_message": "no",
        "record_errors": [{"batch_index": 1, "batch_index_error_message": "a key is missing"}]}]}])
    assert "a key is missing" in str(bad.exception(0))
    assert isinstance(bad.exception(0), InvalidRecordError)
    assert "a key is missing" not in str(good.exception(0))


# --- everything at once ----------------------------------------------------------------------------------------------


class AnyOrderOfEvents(RuleBasedStateMachine):
    """One partition, a broker that checks sequences as real ones do, and every fault between the two."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Idempotent()
        self.producers = Producers()
        self.log: list[bytes | None] = []
        self.sent: list[tuple[bytes, Delivery]] = []
        self.waiting: list[Sent] = []

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.sent)
            self.sent.append((value, self.world.send(value=value)))

    @rule(seconds=st.sampled_from((0.0, 1.0, 3.0, 70.0)))
    def turn(self, seconds: float) -> None:
        self.world.world.after(seconds)
        self.waiting += self.world.turn()

    @precondition(lambda self: self.waiting)
    @rule(code=st.sampled_from((0, 0, 0, NOT_ENOUGH_REPLICAS, INVALID_RECORD, TOO_LARGE)))
    def answered(self, code: int) -> None:
        sent = self.waiting.pop(0)
        if code == TOO_LARGE and self.producers.repeated(self.batch_of(sent)) is not None:
            code = 0  # a stored batch was not too large
        errors, base = self.stored(sent) if not code else ({0: code}, -1)
        produced(sent, errors, base=base)

    @precondition(lambda self: self.waiting)
    @rule(arrived=st.integers(0, 5))
    def cut(self, arrived: int) -> None:
        """The connection breaks; the first *arrived* requests have reached the broker."""
        for number, sent in enumerate(self.waiting):
            if number < arrived:
                self.stored(sent)
            sent.is_lost()
        self.waiting.clear()

    @precondition(lambda self: not self.waiting and all(delivery.done() for _, delivery in self.sent))
    @rule()
    def forgotten(self) -> None:
        """The producer was silent for so long that the broker has forgotten it."""
        self.turn(PRODUCER_EXPIRATION + 1)
        self.producers = Producers()

    def batch_of(self, sent: Sent) -> Stored:
        return Stored.of(bytes(body(sent).topic_data[0].partition_data[0].records))

    def stored(self, sent: Sent) -> tuple[Mapping[int, int], int]:
        ((_, values),) = partitions(sent).items()
        batch = self.batch_of(sent)
        known = self.producers.repeated(batch)
        if known is not None:
            return {}, known.first_offset
        try:
            self.producers.check(batch)
        except RefusalError as refused:
            return {0: refused.code}, -1
        base = len(self.log)
        self.log += values
        self.producers.appended(attrs.evolve(batch, base_offset=base, last_offset=base + len(values) - 1))
        return {}, base

    @invariant()
    def each_record_is_stored_once_and_in_order(self) -> None:
        numbers = [int(value or b"-1") for value in self.log]
        assert numbers == sorted(set(numbers))

    @invariant()
    def every_acknowledged_record_is_at_its_offset(self) -> None:
        for value, delivery in self.sent:
            if delivery.done() and delivery.exception(0) is None and (offset := delivery.result(0).offset) is not None:
                assert self.log[offset] == value

    def teardown(self) -> None:
        """Without further faults every record is settled and all memory is released."""
        for _ in range(200):
            self.turn(3.0)
            while self.waiting:
                self.answered(0)
        assert all(delivery.done() for _, delivery in self.sent)
        assert self.world.buffers.pool.used == 0
        assert all(sequence.state is not SequenceState.DRAINING or not sequence.in_flight for sequence in self.world.sequences())


TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=150, stateful_step_count=40)


def test_NOT_ENOUGH_REPLICAS_is_retried_and_named_in_the_final_error() -> None:
    world = Idempotent(retries=1)
    delivery = world.batch()
    (sent,) = world.turn()
    produced(sent, {0: NOT_ENOUGH_REPLICAS})
    (again,) = world.after(2.0)
    produced(again, {0: NOT_ENOUGH_REPLICAS})
    error = delivery.exception(0)
    assert isinstance(error, NotEnoughReplicasError)
    assert "2 attempts" in str(error)
