"""From batches to requests, from responses to outcomes, on a frozen clock (P07, P11 to P14, P17, P18, P22, P25)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch
from pyclient.buffers.delivery import Delivery, Observer
from pyclient.codec.apis import Api
from pyclient.codec.batches import read_batches
from pyclient.codec.entities import Reader
from pyclient.codec.messages import request_schema
from pyclient.core.calls import Calls
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Reply
from pyclient.core.metadata import Metadata
from pyclient.core.sending.producer_ids import ProducerIds
from pyclient.core.sending.sequencing import PartitionSequence
from pyclient.core.sending.sender import MOST_BATCHES, Sender, SendingLimits
from pyclient.errors import (
    AuthorizationError, ClientClosedError, DisconnectError, CorruptRecordError, DeliveryTimeoutError, KafkaError, NotLeaderOrFollowerError,
    UnsupportedVersionError,
)
from pyclient.records import TopicPartition
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.unit.core.world import CLIENT_ID, DOUBLING, HEADER, Sent, World, answer, topic, topic_id, view

NOT_LEADER, TOPIC_AUTHORIZATION, CORRUPT = 6, 29, 2
DELIVERY_TIMEOUT = 120.0


class Producing:
    """An accumulator, metadata and a sender without a network; topic t has three partitions with leaders 1, 2, 3."""

    def __init__(self, *leaders: int, acks: int = -1, retries: int = 2**31 - 1, max_request_size: int = 1_000_000, linger: float = 0.0,
                 memory: int = 1_000_000, batch_size: int = 16_384, seal_in_thread: bool = False, idempotent: bool = False) -> None:
        self.world = World()
        self.clock = Clock()
        self.clock.now = self.world.now
        self.observer = Observer()
        self.buffers: Accumulator = accumulator(
            self.clock, memory=memory, batch_size=batch_size, max_request_size=max_request_size, linger=linger, topic="t",
            partitions=len(leaders or (1, 2, 3)), observer=self.observer)
        self.metadata = Metadata(max_age=10_000.0, max_idle=10_000.0, rebootstrap_after=None, request_timeout=30.0,
                                 backoff=DOUBLING, create_topics=True, on_update=lambda cluster: None)
        self.leaders(*(leaders or (1, 2, 3)))
        self.sealing: list[Batch] = []
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.ids = ProducerIds(self.calls) if idempotent else None
        limits = SendingLimits(acks=acks, in_flight=5, max_request_size=max_request_size, request_timeout=30.0,
                               delivery_timeout=DELIVERY_TIMEOUT, retries=retries)
        self.sender = Sender(self.buffers, self.metadata, limits, backoff=DOUBLING, ids=self.ids,
                             seal=(lambda batch: self.sealing.append(batch)) if seal_in_thread else self.buffers.seal)  # noqa: PLW0108

    def leaders(self, *leaders: int, epoch: int = 0) -> None:
        """A metadata response names new leaders."""
        epoch = epoch or self.metadata.cluster.version
        response = answer(Api.METADATA, 13, **view(topic("t", *leaders, epoch=epoch)))
        self.metadata.hint(self.metadata.cluster.updated(response))

    def send(self, partition: int = 0, value: bytes = b"value", count: int = 1) -> Delivery:
        """Append records; returns the delivery of the last."""
        queues = self.buffers.topic("t")
        assert queues is not None
        made = [self.buffers.append(queues, partition, -1, None, value, None) for _ in range(count)]
        assert made[-1] is not None
        return made[-1]

    def sequences(self) -> list[PartitionSequence]:
        """Of the partitions that a batch has left from."""
        queues = self.buffers.topic("t")
        assert queues is not None
        return [queue.sequence for queue in queues.queues if queue.sequence is not None]

    def turn(self) -> list[Sent]:
        """One turn of the driver; returns the Produce requests."""
        self.clock.now = self.world.now
        return self.world.turn(self.sender)

    def after(self, seconds: float) -> list[Sent]:
        """Time passes, then a turn."""
        self.world.after(seconds)
        return self.turn()


def body(sent: Sent) -> Any:
    """A Produce request as a broker reads it."""
    assert sent.request.encode is not None
    frame = b"".join(bytes(piece) for piece in sent.request.encode(sent.version, 1, CLIENT_ID))
    schema = request_schema(Api.PRODUCE, sent.version)
    return Reader(frame, HEADER + schema.flexible).read(schema)


def partitions(sent: Sent) -> dict[int, list[bytes | None]]:
    """The values in the request, by partition."""
    return {part.index: [record.value for batch in read_batches(part.records) for record in batch.records("t", part.index)]
            for each in body(sent).topic_data for part in each.partition_data}


def produced(sent: Sent, errors: Mapping[int, int] | None = None, *, base: int = 100, leave_out: frozenset[int] = frozenset()) -> None:
    """The broker answers, with an error code for some partitions."""
    parts: list[dict[str, Any]] = [{"index": number, "error_code": (errors or {}).get(number, 0), "base_offset": base, "log_append_time": None,
              "log_start_offset": 0, "record_errors": [], "error_message": None}
             for number in partitions(sent) if number not in leave_out]
    sent.reply(responses=[{"name": "t", "topic_id": topic_id("t"), "partition_responses": parts}])


# --- one record ------------------------------------------------------------------------------------------------------


def test_a_record_goes_to_its_leader_and_gets_its_offset() -> None:
    world = Producing()
    delivery = world.send(1)
    (sent,) = world.turn()
    assert (sent.node, sent.api) == (2, Api.PRODUCE)
    assert partitions(sent) == {1: [b"value"]}
    assert not delivery.done()
    produced(sent, base=7)
    assert delivery.result(0).offset == 7
    assert world.buffers.pool.used == 0
    assert world.sender.idle()


def test_the_request_carries_acks_and_the_timeout() -> None:
    world = Producing(acks=1)
    world.send()
    (sent,) = world.turn()
    assert body(sent).acks == 1
    assert body(sent).timeout.total_seconds() == 30.0


def test_P11_a_batch_waits_for_its_linger() -> None:
    world = Producing(linger=5.0)
    world.send()
    assert world.turn() == []
    assert world.sender.next_deadline() == world.world.now + 5.0
    assert len(world.after(5.0)) == 1


def test_P22_with_acks_0_a_record_is_done_when_it_is_written() -> None:
    world = Producing(acks=0)
    delivery = world.send()
    (sent,) = world.turn()
    assert not sent.request.answered
    sent.end(Reply(sent.version, None))
    assert delivery.result(0).offset is None
    assert world.buffers.pool.used == 0


# --- order and fairness ----------------------------------------------------------------------------------------------


def test_P17_no_later_batch_of_a_partition_leaves_while_one_is_in_flight() -> None:
    world = Producing(1)
    world.world.capacity = dict.fromkeys(world.world.capacity, 5)
    world.send(value=b"first")
    (first,) = world.turn()
    world.send(value=b"second")
    assert world.turn() == []
    produced(first)
    (second,) = world.turn()
    assert partitions(second) == {0: [b"second"]}


def test_P17_a_retried_batch_leaves_before_later_ones() -> None:
    world = Producing(1)
    world.send(value=b"first")
    (sent,) = world.turn()
    world.send(value=b"second")
    produced(sent, {0: NOT_LEADER})
    assert world.turn() == []
    (again,) = world.after(1.0)
    assert partitions(again) == {0: [b"first"]}
    produced(again)
    (later,) = world.turn()
    assert partitions(later) == {0: [b"second"]}


def test_P14_a_request_holds_one_batch_of_each_partition_and_no_more_than_max_request_size() -> None:
    world = Producing(*[1] * 6, max_request_size=5_000, batch_size=5_000)
    for number in range(6):
        world.send(number, b"x" * 1_900)
    sizes = []
    while requests := world.turn():
        (sent,) = requests
        sizes.append(len(partitions(sent)))
        assert sum(len(part.records) for each in body(sent).topic_data for part in each.partition_data) <= 5_000
        produced(sent)
    assert sizes == [2, 2, 2]


def test_P14_a_batch_larger_than_max_request_size_is_sent_alone() -> None:
    world = Producing(1, 1, max_request_size=5_000, batch_size=1_000)
    world.send(0, b"x" * 4_800)
    world.send(1, b"x" * 4_800)
    (first,) = world.turn()
    assert list(partitions(first)) == [0]
    produced(first)
    (second,) = world.turn()
    assert list(partitions(second)) == [1]


def test_P14_a_request_holds_no_more_batches_than_a_broker_can_write_in_request_timeout() -> None:
    world = Producing(*[1] * (2 * MOST_BATCHES + 7), memory=8_000_000)
    for number in range(2 * MOST_BATCHES + 7):
        world.send(number)
    sizes = []
    while requests := world.turn():
        (sent,) = requests
        sizes.append(len(partitions(sent)))
        produced(sent)
    assert sizes == [MOST_BATCHES, MOST_BATCHES, 7]


def test_P14_partitions_take_turns() -> None:
    world = Producing(*[1] * 4, max_request_size=2_500, batch_size=2_500)
    served = []
    for number in range(4):
        world.send(number, b"x" * 1_000)
    for _ in range(12):
        (sent,) = world.turn()
        served += list(partitions(sent))
        for number in partitions(sent):
            world.send(number, b"x" * 1_000)
        produced(sent)
    assert {served.count(number) for number in range(4)} == {len(served) // 4}


def test_P12_a_batch_without_leader_waits_requests_metadata_and_delays_no_other() -> None:
    world = Producing(-1, 2)
    lost, fine = world.send(0), world.send(1)
    (sent,) = world.turn()
    produced(sent)
    assert fine.done()
    assert not lost.done()
    assert [each.api for each in world.world.turn(world.metadata)] == [Api.METADATA]
    world.leaders(3, 2)
    (found,) = world.turn()
    assert found.node == 3
    produced(found)
    assert lost.done()


def test_P12_a_queued_batch_follows_its_leader() -> None:
    world = Producing(1)
    world.world.nodes = {2}
    world.send()
    assert world.turn() == []
    world.leaders(2)
    (sent,) = world.turn()
    assert sent.node == 2


def test_P12_metadata_keeps_a_topic_whose_batches_wait() -> None:
    world = Producing(-1)
    world.send()
    world.turn()
    world.world.after(9_999.0)
    asked = world.world.turn(world.metadata)
    assert [each.name for sent in asked for each in sent.body.topics] == ["t"]


def test_an_open_batch_keeps_filling_while_its_node_accepts_no_request() -> None:
    world = Producing(1)
    world.world.nodes = set()
    world.send(count=3)
    world.turn()
    world.send(count=4)
    world.world.nodes = {1}
    (sent,) = world.turn()
    assert partitions(sent) == {0: [b"value"] * 7}


def test_a_batch_sealed_by_another_thread_is_sent_when_it_is_sealed() -> None:
    world = Producing(1, seal_in_thread=True)
    world.send()
    assert world.turn() == []
    (batch,) = world.sealing
    assert world.turn() == []
    assert world.sealing == [batch], "it is sealed once"
    world.buffers.seal(batch)
    assert len(world.turn()) == 1


# --- failures --------------------------------------------------------------------------------------------------------


def test_P18_records_behind_a_batch_that_cannot_be_sent_have_a_time_of_their_own() -> None:
    world = Producing()
    world.world.nodes = set()
    sent: list[tuple[float, Delivery]] = []
    began = world.world.now
    while world.world.now < began + 15:
        sent.append((world.world.now, world.send()))
        world.after(0.5)
    timeout = world.sender._limits.delivery_timeout
    while world.world.now < began + timeout + 5:
        world.after(0.25)
        early = [at for at, delivery in sent if delivery.done() and world.world.now < at + 0.87 * timeout]  # OLDEST_OPEN, and its steps
        assert not early, f"failed too early: sent at {early}, now {world.world.now}"
    assert any(delivery.done() for _, delivery in sent)


def test_P13_each_retry_waits_longer_than_the_one_before() -> None:
    world = Producing(1)
    world.send()
    (sent,) = world.turn()
    for pause in (1.0, 2.0, 4.0, 8.0):
        produced(sent, {0: NOT_LEADER})
        assert world.turn() == []
        assert world.sender._queues.next_deadline() == world.world.now + pause
        assert world.after(pause * 0.99) == []
        (sent,) = world.after(pause * 0.01 + 1e-6)


def test_C13_a_moved_leader_requests_metadata() -> None:
    world = Producing(1)
    world.send()
    (sent,) = world.turn()
    assert world.world.turn(world.metadata) != []
    produced(sent, {0: NOT_LEADER})
    world.leaders(2)
    (again,) = world.after(1.0)
    assert again.node == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_batch_is_retried_at_most_retries_times(retries: int) -> None:
    world = Producing(1, retries=retries)
    delivery = world.send()
    (sent,) = world.turn()
    for _ in range(retries):
        produced(sent, {0: NOT_LEADER})
        assert not delivery.done()
        (sent,) = world.after(10.0)
    produced(sent, {0: NOT_LEADER})
    error = delivery.exception(0)
    assert isinstance(error, NotLeaderOrFollowerError)
    assert error.topic_partition == TopicPartition("t", 0)
    assert f"{retries + 1} attempt" in str(error)
    assert world.buffers.pool.used == 0


def test_a_request_that_was_never_written_costs_no_attempt() -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    for _ in range(3):
        (sent,) = world.turn() or world.after(10.0)
        sent.is_not_sent()
        assert not delivery.done()
    (sent,) = world.after(10.0)
    produced(sent)
    assert delivery.result(0).offset == 100


def test_a_lost_connection_sends_the_batch_again_with_the_same_records() -> None:
    world = Producing(1)
    world.send(count=3)
    (sent,) = world.turn()
    sent.is_lost()
    (again,) = world.after(1.0)
    assert partitions(again) == {0: [b"value"] * 3}


@pytest.mark.parametrize("cause", [UnsupportedVersionError("too old"), ClientClosedError("closed")])
def test_a_fatal_error_fails_at_once(cause: KafkaError) -> None:
    world = Producing(1)
    delivery = world.send()
    (sent,) = world.turn()
    sent.is_not_sent(cause)
    assert isinstance(delivery.exception(0), type(cause))


def test_each_partition_of_a_request_has_its_own_outcome() -> None:
    world = Producing(1, 1, 1, 1)
    deliveries = [world.send(number) for number in range(4)]
    (sent,) = world.turn()
    produced(sent, {1: TOPIC_AUTHORIZATION, 2: NOT_LEADER}, leave_out=frozenset({3}))
    assert deliveries[0].result(0).offset == 100
    assert isinstance(deliveries[1].exception(0), AuthorizationError)
    assert not deliveries[2].done()
    assert not deliveries[3].done()
    (again,) = world.after(1.0)
    assert sorted(partitions(again)) == [2, 3]


def test_a_response_without_the_partition_is_a_failure_with_a_cause() -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    (sent,) = world.turn()
    produced(sent, leave_out=frozenset({0}))
    assert isinstance(delivery.exception(0), CorruptRecordError)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leader", [-1, 1])
def test_P18_a_batch_that_is_not_sent_in_time_fails_and_releases_its_memory(leader: int) -> None:
    world = Producing(leader)
    world.world.nodes = set()
    delivery = world.send()
    world.turn()
    assert world.after(DELIVERY_TIMEOUT - 1) == []
    assert not delivery.done()
    deadline = world.sender.next_deadline()
    assert deadline is not None
    assert deadline - world.world.now == pytest.approx(1.0)
    world.after(1.0)
    error = delivery.exception(0)
    assert isinstance(error, DeliveryTimeoutError)
    assert "delivery_timeout_ms=120000" in str(error)
    assert world.buffers.pool.used == 0
    assert world.sender.idle()


def test_P07_P18_a_batch_in_flight_fails_in_time_and_keeps_its_memory_until_its_request_ends() -> None:
    world = Producing(1)
    delivery = world.send()
    (sent,) = world.turn()
    world.after(DELIVERY_TIMEOUT)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    assert world.buffers.pool.used > 0
    assert not world.sender.idle()
    produced(sent)
    assert world.buffers.pool.used == 0
    assert world.sender.idle()
    assert isinstance(delivery.exception(0), DeliveryTimeoutError), "P23"


@pytest.mark.parametrize("how", ["lost", "not sent", "refused"])
def test_P07_an_overdue_batch_is_released_however_its_request_ends_and_never_sent_again(how: str) -> None:
    world = Producing(1)
    world.send(value=b"old")
    (sent,) = world.turn()
    world.send(value=b"new")
    world.after(DELIVERY_TIMEOUT - 1)
    world.send(value=b"newest")
    world.after(1.0)
    {"lost": sent.is_lost, "not sent": sent.is_not_sent, "refused": lambda: produced(sent, {0: NOT_LEADER})}[how]()
    world.send(value=b"after")
    (later,) = world.turn() or world.after(10.0)
    assert partitions(later) == {0: [b"newest", b"after"]}  # the first was sent a second before: it has its own time
    produced(later)
    assert world.buffers.pool.used == 0


def test_P18_a_record_sent_by_the_callback_of_an_expired_one_is_delivered() -> None:
    world = Producing(-1)
    sent_again: list[Delivery] = []
    world.send().add_done_callback(lambda failed: sent_again.append(world.send(value=b"again")))
    world.turn()
    world.after(DELIVERY_TIMEOUT)
    (again,) = sent_again
    assert not again.done()
    world.leaders(1)
    (sent,) = world.turn()
    produced(sent)
    assert again.result(0).offset == 100


def test_a_batch_that_expires_while_it_is_sealed_releases_its_memory_afterwards() -> None:
    world = Producing(1, seal_in_thread=True)
    delivery = world.send()
    world.turn()
    world.leaders(-1)
    world.after(DELIVERY_TIMEOUT)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    assert world.buffers.pool.used > 0
    world.buffers.seal(world.sealing[0])
    assert world.turn() == []
    assert world.buffers.pool.used == 0


def test_abandon_fails_all_unsettled_batches_and_frees_those_that_no_request_reads() -> None:
    world = Producing(1, -1)
    in_flight = world.send(0)
    (sent,) = world.turn()
    deliveries = [world.send(0), world.send(1)]
    world.sender.abandon(ClientClosedError("closed"))
    assert [str(each.exception(0)) for each in deliveries] == [f"t-{partition}: 1 record was not stored after 0 attempts: closed" for partition in (0, 1)]
    assert isinstance(in_flight.exception(0), ClientClosedError)
    assert str(in_flight.exception(0)) == "t-0: 1 record may or may not be stored; given up after 1 attempt: closed"
    assert world.buffers.pool.used > 0
    sent.is_lost()
    assert world.buffers.pool.used == 0
    assert world.turn() == []


# --- topic ids -------------------------------------------------------------------------------------------------------


def test_P25_a_response_is_matched_by_the_topic_ids_of_the_request() -> None:
    world = Producing(1)
    delivery = world.send()
    (sent,) = world.turn()
    assert sent.version == 13
    world.metadata.hint(Cluster())
    sent.reply(responses=[{"topic_id": topic_id("t"), "partition_responses": [
        {"index": 0, "error_code": 0, "base_offset": 3, "log_append_time": None, "log_start_offset": 0, "record_errors": []}]}])
    assert delivery.result(0).offset == 3


def test_P25_a_topic_without_an_id_is_sent_by_name() -> None:
    world = Producing(1)
    old = answer(Api.METADATA, 9, **view({**topic("t", 1), "topic_id": None}))
    world.metadata.hint(Cluster().updated(old))
    delivery = world.send()
    (sent,) = world.turn()
    assert sent.version == 12
    assert [each.name for each in body(sent).topic_data] == ["t"]
    produced(sent)
    assert delivery.done()


# --- anything in any order -------------------------------------------------------------------------------------------


class SenderRules(RuleBasedStateMachine):
    """Records, leaders that come and go, answers and losses: order, one batch at a time, no busy loop, no leak."""

    def __init__(self) -> None:
        super().__init__()
        self.all = Producing(1, 2, 1, linger=2.0, memory=60_000, batch_size=2_000, max_request_size=3_000)
        self.number = 0
        self.stored: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.deliveries: list[tuple[Delivery, float]] = []

    @rule(partition=st.integers(0, 2), size=st.integers(0, 2_000))
    def send(self, partition: int, size: int) -> None:
        queues = self.all.buffers.topic("t")
        assert queues is not None
        self.number += 1
        self.all.clock.now = self.all.world.now
        delivery = self.all.buffers.append(queues, partition, -1, None, str(self.number).encode().ljust(size), None)
        if delivery is not None:
            self.deliveries.append((delivery, self.all.world.now))

    @rule()
    def turn(self) -> None:
        for sent in self.all.turn():
            self.check(sent)

    def check(self, sent: Sent) -> None:
        busy = [number for other in self.all.world.in_flight if other is not sent for number in partitions(other)]
        assert not set(partitions(sent)) & set(busy), "P17: two batches of a partition under way"
        size = sum(len(part.records) for each in body(sent).topic_data for part in each.partition_data)
        assert size <= 3_000 or len(partitions(sent)) == 1

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.all.world.after(seconds)
        self.turn()

    @rule(leaders=st.tuples(*[st.sampled_from([-1, 1, 2, 3])] * 3))
    def leaders_move(self, leaders: tuple[int, int, int]) -> None:
        self.all.leaders(*leaders)

    @rule(nodes=st.sets(st.integers(1, 3)))
    def nodes_come_and_go(self, nodes: set[int]) -> None:
        self.all.world.nodes = nodes

    @precondition(lambda self: self.all.world.in_flight)
    @rule(data=st.data(), error=st.sampled_from([0, 0, NOT_LEADER, TOPIC_AUTHORIZATION]))
    def answered(self, data: st.DataObject, error: int) -> None:
        sent = data.draw(st.sampled_from(self.all.world.in_flight))
        held = partitions(sent)
        refused = data.draw(st.sets(st.sampled_from(sorted(held)))) if error else set()
        for number, values in held.items():
            if number not in refused:
                self.stored[number] += [int(value or b"0") for value in values]
        produced(sent, dict.fromkeys(refused, error))

    @precondition(lambda self: self.all.world.in_flight)
    @rule(data=st.data(), written=st.booleans())
    def lost(self, data: st.DataObject, written: bool) -> None:
        sent = data.draw(st.sampled_from(self.all.world.in_flight))
        if written:
            sent.is_lost(DisconnectError("cut"))
        else:
            sent.is_not_sent(DisconnectError("cut"))

    @invariant()
    def order_is_kept(self) -> None:
        for numbers in self.stored.values():
            assert numbers == sorted(numbers)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.all.buffers.pool.used in range(60_001)

    def teardown(self) -> None:
        self.all.world.nodes = {1, 2, 3}
        self.all.leaders(1, 2, 3)
        self.all.buffers.flush_open()
        for _ in range(400):
            for sent in self.all.turn():
                self.check(sent)
            for sent in list(self.all.world.in_flight):
                produced(sent)
            deadline = self.all.sender.next_deadline()
            if deadline is None:
                break
            self.all.world.now = max(self.all.world.now, deadline)
        assert self.all.sender.idle()
        assert self.all.buffers.pool.used == 0
        assert all(delivery.done() for delivery, _ in self.deliveries)


def test_the_rules_hold_in_any_order_of_events() -> None:
    run_state_machine_as_test(SenderRules, settings=settings(max_examples=60, stateful_step_count=40))
