"""A transactional producer's requests: which comes when, and what each answer means (T01–T11)."""
from __future__ import annotations

from typing import Final

import pytest

from pyclient.codec.apis import Api
from pyclient.core.transactions.meaning import Meaning, answer_meaning, meaning
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import BY_CODE, IllegalStateError, KafkaError, ProducerFencedError, TransactionAbortableError, error_for
from pyclient.records import OffsetAndMetadata
from tests.unit.core.transacting import A0, A1, ID, MEMBER, OFFSETS, TIMEOUT, Transacting, added, committed, refuse
from tests.unit.core.world import Sent

CONCURRENT, FENCED, OLD_EPOCH, ABORTABLE, ID_AUTHORIZATION, NOT_COORDINATOR, UNKNOWN = 51, 90, 47, 120, 53, 16, -1
TOPIC_AUTHORIZATION, UNKNOWN_MEMBER, TIMEOUT_TOO_LONG, MESSAGE_TOO_LARGE, UNKNOWN_PRODUCER_ID = 29, 25, 50, 10, 59
PROTOCOLS = pytest.mark.parametrize("level", [1, 2], ids=["V1", "V2"])


# ---- the usual way --------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_a_producer_is_initialized_with_its_id_and_timeout(level: int) -> None:
    it = Transacting(level)
    pending = it.transactions.initialize()
    sent = it.one(Api.INIT_PRODUCER_ID)
    assert (sent.body.transactional_id, sent.body.transaction_timeout.total_seconds(), sent.body.producer_id) == ("x", TIMEOUT, -1)
    assert it.transactions.take(pending) is None
    it.gives_id(sent)
    assert it.transactions.take(pending)
    assert (it.transactions.state, it.transactions.current) == (TransactionState.READY, ID)


def test_T05_in_protocol_V1_partitions_and_groups_are_added_before_they_are_used() -> None:
    it = Transacting(1).begun()
    assert not it.transactions.admits(A0, it.world.now, repeated=False)
    assert not it.transactions.admits(A1, it.world.now, repeated=False)
    sent = it.one(Api.ADD_PARTITIONS_TO_TXN)
    assert [(topic.name, tuple(topic.partitions)) for topic in sent.body.v3_and_below_topics] == [("a", (0, 1))]
    added(sent)
    assert it.transactions.admits(A0, it.world.now, repeated=False)
    assert it.transactions.produce_versions.high == 11
    pending = it.transactions.send_offsets(OFFSETS, MEMBER)
    group = it.one(Api.ADD_OFFSETS_TO_TXN)
    assert group.body.group_id == "g"
    group.reply(error_code=0)
    offsets = it.one(Api.TXN_OFFSET_COMMIT)
    assert offsets.version == 4
    committed(offsets)
    assert it.transactions.take(pending)
    it.transactions.commit()
    end = it.one(Api.END_TXN)
    assert (end.version, end.body.committed) == (4, True)


def test_T05_in_protocol_V2_nothing_is_added_and_the_end_gives_the_next_epoch() -> None:
    it = Transacting(2).begun()
    assert it.transactions.admits(A0, it.world.now, repeated=False)
    it.transactions.left(A0, it.world.now)
    assert (it.transactions.produce_versions.low, it.turn()) == (12, [])
    it.transactions.send_offsets(OFFSETS, MEMBER)
    offsets = it.one(Api.TXN_OFFSET_COMMIT)
    assert offsets.version == 5
    committed(offsets)
    before = it.transactions.producer
    pending = it.transactions.commit()
    end = it.one(Api.END_TXN)
    assert end.version == 5
    it.ends(end)
    assert it.transactions.take(pending)
    assert it.transactions.producer == (before.id, before.epoch + 1)


def test_T04_offsets_carry_the_members_identity() -> None:
    it = Transacting(2).begun()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    body = it.one(Api.TXN_OFFSET_COMMIT).body
    assert (body.group_id, body.generation_id, body.member_id, body.group_instance_id) == ("g", 4, "m", "i")
    (partition,) = body.topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata) == (5, 3, "note")


# ---- order ----------------------------------------------------------------------------------------------------------


def test_T01_one_request_is_in_flight_partitions_before_offsets_before_the_end() -> None:
    it = Transacting(1).begun()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    it.transactions.admits(A0, it.world.now, repeated=False)
    it.transactions.commit()
    for api in (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT):
        sent = it.one(api)
        assert it.turn() == []
        refuse(sent, 0)
    assert it.one(Api.END_TXN).body.committed


