"""FindCoordinator: where groups and transactional ids are at home."""
from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.elections import NO_LEADER

GROUP: Final = 0
SHARE: Final = 2
SHARE_SINCE: Final = 6
BATCHED_SINCE: Final = 4
SHARE_KEY_PARTS: Final = 3
"""Group, topic id, partition."""
NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."
INVALID_TEXT: Final = ("This most likely occurs because of a request being malformed by the client library or the message was sent to an "
                       "incompatible broker. See the broker logs for more details.")


def find_coordinator(kafka: Kafka, request: Request) -> Fields:
    """One coordinator, or since version 4 any number."""
    key_type = getattr(request.body, "key_type", GROUP)
    return _answer(request, [_found(kafka, request, key_type, key) for key in _keys(request)])


def refuse_find_coordinator(request: Request, code: int) -> Fields:
    """The error for every key."""
    return _answer(request, [_missing(key, code, None) for key in _keys(request)])


def _keys(request: Request) -> list[str]:
    return list(request.body.coordinator_keys) if request.version >= BATCHED_SINCE else [request.body.key]


def _answer(request: Request, coordinators: list[Fields]) -> Fields:
    if request.version >= BATCHED_SINCE:
        return {"throttle_time": 0, "coordinators": coordinators}
    only = coordinators[0]
    return {"throttle_time": 0, **only, "error_message": only["error_message"] if only["error_code"] else "NONE"}


def _found(kafka: Kafka, request: Request, key_type: int, key: str) -> Fields:
    if not GROUP <= key_type <= SHARE:
        return _missing(key, ErrorCode.invalid_request, INVALID_TEXT)
    if key_type == SHARE and (request.version < SHARE_SINCE or len(key.split(":")) != SHARE_KEY_PARTS):
        return _missing(key, ErrorCode.invalid_request, "" if request.version >= BATCHED_SINCE else INVALID_TEXT)
    node = kafka.brokers.get(kafka.coordinator(key_type, key))
    if node is None:
        return _missing(key, ErrorCode.coordinator_not_available, "" if request.version >= BATCHED_SINCE else NOT_AVAILABLE_TEXT)
    return {"key": key, "error_code": 0, "error_message": "", "node_id": node.id, "host": node.host, "port": node.port}


def _missing(key: str, code: int, message: str | None) -> Fields:
    return {"key": key, "error_code": code, "error_message": message, "node_id": NO_LEADER, "host": "", "port": NO_LEADER}
