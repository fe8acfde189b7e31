"""The usual transaction leaves the state that `Transactions` would, and is refused where more is to be done."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api
from pyclient.core.sending.sequencing import Leader, SequenceEvent, SequenceState
from pyclient.core.sending.transactional_sequence import TransactionalSequence
from pyclient.core.transactions.states import TransactionState
from pyclient.core.transactions.usual import UsualTransactions
from pyclient.errors import IllegalStateError, RequestTimedOutError, TransactionAbortableError
from tests.unit.core.test_sender import Producing
from tests.unit.core.transacting import MEMBER, OFFSETS, Transacting

LEADER = Leader(1)


def usual(made: Transacting) -> UsualTransactions:
    return UsualTransactions(made.transactions, made.transactions.usual_gates())


def ready(level: int = 2) -> Transacting:
    return Transacting(level).ready()


def state_of(made: Transacting) -> tuple[object, ...]:
    manager = made.transactions
    return (manager.state, manager.producer, manager.protocol, manager._pending, manager._call, manager._progress, str(made.gates[-1]))


def in_a_transaction(made: Transacting) -> None:
    """One batch of it has left, and is stored."""
    made.sends()
    made.records.flying = 0


def test_a_usual_transaction_leaves_the_state_that_any_other_leaves() -> None:
    one, other = ready(), ready()
    assert usual(one).begin(one.world.now)
    other.transactions.begin(other.world.now)
    assert vars_of(one) == vars_of(other)
    assert one.gates[-1] is other.gates[-1] is None
    in_a_transaction(one)
    in_a_transaction(other)
    assert usual(one).may_commit()
    usual(one).commit()
    pending = other.transactions.commit()
    assert one.transactions.state is other.transactions.state is TransactionState.COMMITTING
    assert str(one.gates[-1]) == str(other.gates[-1])
    other.ends(other.one(Api.END_TXN))
    assert other.transactions.take(pending)
    usual(one).ended(*other.transactions.producer)
    assert (one.transactions.state, one.transactions.producer, str(one.gates[-1])) == (
        other.transactions.state, other.transactions.producer, str(other.gates[-1]))
    assert not usual(one).started()
    assert not one.transactions._progress.partitions
    one.epoch = other.epoch
    one.transactions.begin(one.world.now)
    in_a_transaction(one)
    one.commits()
    assert one.transactions.state is TransactionState.READY


def vars_of(made: Transacting) -> tuple[object, ...]:
    progress = made.transactions._progress
    return progress.deadline, progress.partitions, progress.wanted, progress.offsets, progress.groups, progress.started, progress.doubtful, progress.error


@pytest.mark.parametrize("level", [0, 1])
def test_T05_protocol_V1_has_no_usual_transaction(level: int) -> None:
    made = ready(level)
    assert not usual(made).begin(made.world.now)
    made.transactions.begin(made.world.now)
    assert not usual(made).may_commit()


def test_a_transaction_begins_between_transactions_only() -> None:
    made = Transacting()
    assert not usual(made).begin(0.0)
    made.ready()
    assert usual(made).begin(0.0)
    assert not usual(made).begin(0.0)
    assert made.transactions.state is TransactionState.IN_TRANSACTION


def test_T02_none_begins_before_the_outcome_of_the_last_one_is_taken() -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    in_a_transaction(made)
    pending = made.commits()
    assert made.transactions.state is TransactionState.READY
    assert not usual(made).begin(made.world.now)
    assert made.transactions.take(pending)
    assert usual(made).begin(made.world.now)


def broken(made: Transacting) -> None:
    made.transactions.record_refused(RequestTimedOutError("refused"))


def doubtful(made: Transacting) -> None:
    made.transactions._progress.doubtful = True


def with_offsets(made: Transacting) -> None:
    made.transactions.send_offsets(OFFSETS, MEMBER)


def while_a_call_is_in_flight(made: Transacting) -> None:
    with_offsets(made)
    made.turn()
    made.transactions._progress.offsets.clear()


def committing(made: Transacting) -> None:
    in_a_transaction(made)
    made.transactions.commit()


def aborting(made: Transacting) -> None:
    made.transactions.abort()


@pytest.mark.parametrize("what", [broken, doubtful, with_offsets, while_a_call_is_in_flight, committing, aborting])
def test_a_commit_is_usual_only_if_nothing_but_records_is_in_it(what: Callable[[Transacting], None]) -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    assert usual(made).may_commit()
    what(made)
    before = state_of(made)
    assert not usual(made).may_commit()
    assert state_of(made) == before


def test_a_commit_waits_for_a_sequence_that_is_broken_or_in_flight() -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    sequence = TransactionalSequence(5, epochs=made.transactions)
    assert usual(made).may_send(sequence)
    sequence.state = SequenceState.DRAINING
    assert not usual(made).may_send(sequence)
    sequence.state = SequenceState.FLOWING
    sequence.in_flight.append(a_batch())
    assert not usual(made).may_send(sequence)


def a_batch() -> Batch:
    """Of three records."""
    producing = Producing(1)
    producing.send(count=3)
    batch: Batch = producing.buffers.flush_open()[0]
    return batch


def test_P16_the_batch_is_numbered_from_0_in_each_epoch_and_goes_on_within_it() -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    sequence, found = TransactionalSequence(5, epochs=made.transactions), []
    for _ in range(2):
        batch = a_batch()
        usual(made).leaves(batch, sequence, LEADER, 0.0)
        found.append((batch.producer_id, batch.epoch, batch.sequence, batch.transactional))
        assert (sequence.state, sequence.leader) == (SequenceState.PROBING if len(found) == 1 else SequenceState.FLOWING, LEADER)
        usual(made).stored(sequence, 0.0)
    producer, epoch = made.transactions.producer
    assert found == [(producer, epoch, 0, True), (producer, epoch, 3, True)]
    assert usual(made).started()
    usual(made).commit()
    usual(made).ended(producer, epoch + 1)
    usual(made).begin(0.0)
    batch = a_batch()
    usual(made).leaves(batch, sequence, LEADER, 0.0)
    assert (batch.epoch, batch.sequence, sequence.state) == (epoch + 1, 0, SequenceState.PROBING)


@pytest.mark.parametrize(("took", "early"), [(0.01, False), (0.02, True)])
def test_whether_a_usual_transaction_came_too_early_is_learned(took: float, *, early: bool) -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    sequence = TransactionalSequence(5, epochs=made.transactions)
    made.transactions.markers.ended(4.0, 0.001)
    usual(made).leaves(a_batch(), sequence, LEADER, 5.0)
    usual(made).stored(sequence, 5.0 + took)
    assert bool(made.transactions.markers.pause) == early


def test_I09_a_new_leader_is_probed() -> None:
    made = ready()
    made.transactions.begin(made.world.now)
    sequence = TransactionalSequence(5, epochs=made.transactions)
    usual(made).leaves(a_batch(), sequence, LEADER, 0.0)
    usual(made).stored(sequence, 0.0)
    usual(made).leaves(a_batch(), sequence, Leader(2), 0.0)
    assert (sequence.state, sequence.leader, sequence.next_sequence) == (SequenceState.PROBING, Leader(2), 6)


def test_a_broken_sequence_may_not_be_repeated_and_a_fresh_one_may() -> None:
    made = ready()
    sequence = TransactionalSequence(5, epochs=made.transactions)
    assert sequence.repeats(LEADER)
    sequence._step(SequenceEvent.GAP)
    assert not sequence.repeats(LEADER)


def test_no_record_is_accepted_while_it_commits_and_afterwards() -> None:
    made = ready()
    usual(made).begin(0.0)
    usual(made).commit()
    assert isinstance(made.gates[-1], IllegalStateError)
    assert "is committing" in str(made.gates[-1])
    usual(made).ended(1, 1)
    assert "has no open transaction" in str(made.gates[-1])


def test_T02_a_commit_that_is_handed_over_is_pending_and_ends_once() -> None:
    made = ready()
    usual(made).begin(0.0)
    in_a_transaction(made)
    usual(made).commit()
    made.transactions.adopt_commit()
    assert made.records.flushed
    with pytest.raises(IllegalStateError, match="Call commit_transaction again"):
        made.transactions.abort()
    pending = made.transactions.commit()
    made.ends(made.one(Api.END_TXN))
    assert made.transactions.take(pending)


@pytest.mark.parametrize("code", [0, 120])
def test_T01_an_EndTxn_that_is_handed_over_is_the_only_one(code: int) -> None:
    made = ready()
    usual(made).begin(0.0)
    in_a_transaction(made)
    usual(made).commit()
    made.transactions.adopt_commit()
    request = made.transactions.adopt_end(made.world.now, made.coordinator)
    assert (request.api, request.node) == (Api.END_TXN, made.coordinator)
    assert made.turn() == []
    pending = made.transactions.commit()
    sent = made.world._write(request)
    made.ends(sent, code)
    if code:
        with pytest.raises(TransactionAbortableError):
            made.transactions.take(pending)
    else:
        assert made.transactions.take(pending)
        assert made.transactions.producer.epoch == made.epoch


def test_the_coordinator_is_known_once_it_was_found() -> None:
    made = Transacting()
    assert made.transactions.known_coordinator() is None
    made.ready()
    known = made.transactions.known_coordinator()
    assert known is not None
    assert known.node == made.coordinator
