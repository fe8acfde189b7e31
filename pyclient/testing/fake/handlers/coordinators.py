"""FindCoordinator: where groups and transactional ids are at home."""
from __future__ import annotations

from typing import Final

from pyclient.testing.fake.request import Asked, Fields
from pyclient.testing.fake.coordinator import COORDINATOR_NOT_AVAILABLE
from pyclient.testing.fake.model import Kafka
from pyclient.testing.fake.partition import NOBODY

INVALID_REQUEST: Final = 42
GROUP: Final = 0
SHARE: Final = 2
SHARE_SINCE: Final = 6
BATCHED_SINCE: Final = 4
SHARE_KEY_PARTS: Final = 3
"""Group, topic id, partition."""
NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."
INVALID_TEXT: Final = ("This most likely occurs because of a request being malformed by the client library or the message was sent to an "
                       "incompatible broker. See the broker logs for more details.")


def find_coordinator(kafka: Kafka, asked: Asked) -> Fields:
    """One coordinator, or since version 4 any number."""
    key_type = getattr(asked.body, "key_type", GROUP)
    return _answer(asked, [_found(kafka, asked, key_type, key) for key in _keys(asked)])


def refuse_find_coordinator(asked: Asked, code: int) -> Fields:
    """The error for every key."""
    return _answer(asked, [_missing(key, code, None) for key in _keys(asked)])


def _keys(asked: Asked) -> list[str]:
    return list(asked.body.coordinator_keys) if asked.version >= BATCHED_SINCE else [asked.body.key]


def _answer(asked: Asked, coordinators: list[Fields]) -> Fields:
    if asked.version >= BATCHED_SINCE:
        return {"throttle_time": 0, "coordinators": coordinators}
    only = coordinators[0]
    return {"throttle_time": 0, **only, "error_message": only["error_message"] if only["error_code"] else "NONE"}


def _found(kafka: Kafka, asked: Asked, key_type: int, key: str) -> Fields:
    if not GROUP <= key_type <= SHARE:
        return _missing(key, INVALID_REQUEST, INVALID_TEXT)
    if key_type == SHARE and (asked.version < SHARE_SINCE or len(key.split(":")) != SHARE_KEY_PARTS):
        return _missing(key, INVALID_REQUEST, "" if asked.version >= BATCHED_SINCE else INVALID_TEXT)
    node = kafka.brokers.get(kafka.coordinator(key_type, key))
    if node is None:
        return _missing(key, COORDINATOR_NOT_AVAILABLE, "" if asked.version >= BATCHED_SINCE else NOT_AVAILABLE_TEXT)
    return {"key": key, "error_code": 0, "error_message": "", "node_id": node.id, "host": node.host, "port": node.port}


def _missing(key: str, code: int, message: str | None) -> Fields:
    return {"key": key, "error_code": code, "error_message": message, "node_id": NOBODY, "host": "", "port": NOBODY}
