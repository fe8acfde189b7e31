"""InitProducerId: ids for idempotent producers, and the epochs of transactional ones."""
from __future__ import annotations

from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.producer_ids import fresh_id
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.request import Fields, Request
from pyclient.testing.fake.model.transaction_coordinator import TransactionCoordinator
from pyclient.testing.fake.model.transactions import Producer

NONE: Final = -1
FENCED_SINCE: Final = 4
"""Before this version a fenced producer gets INVALID_PRODUCER_EPOCH."""
MS: Final = timedelta(milliseconds=1)


def init_producer_id(kafka: Kafka, request: Request) -> Fields:
    """A fresh id with epoch 0, or the next epoch of a transactional id."""
    try:
        producer = _producer(kafka, request)
    except RefusalError as refused:
        return refuse_init_producer_id(request, _spelled(refused.code, request.version))
    kafka.report("producer id", producer_id=producer.id, broker=request.broker)
    return {"throttle_time": 0, "error_code": 0, "producer_id": producer.id, "producer_epoch": producer.epoch}


def refuse_init_producer_id(_request: Request, code: int) -> Fields:
    """An error, and no id."""
    return {"throttle_time": 0, "error_code": code, "producer_id": NONE, "producer_epoch": NONE}


def _producer(kafka: Kafka, request: Request) -> Producer:
    body = request.body
    expected = Producer(getattr(body, "producer_id", NONE), getattr(body, "producer_epoch", NONE))
    if (expected.id == NONE) != (expected.epoch == NONE) or body.transactional_id == "":
        raise RefusalError(ErrorCode.invalid_request)
    if body.transactional_id is None:
        return Producer(fresh_id(kafka, request.broker), 0)  # also for a producer that names the id it had
    return kafka.part(TransactionCoordinator).initialize(
        request.broker, body.transactional_id, body.transaction_timeout // MS, None if expected.id == NONE else expected)


def _spelled(code: int, version: int) -> int:
    return ErrorCode.invalid_producer_epoch if code == ErrorCode.producer_fenced and version < FENCED_SINCE else code
