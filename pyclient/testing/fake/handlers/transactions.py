"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.homes import OFFSETS_TOPIC, offsets_partition
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.patterns import InvalidPatternError, matcher
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.request import Fields, Request
from pyclient.testing.fake.model.transaction_coordinator import TransactionCoordinator
from pyclient.testing.fake.model.transactions import Event, Place, Producer, State, Transaction

FENCED_SINCE: Final = 2
"""Before this version a fenced producer gets INVALID_PRODUCER_EPOCH: of AddPartitionsToTxn, AddOffsetsToTxn, EndTxn."""
BATCHED_SINCE: Final = 4
"""From this version on brokers send AddPartitionsToTxn to each other, for many transactions."""
BUMPS_SINCE: Final = 5
"""From this version on EndTxn begins the next epoch (KIP-890)."""
NONE: Final = -1


class Addition(NamedTuple):
    """What AddPartitionsToTxn asks of one transaction."""

    transactional_id: str
    producer: Producer
    topics: Sequence[Any]
    verify_only: bool

    @property
    def places(self) -> list[Place]:
        """The partitions."""
        return [(topic.name, index) for topic in self.topics for index in topic.partitions]


# ---- adding ----------------------------------------------------------------------------------------------------------


def add_partitions_to_txn(kafka: Kafka, request: Request) -> Fields:
    """Partitions join a transaction; brokers may ask whether they have."""
    return _added(request, [(each, _codes(kafka, request, each)) for each in _additions(request)])


