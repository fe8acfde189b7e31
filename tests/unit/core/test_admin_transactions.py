"""Transactions as Admin asks of them: the requests, and what each response means."""
from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import ProducerState, TransactionDescription, TransactionListing
from pyclient.codec.apis import Api
from pyclient.core.admin.transactions import abort_marker_call, describe_producers_call, describe_transaction_call, hanging, left_open, list_transactions_call
from pyclient.core.calls import Again, Broker, Call, Coordinator, Done, KeyType
from pyclient.errors import ClusterAuthorizationError, CoordinatorLoadInProgressError, NotCoordinatorError, TransactionalIdNotFoundError
from pyclient.records import TopicPartition
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LOADING, NOT_COORDINATOR, NOT_FOUND, NOT_ALLOWED = 14, 16, 105, 31


def listing(longer_than_ms: int | None = None) -> Call:
    return list_transactions_call(node=2, states=["Ongoing"], producer_ids=[7], longer_than_ms=longer_than_ms, finish=ignore, deadline=None)


def describing() -> Call:
    return describe_transaction_call("payments", finish=ignore, deadline=None)


def described(**fields: Any) -> Any:
    row = {"error_code": 0, "transactional_id": "payments", "transaction_state": "Ongoing", "transaction_timeout": datetime.timedelta(seconds=60),
           "transaction_start_time": datetime.datetime.fromtimestamp(5, datetime.timezone.utc), "producer_id": 7, "producer_epoch": 3,
           "topics": [{"topic": "t", "partitions": [1, 0]}]}
    return describing().classify(answer(Api.DESCRIBE_TRANSACTIONS, 0, transaction_states=[row | fields]))


@pytest.mark.parametrize("version", versions(Api.LIST_TRANSACTIONS))
def test_listing_asks_one_broker_and_filters_in_every_version(version: int) -> None:
    call = listing()
    assert call.target == Broker(2)
    read = body(call, version)
    assert (read.state_filters, read.producer_id_filters, getattr(read, "duration_filter", -1)) == (("Ongoing",), (7,), -1)


def test_a_duration_is_asked_only_of_brokers_that_filter_by_it() -> None:
    limited = listing(1500)
    assert limited.versions is not None
    assert limited.versions.low == 1
    assert body(limited, 1).duration_filter == 1500


@pytest.mark.parametrize("version", versions(Api.LIST_TRANSACTIONS))
def test_what_is_listed_is_a_row_for_each_id(version: int) -> None:
    rows = [{"transactional_id": "payments", "producer_id": 7, "transaction_state": "Ongoing"}]
    found = listing().classify(answer(Api.LIST_TRANSACTIONS, version, error_code=0, unknown_state_filters=[], transaction_states=rows))
    assert found == Done([TransactionListing("payments", 7, "Ongoing")])


def test_a_coordinator_that_loads_is_asked_again() -> None:
    found = listing().classify(answer(Api.LIST_TRANSACTIONS, 0, error_code=LOADING, unknown_state_filters=[], transaction_states=[]))
    assert isinstance(found, Again)
    assert isinstance(found.error, CoordinatorLoadInProgressError)


def test_a_transaction_is_described_with_its_partitions_in_order() -> None:
    assert describing().target == Coordinator("payments", KeyType.TRANSACTION)
    assert body(describing(), 0).transactional_ids == ("payments",)
    assert described() == Done(TransactionDescription("payments", "Ongoing", 7, 3, 60.0, 5000, (ONE, TWO)))


def test_an_id_without_an_open_transaction_has_no_start() -> None:
    found = described(transaction_start_time=datetime.datetime.fromtimestamp(-0.001, datetime.timezone.utc), topics=[], transaction_state="Empty")
    assert isinstance(found, Done)
    assert (found.result.started_at, found.result.partitions) == (None, ())


def test_an_id_that_is_not_known_is_final_and_one_that_moved_is_looked_up() -> None:
    assert isinstance(described(error_code=NOT_FOUND), TransactionalIdNotFoundError)
    moved = described(error_code=NOT_COORDINATOR)
    assert isinstance(moved, Again)
    assert isinstance(moved.error, NotCoordinatorError)
    assert moved.elsewhere


