"""What leaves within transactions, in which epoch, and what a failure means for it (P15, P20, T03, T05)."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.buffers.delivery import Delivery
from pyclient.codec.apis import Api
from pyclient.codec.batches import read_batches
from pyclient.core.handshake import Features
from pyclient.core.manager import Use
from pyclient.core.sending.sender import Sender, SendingLimits
from pyclient.core.sending.sequencing import PRODUCER_EXPIRATION
from pyclient.core.transactions.manager import FEATURE, Transactions
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import IllegalStateError, RecordTooLargeError, TransactionAbortableError
from tests.unit.core.test_sender import DELIVERY_TIMEOUT, Producing, body, partitions, produced
from tests.unit.core.transacting import ID, added
from tests.unit.core.world import DOUBLING, Sent

TOO_LARGE, OUT_OF_ORDER, NOT_LEADER, CONCURRENT_TRANSACTIONS = 10, 45, 6, 51
PROTOCOLS = pytest.mark.parametrize("level", [1, 2], ids=["V1", "V2"])


class Transactional(Producing):
    """A transactional producer in a transaction; coordinators answer at once, except AddPartitionsToTxn."""

    def __init__(self, level: int = 2, *leaders: int, linger: float = 0.0) -> None:
        super().__init__(*(leaders or (1,)), batch_size=200, linger=linger)
        self.world.capacity[Use.PRODUCE] = 5
        self.transactions = Transactions("x", 60.0, self.calls, lambda: Features(1, {FEATURE: level}))
        limits = SendingLimits(acks=-1, in_flight=5, max_request_size=1_000_000, request_timeout=30.0, delivery_timeout=DELIVERY_TIMEOUT, retries=2**31 - 1)
        self.sender = Sender(self.buffers, self.metadata, limits, backoff=DOUBLING, ids=self.transactions, seal=self.buffers.seal,
                             transactions=self.transactions)
        self.transactions.records = self.sender
        self.transactions.on_gate = self.buffers.set_gate
        self.buffers.set_gate(self.transactions.gate())
        self.epoch = -1
        self.adding: list[Sent] = []
        self.ended: list[bool] = []
        self._finish(self.transactions.initialize())
        self.begin()

    def begin(self) -> None:
        self.transactions.begin(self.world.now)

    def commit(self) -> Any:
        return self.transactions.commit()

    def abort(self) -> None:
        self._finish(self.transactions.abort())

    def _finish(self, pending: Any) -> None:
        self.turn()
        assert self.transactions.take(pending)

    def turn(self) -> list[Sent]:
        self.clock.now = self.world.now
        produce: list[Sent] = []
        while sent := self.world.turn(self.sender, self.transactions, self.calls):
            produce += [each for each in sent if each.api is Api.PRODUCE]
            for each in sent:
                self._coordinate(each)
        return produce

    def _coordinate(self, sent: Sent) -> None:
        match sent.api:
            case Api.FIND_COORDINATOR:
                where: dict[str, Any] = {"node_id": 1, "host": "broker-1", "port": 9092, "error_code": 0}
                sent.reply(coordinators=[{"key": key, **where} for key in sent.body.coordinator_keys])
            case Api.INIT_PRODUCER_ID:
                self.epoch += 1
                sent.reply(producer_id=ID, producer_epoch=self.epoch)
            case Api.ADD_PARTITIONS_TO_TXN:
                self.adding.append(sent)
            case Api.END_TXN:
                self.ended.append(sent.body.committed)
                self.epoch += sent.version >= 5
                sent.reply(producer_id=ID, producer_epoch=self.epoch)

    def first(self) -> Sent:
        """The only request with records, once its partitions are added."""
        sent = self.turn()
        while self.adding:
            added(self.adding.pop())
            sent += self.turn()
        (one,) = sent
        return one

    def batch(self, partition: int = 0) -> Delivery:
        return self.send(partition, b"x" * 150)


def stamps(sent: Sent) -> list[tuple[int, int, int, bool]]:
    return [(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional)
            for topic in body(sent).topic_data for part in topic.partition_data for batch in read_batches(part.records)]


@PROTOCOLS
def test_P15_a_batch_leaves_once_its_partition_is_in_the_transaction(level: int) -> None:
    world = Transactional(level)
    world.batch()
    sent = world.turn()
    assert bool(sent) == (level == 2)
    assert bool(world.adding) == (level == 1)
    while world.adding:
        added(world.adding.pop())
        sent += world.turn()
    (one,) = sent
    assert stamps(one) == [(ID, 0, 0, True)]
    assert body(one).transactional_id == "x"
    assert one.version in ((11,) if level == 1 else (12, 13))


@PROTOCOLS
def test_a_commit_waits_for_the_records_and_the_next_transaction_has_its_own_sequences(level: int) -> None:
    world = Transactional(level)
    delivery = world.batch()
    sent = world.first()
    pending = world.commit()
    assert world.turn() == []
    assert not world.ended
    produced(sent)
    world.turn()
    assert world.transactions.take(pending)
    assert (world.ended, delivery.exception(0)) == ([True], None)
    world.begin()
    world.batch()
    assert stamps(world.first()) == [(ID, 1, 0, True) if level == 2 else (ID, 0, 1, True)]


@PROTOCOLS
def test_T03_an_abort_fails_what_has_not_left_and_waits_for_the_rest(level: int) -> None:
    world = Transactional(level)
    first, second = world.batch(), world.batch()
    sent = world.first()
    pending = world.transactions.abort()
    world.turn()
    assert isinstance(second.exception(0), TransactionAbortableError)
    assert not world.ended
    produced(sent)
    world.turn()
    assert world.transactions.take(pending)
    assert (world.ended, first.exception(0)) == ([False], None)
    assert world.buffers.pool.used == 0
    world.begin()
    world.batch()
    assert stamps(world.first())[0][:2] == (ID, world.epoch)


@PROTOCOLS
def test_T03_an_abort_sends_nothing_that_has_not_left(level: int) -> None:
    world = Transactional(level)
    unsent = world.batch()
    pending = world.transactions.abort()
    assert (world.turn(), world.adding) == ([], [])
    assert world.transactions.take(pending)
    assert isinstance(unsent.exception(0), TransactionAbortableError)
    assert world.ended == []


@PROTOCOLS
@pytest.mark.parametrize("commits", [True, False])
def test_T01_the_end_waits_for_a_batch_that_has_to_be_sent_again(level: int, commits: bool) -> None:
    """An abort too: the broker may have it."""
    world = Transactional(level)
    delivery = world.batch()
    sent = world.first()
    pending = world.transactions.commit() if commits else world.transactions.abort()
    produced(sent, {0: NOT_LEADER})
    assert world.turn() == []
    assert world.ended == []
    (again,) = world.after(2.0)
    produced(again)
    world.turn()
    assert world.transactions.take(pending)
    assert (world.ended, delivery.exception(0)) == ([commits], None)


@PROTOCOLS
def test_T03_an_abort_waits_for_the_request_of_a_batch_whose_time_is_over(level: int) -> None:
    """What a broker wrote after the end would begin a transaction that nothing ends."""
    world = Transactional(level)
    delivery = world.batch()
    sent = world.first()
    world.world.after(DELIVERY_TIMEOUT + 1)
    world.turn()
    assert delivery.exception(0) is not None
    pending = world.transactions.abort()
    world.turn()
    assert world.ended == []
    sent.is_lost()
    world.turn()
    assert world.transactions.take(pending)
    assert world.ended == [False]


def test_a_commit_does_not_wait_until_the_linger_is_over() -> None:
    world = Transactional(linger=3600.0)
    world.send(0, b"x")
    assert world.turn() == []
    world.commit()
    assert len(world.turn()) == 1


def test_T05_a_partition_that_sat_out_a_transaction_begins_with_sequence_0() -> None:
    world = Transactional(2, 1, 1)
    world.send(1, b"x", count=3)
    produced(world.first())
    world._finish(world.commit())
    for _ in range(2):
        world.begin()
        world.batch()
        produced(world.first())
        world._finish(world.commit())
    world.begin()
    world.batch(1)
    assert stamps(world.first()) == [(ID, 3, 0, True)]


@pytest.mark.parametrize(("level", "within"), [(1, True), (2, True), (1, False)])
def test_I09_after_a_minute_of_silence_one_batch_is_in_flight_again(level: int, *, within: bool) -> None:
    """Within a transaction, and between two of protocol V1; in V2 each begins with an epoch of its own.

    A broker may have forgotten the producer: of two batches it could store the second and refuse the first.
    """
    world = Transactional(level)
    world.batch()
    produced(world.first())
    if not within:
        world._finish(world.commit())
    world.world.after(PRODUCER_EXPIRATION + 1)
    if not within:
        world.begin()
    deliveries = [world.batch() for _ in range(3)]
    produced(world.first())
    behind = world.turn()
    assert len(behind) == 2
    for each in behind:
        produced(each)
    world._finish(world.commit())
    assert [each.exception(0) for each in deliveries] == [None] * 3


@PROTOCOLS
def test_a_batch_behind_a_gap_fails_with_the_abort_and_the_next_transaction_begins_with_sequence_0(level: int) -> None:
    world = Transactional(level)
    world.batch()
    produced(world.first())
    refused, behind = world.batch(), world.batch()
    one, two = world.turn()
    produced(one, {0: OUT_OF_ORDER})
    assert isinstance(world.transactions.gate(), TransactionAbortableError)
    produced(two, {0: OUT_OF_ORDER})
    assert world.turn() == []
    assert refused.exception(0) is not None
    world.abort()
    assert behind.exception(0) is not None
    world.begin()
    world.batch()
    assert stamps(world.first()) == [(ID, 1, 0, True)]


@PROTOCOLS
@pytest.mark.parametrize("behind", [0, 1, 2], ids=["alone", "one behind it", "two behind it"])
def test_a_partition_whose_batch_expired_between_two_attempts_sends_again_in_the_next_transaction(level: int, behind: int) -> None:
    world = Transactional(level)
    world.batch()
    refused = world.first()
    waiting = [world.batch() for _ in range(behind)]
    assert world.turn() == []
    produced(refused, {0: CONCURRENT_TRANSACTIONS})  # surely not stored: its sequence is a gap once it has expired
    assert world.after(DELIVERY_TIMEOUT + 1) == []
    assert world.transactions.state is TransactionState.ABORTABLE_ERROR
    world.abort()
    assert all(each.exception(0) is not None for each in waiting)
    world.begin()
    world.batch()
    assert stamps(world.first()) == [(ID, world.epoch, 0, True)]


def test_P20_the_halves_of_a_batch_take_its_sequences() -> None:
    world = Transactional()
    world.send(0, b"x", count=4)
    produced(world.first(), {0: TOO_LARGE})
    seen = []
    while turn := world.turn():
        (sent,) = turn
        seen += stamps(sent)
        produced(sent)
    assert seen == [(ID, 0, 0, True), (ID, 0, 2, True)]
    assert world.transactions.state is TransactionState.IN_TRANSACTION


def test_a_refused_batch_makes_a_transaction_that_can_only_be_aborted() -> None:
    world = Transactional()
    delivery = world.batch()
    produced(world.first(), {0: TOO_LARGE})
    assert isinstance(delivery.exception(0), RecordTooLargeError)
    with pytest.raises(TransactionAbortableError):
        world.batch()
    world.abort()
    assert world.ended == [False]


def test_a_batch_that_expires_unsent_fails_the_transaction() -> None:
    world = Transactional(1)
    world.batch()
    world.turn()
    world.world.after(DELIVERY_TIMEOUT + 1)
    world.turn()
    assert world.transactions.state is TransactionState.ABORTABLE_ERROR


@PROTOCOLS
def test_a_batch_is_sent_again_with_its_sequence(level: int) -> None:
    world = Transactional(level)
    world.batch()
    first = world.first()
    before = stamps(first)
    first.is_lost()
    (again,) = world.after(2.0)
    assert stamps(again) == before
    assert partitions(again)
    produced(again)


def test_outside_of_a_transaction_nothing_is_queued() -> None:
    world = Transactional()
    world.abort()
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        world.batch()
    assert world.buffers.unsettled == 0


def test_a_closed_producer_stays_closed_when_a_transaction_begins() -> None:
    world = Transactional()
    world.abort()
    world.buffers.close()
    world.begin()
    with pytest.raises(Exception, match="closed"):
        world.batch()


def early_answers(world: Transactional) -> float:
    """Transactions whose first answers come late, until a pause is learned; returns its seconds."""
    for _ in range(4):
        world.world.after(world.transactions.markers.pause)
        world.batch()
        sent = world.first()
        world.world.after(0.021)
        produced(sent)
        pending = world.commit()
        world._finish(pending)
        world.begin()
    return world.transactions.markers.pause


def test_the_first_batch_waits_until_the_markers_of_the_last_transaction_are_written() -> None:
    world = Transactional(2)
    pause = early_answers(world)
    assert pause > 0
    delivery = world.batch()
    pending = world.commit()
    assert world.turn() == []
    due = world.sender.next_deadline(), world.transactions.next_deadline()
    assert world.world.now + pause == pytest.approx(min(each for each in due if each is not None))
    world.world.after(pause)
    produced(world.first())
    world._finish(pending)
    assert delivery.done()


def test_a_batch_that_waits_for_markers_fails_with_the_abort() -> None:
    world = Transactional(2)
    early_answers(world)
    delivery = world.batch()
    assert world.turn() == []
    world.abort()
    assert isinstance(delivery.exception(0), TransactionAbortableError)
    assert world.transactions.state is TransactionState.READY
