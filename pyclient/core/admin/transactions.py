"""Transactions as calls to their coordinators and to leaders: list, describe; producers of partitions; markers."""
from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.admin.items import refused
from pyclient.core.admin.partitions import by_topic, per_partition
from pyclient.core.calls import Broker, Call, CallOutcome, Coordinator, Done, Finish, KeyType
from pyclient.core.transactions.calls import NO_ID, OpenTransaction
from pyclient.descriptions.transactions import ProducerState, TransactionDescription, TransactionListing
from pyclient.errors import ProtocolError
from pyclient.records import TopicPartition

ANY_DURATION: Final = -1
DURATION_SINCE: Final = 1
"""The version of ListTransactions that can filter by it."""
NONE_YET: Final = -1
EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
FIRST_COORDINATOR: Final = 0
"""The epoch of a marker for a producer that has none: that of a coordinator that was never moved."""


def list_transactions_call(*, node: int, states: Sequence[str], producer_ids: Sequence[int], longer_than_ms: int | None, finish: Finish,
                           deadline: float | None) -> Call:
    """The transactional ids that a broker coordinates, as `TransactionListing`."""
    duration = ANY_DURATION if longer_than_ms is None else longer_than_ms

    def fields(version: int) -> dict[str, object]:
        return {"state_filters": list(states), "producer_id_filters": list(producer_ids), "duration_filter": duration}

    def classify(message: Any) -> CallOutcome:
        return refused(Api.LIST_TRANSACTIONS, message) or Done([TransactionListing(each.transactional_id, each.producer_id, each.transaction_state) for each in message.transaction_states])

    versions = None if longer_than_ms is None else VersionRange(DURATION_SINCE, SPOKEN[Api.LIST_TRANSACTIONS].high)
    return Call(what=f"listing the transactions of node {node}", api=Api.LIST_TRANSACTIONS, target=Broker(node), fields=fields, classify=classify,
                finish=finish, deadline=deadline, versions=versions)


def describe_transaction_call(transactional_id: str, *, finish: Finish, deadline: float | None) -> Call:
    """A transactional id as `TransactionDescription`; TransactionalIdNotFoundError if its coordinator knows none."""
    def classify(message: Any) -> CallOutcome:
        found = next((each for each in message.transaction_states if each.transactional_id == transactional_id), None)
        if found is None:
            raise ProtocolError(f"the response lacks transactional id {transactional_id!r}")
        described = None if found.error_code else _described(found)
        return OpenTransaction(transactional_id, NO_ID).outcome(Api.DESCRIBE_TRANSACTIONS, found.error_code, described)

    return Call(what=f"describing the transaction of {transactional_id!r}", api=Api.DESCRIBE_TRANSACTIONS, classify=classify, finish=finish, deadline=deadline,
                target=Coordinator(transactional_id, KeyType.TRANSACTION), fields=lambda version: {"transactional_ids": [transactional_id]})


def describe_producers_call(partitions: Sequence[TopicPartition], *, node: int, finish: Finish, deadline: float | None) -> Call:
    """Who wrote to partitions; the result maps each to its `ProducerState` rows, or its error."""
    topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic((tp, tp.partition) for tp in partitions).items()]

    def classify(message: Any) -> CallOutcome:
        return per_partition(Api.DESCRIBE_PRODUCERS, message.topics, lambda part: tuple(_producer(each) for each in part.active_producers))

    return Call(what=f"describing the producers of {len(partitions)} partitions", api=Api.DESCRIBE_PRODUCERS, target=Broker(node), classify=classify,
                finish=finish, deadline=deadline, fields=lambda version: {"topics": topics})


def abort_marker_call(tp: TopicPartition, producer: ProducerState, *, node: int, finish: Finish, deadline: float | None) -> Call:
    """Abort what a producer has open in a partition; the result maps *tp* to None or its error."""
    epoch = FIRST_COORDINATOR if producer.coordinator_epoch is None else producer.coordinator_epoch
    marker = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "transaction_result": False, "coordinator_epoch": epoch,
              "topics": [{"name": tp.topic, "partition_indexes": [tp.partition]}]}

    def classify(message: Any) -> CallOutcome:
        return per_partition(Api.WRITE_TXN_MARKERS, [topic for each in message.markers for topic in each.topics], lambda part: None)

    return Call(what=f"aborting the transaction in {tp}", api=Api.WRITE_TXN_MARKERS, target=Broker(node), classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"markers": [marker]})


def left_open(producers: Mapping[TopicPartition, Iterable[ProducerState]], before_ms: float) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """Of the producers of each partition, those with an open transaction whose last record is older than a time."""
    old = {tp: tuple(each for each in those if each.transaction_start_offset is not None and (each.last_timestamp or 0) < before_ms)
           for tp, those in producers.items()}
    return {tp: those for tp, those in old.items() if those}


def hanging(left: Mapping[TopicPartition, Iterable[ProducerState]],
            known: Iterable[TransactionDescription]) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """Of transactions that are open in partitions, those that no coordinator knows there: nothing will end them."""
    awaited = {(each.producer_id, tp) for each in known for tp in each.partitions}
    rest = {tp: tuple(each for each in those if (each.producer_id, tp) not in awaited) for tp, those in left.items()}
    return {tp: those for tp, those in rest.items() if those}


def _described(found: Any) -> TransactionDescription:
    partitions = tuple(sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions))
    return TransactionDescription(found.transactional_id, found.transaction_state, found.producer_id, found.producer_epoch,
                                  found.transaction_timeout.total_seconds(), _known(_ms(found.transaction_start_time)), partitions)


def _producer(found: Any) -> ProducerState:
    return ProducerState(found.producer_id, found.producer_epoch, *map(_known, (
        found.last_sequence, found.last_timestamp, found.coordinator_epoch, found.current_txn_start_offset)))


def _known(number: int | None) -> int | None:
    return None if number is None or number <= NONE_YET else number


def _ms(time: datetime.datetime) -> int:
    return (time - EPOCH) // datetime.timedelta(milliseconds=1)