def test_producers_have_none_for_what_brokers_write_as_minus_one() -> None:
    call = describe_producers_call([ONE, TWO], node=2, finish=ignore, deadline=None)
    assert [(each.name, each.partition_indexes) for each in body(call, 0).topics] == [("t", (0, 1))]
    rows = [{"producer_id": 7, "producer_epoch": 3, "last_sequence": 0, "last_timestamp": 99, "coordinator_epoch": -1, "current_txn_start_offset": 5},
            {"producer_id": 8, "producer_epoch": 0, "last_sequence": -1, "last_timestamp": -1, "coordinator_epoch": 0, "current_txn_start_offset": -1}]
    response = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0, "error_message": None, "active_producers": rows}]}]
    found = call.classify(answer(Api.DESCRIBE_PRODUCERS, 0, topics=response))
    assert found == Done({ONE: (ProducerState(7, 3, 0, 99, None, 5), ProducerState(8, 0, None, None, 0, None))})


@pytest.mark.parametrize(("known", "written"), [(None, 0), (4, 4)])
def test_an_abort_marker_has_the_producers_epoch_and_the_coordinators(known: int | None, written: int) -> None:
    call = abort_marker_call(ONE, ProducerState(7, 3, 0, 99, known, 5), node=2, finish=ignore, deadline=None)
    assert call.target == Broker(2)
    marker, = body(call, 1).markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (7, 3, written, False)
    assert [(each.name, each.partition_indexes) for each in marker.topics] == [("t", (0,))]


def test_a_marker_that_is_refused_names_the_right() -> None:
    call = abort_marker_call(ONE, ProducerState(7, 3, 0, 99, None, 5), node=2, finish=ignore, deadline=None)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": NOT_ALLOWED}]}]
    found = call.classify(answer(Api.WRITE_TXN_MARKERS, 1, markers=[{"producer_id": 7, "topics": topics}]))
    assert isinstance(found, Done)
    assert isinstance(found.result[ONE], ClusterAuthorizationError)
    assert "not allowed to ALTER the cluster" in str(found.result[ONE])


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.describe_transactions("payments"), r"write \['payments'\]"),
    (lambda admin: admin.fence_producers([""]), "must not be empty"),
    (lambda admin: admin.list_transactions(producer_ids=["7"]), "producer_ids has '7': expected int"),
    (lambda admin: admin.describe_producers(["t"]), "expected partitions"),
])
def test_wrong_arguments_are_refused_before_a_request(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        asyncio.run(call(AsyncAdmin(bootstrap_servers="127.0.0.1:1")))


@pytest.mark.parametrize(("timeout", "sent"), [(None, 30.0), (5, 5.0), (0.0001, 0.001)])
def test_coordinators_have_the_time_of_the_call_to_replicate_that_a_producer_is_fenced(
        monkeypatch: pytest.MonkeyPatch, timeout: float | None, sent: float) -> None:
    seconds: list[float] = []

    async def run(_core: object, calls: Any, _limit: object) -> dict[str, Any]:
        seconds.extend(body(make(ignore, None), 0).transaction_timeout.total_seconds() for make in calls.values())
        return dict.fromkeys(calls, (7, 1))

    monkeypatch.setattr("pyclient.admin.transactions.each", run)
    asyncio.run(AsyncAdmin(bootstrap_servers="127.0.0.1:1").fence_producers(["loans"], timeout=timeout))
    assert seconds == [sent]


def test_of_open_transactions_those_hang_that_are_old_and_that_no_coordinator_has_in_that_partition() -> None:
    old, young, ended = (ProducerState(number, 0, 0, at, None, start) for number, at, start in ((7, 99, 5), (8, 100, 6), (9, 1, None)))
    left = left_open({ONE: (old, young, ended), TWO: (old,)}, 100)
    assert left == {ONE: (old,), TWO: (old,)}
    known = TransactionDescription("payments", "Ongoing", 7, 0, 60.0, 5000, (ONE,))
    assert hanging(left, [known]) == {TWO: (old,)}
    assert hanging(left, []) == left