@PROTOCOLS
def test_T04_two_calls_of_send_offsets_are_sent_one_after_the_other_and_each_has_its_own_outcome(level: int) -> None:
    """The second comes before the first is answered; in protocol V1 the group is added once."""
    it = Transacting(level).begun()
    first = it.transactions.send_offsets(OFFSETS, MEMBER)
    sent = it.turn()
    second = it.transactions.send_offsets({A0: OffsetAndMetadata(9)}, MEMBER)
    committing = it.transactions.commit()
    if level == 1:
        refuse(sent.pop(), 0)
        sent = it.turn()
    assert [offset_in(each) for each in sent] == [5]
    committed(sent.pop())
    assert (it.transactions.take(first), it.transactions.take(second)) == (True, None)
    sent = it.turn()
    assert [offset_in(each) for each in sent] == [9]
    committed(sent.pop())
    assert it.transactions.take(second)
    it.ends(it.one(Api.END_TXN))
    assert it.transactions.take(committing)


@PROTOCOLS
def test_T04_the_failure_of_the_first_send_offsets_fails_the_second_which_is_not_sent(level: int) -> None:
    it = Transacting(level).begun()
    pending = [it.transactions.send_offsets(each, MEMBER) for each in (OFFSETS, {A1: OffsetAndMetadata(9)})]
    if level == 1:
        refuse(it.one(Api.ADD_OFFSETS_TO_TXN), 0)
    committed(it.one(Api.TXN_OFFSET_COMMIT), UNKNOWN_MEMBER)
    assert it.turn() == []
    for each in pending:
        with pytest.raises(TransactionAbortableError):
            it.transactions.take(each)


def offset_in(sent: Sent) -> int:
    """The only offset of a TxnOffsetCommit."""
    assert sent.api is Api.TXN_OFFSET_COMMIT
    return int(sent.body.topics[0].partitions[0].committed_offset)