def refuse_add_partitions_to_txn(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return _added(request, [(each, dict.fromkeys(each.places, code)) for each in _additions(request)])


def _additions(request: Request) -> Iterator[Addition]:
    body = request.body
    if request.version >= BATCHED_SINCE:
        for each in body.transactions:
            yield Addition(each.transactional_id, Producer(each.producer_id, each.producer_epoch), each.topics, each.verify_only)
    else:
        producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        yield Addition(body.v3_and_below_transactional_id, producer, body.v3_and_below_topics, verify_only=False)


def _codes(kafka: Kafka, request: Request, addition: Addition) -> dict[Place, int]:
    refused = {place: code for place in addition.places if (code := _place_error(kafka, place, request.version))}
    if refused:
        return {place: refused.get(place, ErrorCode.operation_not_attempted) for place in addition.places}
    try:
        if addition.verify_only:
            found = kafka.part(TransactionCoordinator).find(request.broker, addition.transactional_id)
            return {place: _verified(found, addition.producer, place) for place in addition.places}
        kafka.part(TransactionCoordinator).add(request.broker, addition.transactional_id, addition.producer, addition.places)
    except RefusalError as error:
        return dict.fromkeys(addition.places, _spelled(error.code, request.version))
    return dict.fromkeys(addition.places, 0)


def _place_error(kafka: Kafka, place: Place, version: int) -> int:
    if place[0] == OFFSETS_TOPIC and version < BATCHED_SINCE:
        return ErrorCode.topic_authorization_failed  # clients add it with AddOffsetsToTxn
    return 0 if kafka.partition(*place) is not None else ErrorCode.unknown_topic_or_partition


def _verified(transaction: Transaction, producer: Producer, place: Place) -> int:
    try:
        transaction.verify(producer, place)
    except RefusalError as error:
        return error.code
    return 0


def _added(request: Request, results: Iterable[tuple[Addition, dict[Place, int]]]) -> Fields:
    if request.version >= BATCHED_SINCE:
        return {"throttle_time": 0, "error_code": 0, "results_by_transaction": [
            {"transactional_id": each.transactional_id, "topic_results": _topic_results(each, codes)} for each, codes in results]}
    ((only, codes),) = results
    return {"throttle_time": 0, "results_by_topic_v3_and_below": _topic_results(only, codes)}


def _topic_results(addition: Addition, codes: dict[Place, int]) -> list[Fields]:
    return [{"name": topic.name, "results_by_partition": [
        {"partition_index": index, "partition_error_code": codes[topic.name, index]} for index in topic.partitions]} for topic in addition.topics]


def _spelled(code: int, version: int) -> int:
    return ErrorCode.invalid_producer_epoch if code == ErrorCode.producer_fenced and version < FENCED_SINCE else code


def add_offsets_to_txn(kafka: Kafka, request: Request) -> Fields:
    """The group's partition of the topic of offsets joins the transaction."""
    body = request.body
    place = OFFSETS_TOPIC, offsets_partition(body.group_id, kafka.settings.offsets_topic_num_partitions)
    try:
        kafka.part(TransactionCoordinator).add(
            request.broker, body.transactional_id, Producer(body.producer_id, body.producer_epoch), [place])
    except RefusalError as error:
        return refuse_add_offsets_to_txn(request, _spelled(error.code, request.version))
    return refuse_add_offsets_to_txn(request, 0)


def refuse_add_offsets_to_txn(_request: Request, code: int) -> Fields:
    """The answer with this code."""
    return {"throttle_time": 0, "error_code": code}


# ---- ending ----------------------------------------------------------------------------------------------------------


def end_txn(kafka: Kafka, request: Request) -> Fields:
    """Commit or abort: answered when that is decided, perhaps before all markers are written."""
    body = request.body
    event = Event.COMMIT if body.committed else Event.ABORT
    try:
        following = kafka.part(TransactionCoordinator).end(
            request.broker, body.transactional_id, Producer(body.producer_id, body.producer_epoch), event, bump=request.version >= BUMPS_SINCE)
    except RefusalError as error:
        return refuse_end_txn(request, _spelled(error.code, request.version))
    return {"throttle_time": 0, "error_code": 0, "producer_id": following.id, "producer_epoch": following.epoch}


def refuse_end_txn(_request: Request, code: int) -> Fields:
    """An error, and no next epoch."""
    return {"throttle_time": 0, "error_code": code, "producer_id": NONE, "producer_epoch": NONE}


# ---- describing ------------------------------------------------------------------------------------------------------


def describe_transactions(kafka: Kafka, request: Request) -> Fields:
    """The states of some transactional ids."""
    return {"throttle_time": 0, "transaction_states": [_described(kafka, request, each) for each in request.body.transactional_ids]}


def refuse_describe_transactions(request: Request, code: int) -> Fields:
    """The error for every id."""
    return {"throttle_time": 0, "transaction_states": [_state_error(each, code) for each in request.body.transactional_ids]}


def _described(kafka: Kafka, request: Request, transactional_id: str) -> Fields:
    try:
        found = kafka.part(TransactionCoordinator).find(request.broker, transactional_id)
    except RefusalError as error:
        code = ErrorCode.transactional_id_not_found if error.code == ErrorCode.invalid_producer_id_mapping else error.code
        return _state_error(transactional_id, code)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return {"error_code": 0, "transactional_id": found.id, "transaction_state": found.state.value, "transaction_timeout": found.timeout_ms,
            "transaction_start_time": found.began_ms, "producer_id": found.producer_id, "producer_epoch": found.epoch,
            "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()]}


def _state_error(transactional_id: str, code: int) -> Fields:
    return {"error_code": code, "transactional_id": transactional_id, "transaction_state": "", "transaction_timeout": 0,
            "transaction_start_time": 0, "producer_id": 0, "producer_epoch": 0, "topics": []}


# ---- listing ---------------------------------------------------------------------------------------------------------


def list_transactions(kafka: Kafka, request: Request) -> Fields:
    """The transactional ids of the broker that was asked."""
    body, names = request.body, {each.value for each in State}
    pattern = getattr(body, "transactional_id_pattern", None)
    try:
        matches = matcher(pattern) if pattern else None
        mine = kafka.part(TransactionCoordinator).of(request.broker)
    except InvalidPatternError:
        return refuse_list_transactions(request, ErrorCode.invalid_regular_expression)
    except RefusalError as error:
        return refuse_list_transactions(request, error.code)
    wanted = [each for each in mine if _wanted(kafka, body, each) and (matches is None or matches(each.id))]
    return {"throttle_time": 0, "error_code": 0, "unknown_state_filters": [each for each in body.state_filters if each not in names],
            "transaction_states": [_listed(each) for each in wanted]}


def refuse_list_transactions(_request: Request, code: int) -> Fields:
    """An error, without transactions."""
    return {"throttle_time": 0, "error_code": code, "unknown_state_filters": [], "transaction_states": []}


def _wanted(kafka: Kafka, body: Any, transaction: Transaction) -> bool:
    longer_than = getattr(body, "duration_filter", NONE)
    return ((not body.state_filters or transaction.state.value in body.state_filters)
            and (not body.producer_id_filters or transaction.producer_id in body.producer_id_filters)
            and (longer_than < 0 or kafka.wall() - transaction.began_ms > longer_than))


def _listed(transaction: Transaction) -> Fields:
    return {"transactional_id": transaction.id, "producer_id": transaction.producer_id, "transaction_state": transaction.state.value}
