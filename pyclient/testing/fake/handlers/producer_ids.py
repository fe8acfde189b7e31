"""InitProducerId: ids for idempotent producers. Transactions are not modelled yet and are rejected."""
from __future__ import annotations

import logging
from typing import Final

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.kafka import Kafka

BLOCK: Final = 1000
NONE: Final = -1
_log = logging.getLogger(__name__)


class Blocks:
    """The controller hands out ids by the thousand."""

    def __init__(self, _kafka: Kafka) -> None:
        self._next = 0

    def take(self) -> int:
        """The first id of a new block."""
        first, self._next = self._next, self._next + BLOCK
        return first


@attrs.define
class Ids:
    """What is left of a broker's block."""

    next: int
    left: int


def init_producer_id(kafka: Kafka, request: Request) -> Fields:
    """A fresh id with epoch 0: without transactional id also for a producer that names the id it had."""
    body = request.body
    if (getattr(body, "producer_id", NONE) == NONE) != (getattr(body, "producer_epoch", NONE) == NONE) or body.transactional_id == "":
        return refuse_init_producer_id(request, ErrorCode.invalid_request)
    if body.transactional_id is not None:
        _log.warning("%s wants transactions: the fake cluster has none yet", request.client_id)
        return refuse_init_producer_id(request, ErrorCode.unsupported_version)
    producer_id = fresh_id(kafka, request.broker)
    kafka.report("producer id", producer_id=producer_id, broker=request.broker)
    return {"throttle_time": 0, "error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def refuse_init_producer_id(_request: Request, code: int) -> Fields:
    """An error, and no id."""
    return {"throttle_time": 0, "error_code": code, "producer_id": NONE, "producer_epoch": NONE}


def fresh_id(kafka: Kafka, broker: int) -> int:
    """An unused id."""
    parts = kafka.brokers[broker].parts
    ids = parts.get(Ids)
    if ids is None or not ids.left:
        ids = parts[Ids] = Ids(kafka.part(Blocks).take(), BLOCK)
    ids.next, ids.left = ids.next + 1, ids.left - 1
    return int(ids.next - 1)