@PROTOCOLS
def test_T01_the_end_waits_for_every_record(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    it.records.flying = 1
    it.transactions.commit()
    assert it.records.flushed
    assert it.turn() == []
    it.records.flying = 0
    assert it.one(Api.END_TXN).body.committed


@PROTOCOLS
def test_T07_a_transaction_without_records_sends_no_request(level: int) -> None:
    it = Transacting(level).begun()
    pending = it.transactions.commit()
    assert it.turn() == []
    assert it.transactions.take(pending)
    it.transactions.begin(it.world.now)
    it.transactions.abort()
    assert it.turn() == []
    assert it.transactions.state is TransactionState.READY


@PROTOCOLS
def test_T07_an_abort_is_legal_and_needed_after_every_send_failed(level: int) -> None:
    it = Transacting(level).begun()
    it.transactions.batch_failed(error_for(MESSAGE_TOO_LARGE))
    assert it.transactions.state is TransactionState.ABORTABLE_ERROR
    pending = it.transactions.abort()
    for sent in it.turn():
        assert sent.api is Api.INIT_PRODUCER_ID
        it.gives_id(sent)
        it.turn()
    assert it.transactions.take(pending)


# ---- pending calls --------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_T02_a_call_that_did_not_finish_may_only_be_repeated_and_has_one_outcome(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    first = it.transactions.commit()
    with pytest.raises(IllegalStateError, match="Call commit_transaction again"):
        it.transactions.abort()
    end = it.one(Api.END_TXN)
    assert it.transactions.commit() is first
    it.ends(end)
    with pytest.raises(IllegalStateError, match="commit_transaction did not finish in time"):
        it.transactions.begin(it.world.now)
    assert it.transactions.take(it.transactions.commit())
    it.transactions.begin(it.world.now)


def test_T02_a_commit_that_failed_after_its_caller_gave_up_may_be_aborted() -> None:
    it = Transacting(2).begun()
    it.sends()
    it.transactions.commit()
    it.transactions.batch_failed(error_for(MESSAGE_TOO_LARGE))
    it.transactions.abort()
    assert it.one(Api.END_TXN).body.committed is False


# ---- abort ----------------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_T03_an_abort_fails_what_has_not_left_and_waits_for_what_has(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    it.records.open, it.records.flying = 2, 1
    it.transactions.abort()
    assert it.turn() == []
    assert [type(error) for error in it.records.failed] == [TransactionAbortableError] * 2
    it.records.flying = 0
    assert it.one(Api.END_TXN).body.committed is False


@PROTOCOLS
def test_T03_after_a_failure_what_has_not_left_fails_before_the_abort(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    it.records.open, it.records.flying = 2, 1
    it.transactions.batch_failed(error_for(MESSAGE_TOO_LARGE))
    assert it.turn() == []
    assert [type(error) for error in it.records.failed] == [TransactionAbortableError] * 2
    assert it.transactions.state is TransactionState.ABORTABLE_ERROR


def test_after_a_failure_in_protocol_V1_the_next_transaction_has_a_new_epoch() -> None:
    it = Transacting(1).begun()
    it.sends()
    it.transactions.batch_failed(error_for(MESSAGE_TOO_LARGE))
    before = it.transactions.producer
    pending = it.transactions.abort()
    it.ends(it.one(Api.END_TXN))
    bump = it.one(Api.INIT_PRODUCER_ID)
    assert (bump.body.producer_id, bump.body.producer_epoch) == (before.id, before.epoch)
    it.gives_id(bump)
    assert it.transactions.take(pending)
    assert it.transactions.producer.epoch == before.epoch + 1


def test_after_a_commit_in_protocol_V1_the_epoch_stays() -> None:
    it = Transacting(1).begun()
    it.sends()
    before = it.transactions.producer
    assert it.transactions.take(it.commits())
    assert it.turn() == []
    assert it.transactions.producer == before


# ---- protocol -------------------------------------------------------------------------------------------------------


def test_T05_the_end_may_give_another_producer_id() -> None:
    """When the epochs of one are used up."""
    it = Transacting(2).begun()
    it.sends()
    pending = it.transactions.commit()
    it.one(Api.END_TXN).reply(error_code=0, producer_id=ID + 1, producer_epoch=0)
    assert it.transactions.take(pending)
    assert it.transactions.producer == (ID + 1, 0)


def test_T06_protocol_V2_begins_after_a_transaction_with_a_new_epoch() -> None:
    it = Transacting(1).begun()
    it.finalize(2)
    it.sends()
    assert it.transactions.produce_versions.high == 11
    pending = it.transactions.commit()
    end = it.one(Api.END_TXN)
    assert end.version == 4
    it.ends(end)
    bump = it.one(Api.INIT_PRODUCER_ID)
    assert bump.body.producer_id == ID
    assert it.transactions.take(pending) is None
    it.gives_id(bump)
    assert it.transactions.take(pending)
    assert it.transactions.produce_versions.low == 12


def test_T06_protocol_V1_begins_with_the_next_transaction() -> None:
    it = Transacting(2).begun()
    it.finalize(1)
    it.sends()
    assert it.transactions.produce_versions.low == 12
    assert it.transactions.take(it.commits())
    it.transactions.begin(it.world.now)
    assert it.transactions.produce_versions.high == 11
    assert it.turn() == []


def test_another_transactional_id_may_follow_while_no_transaction_is_open() -> None:
    it = Transacting(2).ready()
    with pytest.raises(IllegalStateError, match="initialized already"):
        it.transactions.initialize()
    pending = it.transactions.initialize("y")
    sent = it.one(Api.INIT_PRODUCER_ID)
    assert sent.body.transactional_id == "y"
    it.gives_id(sent)
    assert it.transactions.take(pending)
    it.transactions.begin(it.world.now)
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        it.transactions.initialize("z")


# ---- errors ---------------------------------------------------------------------------------------------------------

REQUESTS = {  # by the rows of the table in the checklist
    Api.INIT_PRODUCER_ID: {ID_AUTHORIZATION: "REFUSED", ABORTABLE: "REFUSED", 31: "REFUSED", FENCED: "FATAL", OLD_EPOCH: "FATAL", TIMEOUT_TOO_LONG: "FATAL"},
    Api.ADD_PARTITIONS_TO_TXN: {
        FENCED: "FATAL", OLD_EPOCH: "FATAL", ID_AUTHORIZATION: "FATAL", 48: "FATAL", 49: "FATAL", 59: "ABORT", 29: "ABORT", ABORTABLE: "ABORT", 17: "ABORT"},
    Api.ADD_OFFSETS_TO_TXN: {
        FENCED: "FATAL", OLD_EPOCH: "FATAL", ID_AUTHORIZATION: "FATAL", 48: "FATAL", 49: "FATAL", 59: "ABORT", 30: "ABORT", ABORTABLE: "ABORT", 17: "FATAL"},
    Api.TXN_OFFSET_COMMIT: {
        FENCED: "FATAL", OLD_EPOCH: "FATAL", ID_AUTHORIZATION: "FATAL", 48: "FATAL", 49: "FATAL", 59: "FATAL", 29: "ABORT", 30: "ABORT", 25: "ABORT",
        22: "ABORT", 113: "ABORT", 69: "ABORT", 82: "ABORT", ABORTABLE: "ABORT", 17: "FATAL"},
    Api.END_TXN: {FENCED: "FATAL", OLD_EPOCH: "FATAL", ID_AUTHORIZATION: "FATAL", 48: "FATAL", 49: "FATAL", 59: "ABORT", ABORTABLE: "ABORT", UNKNOWN: "FATAL"},
    Api.PRODUCE: {
        FENCED: "FATAL", OLD_EPOCH: "ABORT", ID_AUTHORIZATION: "FATAL", 48: "ABORT", 49: "FATAL", 45: "ABORT", 59: "ABORT", 29: "ABORT", 10: "ABORT", ABORTABLE: "ABORT"},
}


@pytest.mark.parametrize(("api", "code", "expected"), [
    pytest.param(api, code, Meaning[name], id=f"{api.title} {BY_CODE[code].name}") for api, rows in REQUESTS.items() for code, name in rows.items()])
def test_the_meaning_of_an_error_depends_on_the_request(api: Api, code: int, expected: Meaning) -> None:
    assert meaning(api, error_for(code)) is expected


def test_an_abort_that_is_refused_as_abortable_is_not_repeated_without_end() -> None:
    assert meaning(Api.END_TXN, error_for(ABORTABLE), aborting=True) is Meaning.FATAL


@pytest.mark.parametrize("api", [api for api in REQUESTS if api is not Api.PRODUCE], ids=lambda api: api.title)
def test_every_retriable_answer_of_a_coordinator_is_repeated(api: Api) -> None:
    for code, kind in BY_CODE.items():
        expected = None if not kind.retriable else Meaning.FIND if code in (NOT_COORDINATOR, 15) or (api is Api.TXN_OFFSET_COMMIT and code == 7) else Meaning.RETRY
        assert answer_meaning(api, error_for(code)) is expected, error_for(code)


def test_a_transaction_that_is_still_being_finished_is_waited_for_a_moment() -> None:
    """The first request of the next one comes again after 20 ms, not after a back-off."""
    it = Transacting(1).begun()
    it.transactions.admits(A0, it.world.now, repeated=False)
    added(it.one(Api.ADD_PARTITIONS_TO_TXN), CONCURRENT)
    assert it.turn() == []
    (again,) = it.after(0.021)
    added(again)
    it.transactions.admits(A1, it.world.now, repeated=False)
    added(it.one(Api.ADD_PARTITIONS_TO_TXN), CONCURRENT)
    assert it.after(0.5) == []


FIRST_OF_OFFSETS: Final = {1: Api.ADD_OFFSETS_TO_TXN, 2: Api.TXN_OFFSET_COMMIT}
"""What begins a transaction with offsets, by protocol."""


@pytest.mark.parametrize("level", FIRST_OF_OFFSETS)
def test_offsets_that_begin_a_transaction_come_again_after_a_moment_too(level: int) -> None:
    it = Transacting(level).begun()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    refuse(it.one(FIRST_OF_OFFSETS[level]), CONCURRENT)
    assert it.turn() == []
    (again,) = it.after(0.021)
    assert again.api is FIRST_OF_OFFSETS[level]


@pytest.mark.parametrize("level", FIRST_OF_OFFSETS)
def test_offsets_behind_records_are_repeated_after_a_back_off(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    refuse(it.one(FIRST_OF_OFFSETS[level]), CONCURRENT)
    assert it.after(0.5) == []


def test_a_first_request_that_was_refused_lengthens_the_pause_though_a_batch_is_stored_before_it_is_repeated() -> None:
    it = Transacting(2).begun()
    it.sends()
    it.again()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    committed(it.one(Api.TXN_OFFSET_COMMIT), CONCURRENT)
    pause = it.transactions.markers.pause
    assert pause > 0
    it.sends()
    it.transactions.markers.stored(it.world.now)
    (again,) = it.after(0.021)
    committed(again)
    assert it.transactions.markers.pause == pause


@pytest.mark.parametrize("commits", [True, False])
def test_the_first_request_waits_for_the_markers_of_the_last_transaction_once_one_was_refused(*, commits: bool) -> None:
    it = Transacting(1).begun()
    it.sends()
    it.again(commits=commits)
    it.transactions.admits(A0, it.world.now, repeated=False)
    added(it.one(Api.ADD_PARTITIONS_TO_TXN), CONCURRENT)
    (again,) = it.after(0.021)
    added(again)
    it.again(commits=commits)
    pause = it.transactions.markers.pause
    assert pause > 0
    it.transactions.send_offsets(OFFSETS, MEMBER)
    assert it.turn() == []
    (sent,) = it.after(pause)
    assert sent.api is Api.ADD_OFFSETS_TO_TXN


def test_a_request_that_was_never_sent_says_nothing_about_markers() -> None:
    """Its coordinator was not found before the transaction timed out."""
    it = Transacting(2).begun()
    it.sends()
    it.again()
    pending = it.transactions.send_offsets(OFFSETS, MEMBER)
    assert [sent.api for sent in it.world.turn(it.transactions, it.calls)] == [Api.FIND_COORDINATOR]
    it.world.after(TIMEOUT + 1)
    it.world.turn(it.transactions, it.calls)
    assert pending.error is not None
    assert it.transactions.markers.pause == 0.0


def test_offsets_that_come_too_early_in_protocol_V2_are_answered_late_and_the_next_ones_wait() -> None:
    it = Transacting(2).begun()
    it.sends()
    it.again()
    it.transactions.send_offsets(OFFSETS, MEMBER)
    sent = it.one(Api.TXN_OFFSET_COMMIT)
    it.world.after(0.021)
    committed(sent)
    it.again()
    pause = it.transactions.markers.pause
    assert pause > 0
    it.transactions.send_offsets(OFFSETS, MEMBER)
    assert it.turn() == []
    (sent,) = it.after(pause)
    committed(sent)
    assert it.transactions.markers.pause < pause


def test_after_InitProducerId_no_markers_are_waited_for() -> None:
    it = Transacting(2).begun()
    it.sends()
    it.transactions.markers.ended(it.world.now, 0.0)
    it.transactions.markers.answered(1.0, refused=False)
    it.records.flying = 0
    it.transactions.take(it.commits())
    pending = it.transactions.initialize("y")
    assert it.transactions.markers.due > it.world.now
    (sent,) = it.after(it.transactions.markers.pause)
    it.gives_id(sent)
    assert it.transactions.take(pending)
    assert it.transactions.markers.due == 0.0


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    it = Transacting(2).begun()
    it.sends()
    pending = it.transactions.commit()
    sent = it.one(Api.END_TXN)
    it.coordinator = 3
    it.ends(sent, NOT_COORDINATOR)
    (again,) = it.after(1.0)
    assert (sent.node, again.node) == (2, 3)
    it.ends(again)
    assert it.transactions.take(pending)


def test_an_abortable_error_closes_the_gate_until_the_abort() -> None:
    it = Transacting(1).begun()
    it.transactions.admits(A0, it.world.now, repeated=False)
    added(it.one(Api.ADD_PARTITIONS_TO_TXN), TOPIC_AUTHORIZATION)
    assert isinstance(it.gates[-1], TransactionAbortableError)
    with pytest.raises(TransactionAbortableError, match="not allowed to WRITE to topic 'a'") as raised:
        it.transactions.commit()
    assert raised.value.abortable
    assert not raised.value.fatal
    with pytest.raises(IllegalStateError, match="abort_transaction"):
        it.transactions.begin(it.world.now)
    it.transactions.abort()
    assert it.turn() == []
    assert it.transactions.state is TransactionState.READY


def test_T09_an_outdated_member_cannot_commit_its_offsets() -> None:
    it = Transacting(2).begun()
    pending = it.transactions.send_offsets(OFFSETS, MEMBER)
    committed(it.one(Api.TXN_OFFSET_COMMIT), UNKNOWN_MEMBER)
    with pytest.raises(TransactionAbortableError):
        it.transactions.take(pending)
    it.transactions.abort()
    assert it.one(Api.END_TXN).body.committed is False


@PROTOCOLS
def test_T10_an_unknown_error_of_the_end_is_no_commit(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    pending = it.transactions.commit()
    it.ends(it.one(Api.END_TXN), UNKNOWN)
    with pytest.raises(KafkaError) as raised:
        it.transactions.take(pending)
    assert raised.value.fatal


def test_T10_a_producer_id_that_the_coordinator_has_forgotten_ends_the_transaction_and_its_epoch() -> None:
    it = Transacting(1).begun()
    it.sends()
    pending = it.transactions.commit()
    it.ends(it.one(Api.END_TXN), UNKNOWN_PRODUCER_ID)
    with pytest.raises(TransactionAbortableError):
        it.transactions.take(pending)
    pending = it.transactions.abort()
    it.ends(it.one(Api.END_TXN))
    it.gives_id(it.one(Api.INIT_PRODUCER_ID))
    assert it.transactions.take(pending)


def test_T10_an_abort_that_finds_the_producer_id_forgotten_is_not_repeated_without_end() -> None:
    it = Transacting(2).begun()
    it.sends()
    pending = it.transactions.abort()
    it.ends(it.one(Api.END_TXN), UNKNOWN_PRODUCER_ID)
    with pytest.raises(KafkaError) as raised:
        it.transactions.take(pending)
    assert raised.value.fatal


@pytest.mark.parametrize("state", [each for each in TransactionState if each is not TransactionState.FATAL_ERROR], ids=str)
def test_a_fatal_error_is_possible_in_every_state(state: TransactionState) -> None:
    it = Transacting(2)
    it.transactions.state = state
    it.transactions.batch_failed(error_for(FENCED))
    assert it.transactions.state is TransactionState.FATAL_ERROR
    it.transactions.batch_failed(error_for(FENCED))
    assert it.transactions.state is TransactionState.FATAL_ERROR


@PROTOCOLS
@pytest.mark.parametrize("call", ["commit", "abort"])
@pytest.mark.parametrize("code", [FENCED, OLD_EPOCH, ID_AUTHORIZATION])
def test_a_producer_that_learns_at_the_end_that_it_is_fenced_stops_for_good(level: int, call: str, code: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    pending = getattr(it.transactions, call)()
    it.ends(it.one(Api.END_TXN), code)
    with pytest.raises(KafkaError) as raised:
        it.transactions.take(pending)
    assert raised.value.fatal
    assert it.transactions.state is TransactionState.FATAL_ERROR


@PROTOCOLS
def test_a_fenced_producer_stops_for_good(level: int) -> None:
    it = Transacting(level).begun()
    it.sends()
    it.records.flying = 3
    it.transactions.batch_failed(error_for(FENCED))
    assert len(it.records.failed) == 3
    assert isinstance(it.gates[-1], ProducerFencedError)
    for call in (it.transactions.initialize, it.transactions.commit, it.transactions.abort):
        with pytest.raises(ProducerFencedError):
            call()
    assert it.turn() == []


def test_a_refused_id_may_be_asked_for_again() -> None:
    it = Transacting(2)
    pending = it.transactions.initialize()
    it.gives_id(it.one(Api.INIT_PRODUCER_ID), ID_AUTHORIZATION)
    with pytest.raises(KafkaError, match="not allowed to WRITE with transactional id 'x'"):
        it.transactions.take(pending)
    it.ready()


def test_a_request_that_only_gets_retriable_errors_fails_the_transaction_when_its_time_is_over() -> None:
    """Such as offsets of a topic that was deleted: the coordinator has aborted the transaction by then."""
    it = Transacting(2).begun()
    pending = it.transactions.send_offsets(OFFSETS, MEMBER)
    deleted = 3
    committed(it.one(Api.TXN_OFFSET_COMMIT), deleted)
    for _ in range(20):
        for sent in it.after(TIMEOUT / 10):
            committed(sent, deleted)
    with pytest.raises(TransactionAbortableError):
        it.transactions.take(pending)


# ---- the gate -------------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_records_may_be_sent_in_a_transaction_only_and_the_error_names_the_next_call(level: int) -> None:
    it = Transacting(level)
    assert "init_transactions" in str(it.transactions.gate())
    it.ready()
    assert "begin_transaction" in str(it.gates[-1])
    it.transactions.begin(it.world.now)
    assert it.gates[-1] is None
    it.transactions.commit()
    assert isinstance(it.gates[-1], IllegalStateError)


@pytest.mark.parametrize("call", ["commit", "abort", "initialize"])
def test_an_illegal_call_changes_nothing_and_names_the_legal_ones(call: str) -> None:
    it = Transacting(2)
    if call == "initialize":
        it.begun()
    before = it.transactions.state
    with pytest.raises(IllegalStateError, match=r"is not allowed in state \w+: .* Allowed now: \w+"):
        getattr(it.transactions, call)()
    assert it.transactions.state is before
