# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""One fetch: its bytes, its response, and what it holds of the buffer. Decides nothing."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.fetch import SESSIONS_SINCE, TOPIC_IDS_SINCE, FetchResponse, FetchParameters, PartitionRequest, encode_fetch, fetch_response
from pyclient.codec.messages import Buffer
from pyclient.core.fetching.sessions import Session, SessionRequest
from pyclient.core.manager import Frame, Outcome, Request, Use

TopicKey: TypeAlias = str | bytes
"""What names a topic in a request: the bytes of its id from v13 on, else its name."""
BY_NAME: Final = VersionRange(0, TOPIC_IDS_SINCE - 1)
FETCH: Final = Api.FETCH
_TOPIC_IDS_SINCE: Final = TOPIC_IDS_SINCE
_SESSIONS_SINCE: Final = SESSIONS_SINCE


class FetchRequest(Request):
    """A fetch of a *session*. `fetch_request` makes it."""

    session: Session
    session_request: SessionRequest
    parameters: FetchParameters
    reserved: int
    """Bytes of the buffer that the response may need."""
    wait: float
    """Seconds that the broker may hold it, from *began* on."""
    began: float
    on_end: OnEnd
    """Called once, with the outcome."""

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """As `Request.encode`."""
        by_id = version >= _TOPIC_IDS_SINCE
        return [encode_fetch(version, correlation_id, client_id, self.parameters, self._topics(version, by_id), self._forgotten(by_id))]

    def decode(self, version: int, frame: Frame) -> FetchResponse:
        """As `Request.decode`."""
        return fetch_response(version, frame)

    def done(self, now: float, outcome: Outcome) -> bool:
        """As `Request.done`."""
        self.on_end(self, now, outcome)
        return False

    def _topics(self, version: int, by_id: bool) -> dict[TopicKey, list[tuple[int, PartitionRequest]]]:
        topics: dict[TopicKey, list[tuple[int, PartitionRequest]]] = {}
        asked = self.session_request.partitions if version >= _SESSIONS_SINCE else self.session_request.all_partitions
        for tp, requested in asked.items():
            key = _key(tp.topic, requested, by_id)
            if key in topics:
                topics[key].append((tp.partition, requested))
            else:
                topics[key] = [(tp.partition, requested)]
        return topics

    def _forgotten(self, by_id: bool) -> dict[TopicKey, list[int]]:
        topics: dict[TopicKey, list[int]] = {}
        for tp, requested in self.session_request.forgets(by_id):
            topics.setdefault(_key(tp.topic, requested, by_id), []).append(tp.partition)
        return topics


OnEnd: TypeAlias = Callable[[FetchRequest, float, Outcome], object]


def _key(topic: str, requested: PartitionRequest, by_id: bool) -> TopicKey:
    if not by_id:
        return topic
    assert requested.topic_id is not None  # `versions` leaves out those that need it
    return requested.topic_id


def fetch_request(node: int, session: Session, session_request: SessionRequest, parameters: FetchParameters, timeout: float, on_end: OnEnd,
                  now: float = 0.0, wait: float = 0.0, reserved: int = 0, use: Use = Use.FETCH) -> FetchRequest:
    """A fetch from *node*, which may hold it for *wait* seconds; *timeout* is in seconds."""
    made: FetchRequest = FetchRequest.__new__(FetchRequest)
    made.session = session
    made.session_request = session_request
    made.parameters = parameters
    made.reserved = reserved
    made.wait = made.held = wait
    made.began = now
    made.on_end = on_end
    made.node = node
    made.use = use
    made.api = FETCH
    made.timeout = timeout
    made.silence_timeout_s = made.fields = made._done = None
    made.versions = BY_NAME if session_request.by_name else None
    made.answered = True
    return made
