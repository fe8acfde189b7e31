"""The texts of delivery errors: cause, attempts, and whether the records may be stored (P17, P18, P24)."""
from __future__ import annotations

import pytest

from pyclient.buffers.batch import Batch
from pyclient.core.sending.delivery_errors import expired, given_up, record_errors
from pyclient.core.sending.produce_outcome import GiveUp, TryAgain
from pyclient.errors import InvalidRecordError, KafkaError, NotLeaderOrFollowerError
from pyclient.records import TopicPartition
from tests.unit.buffers.accumulators import Clock, accumulator


def unsent(records: int = 2) -> Batch:
    clock = Clock()
    buffers = accumulator(clock)
    orders = buffers.topic("orders")
    assert orders is not None
    for _ in range(records):
        buffers.append(orders, 0, -1, None, b"v", None)
    (batch,) = buffers.flush_open()
    return batch


@pytest.mark.parametrize(("last_error", "leader", "reason"), [
    (NotLeaderOrFollowerError("moved"), 3, "the last error was: .*moved"),
    (None, None, "its partition has no leader"),
    (None, 3, "node 3, its leader, gave no answer"),
])
def test_P18_an_expired_batch_names_the_last_error_or_its_leader(last_error: KafkaError | None, leader: int | None, reason: str) -> None:
    error = expired(unsent(), 103.5, 3.0, last_error, leader)
    assert error.topic_partition == TopicPartition("orders", 0)
    with pytest.raises(KafkaError, match=rf"2 records .* delivery_timeout_ms=3000 \(3.5 s, 0 attempts\); {reason}.* They were not stored."):
        raise error


def test_P17_the_error_of_a_batch_in_doubt_says_that_it_may_be_stored() -> None:
    batch = unsent(1)
    batch.in_doubt = True
    assert "1 record may or may not be stored; given up after 0 attempts: moved" in str(given_up(batch, NotLeaderOrFollowerError("moved")))
    assert "It may or may not be stored." in str(expired(batch, 103.0, 3.0, None, 1))


def test_the_stored_error_is_not_changed() -> None:
    cause = NotLeaderOrFollowerError("moved")
    assert isinstance(given_up(unsent(), cause), NotLeaderOrFollowerError)
    assert (str(cause), cause.topic_partition) == ("moved", None)


def test_P24_only_a_refusal_has_errors_of_single_records() -> None:
    cause = InvalidRecordError("invalid")
    errors = record_errors(GiveUp(cause, records={1: "no key"}))
    assert errors is not None
    assert {index: error.message for index, error in errors.items()} == {1: "the broker refuses this record: no key"}
    assert record_errors(GiveUp(cause)) is None
    assert record_errors(TryAgain(cause)) is None
