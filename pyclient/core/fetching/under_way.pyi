# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable, Mapping

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.codec.fetch import OnePartition, UsualResponse
from pyclient.core.fetching.empty_responses import EmptyResponses
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.placement import Placement
from pyclient.core.fetching.positions import Position
from pyclient.core.fetching.preferred_replicas import PreferredReplicas
from pyclient.core.fetching.responses import FetchResponses
from pyclient.core.fetching.sessions import Session, SessionRequest
from pyclient.core.fetching.sources import Sources
from pyclient.core.manager import Outcome
from pyclient.records import TopicPartition

class Fetch:
    node: int
    session: Session
    session_request: SessionRequest
    reserved: int
    wait: float
    began: float
    def __init__(self, node: int, session: Session, session_request: SessionRequest, reserved: int, wait: float, began: float,
                 on_end: Callable[[Fetch, float, Outcome], None]) -> None: ...
    def done(self, now: float, outcome: Outcome) -> None: ...

class NextFetch:
    fetch: Fetch
    max_bytes: int
    rack: str
    limits: FetchLimits
    asked: OnePartition | None
    timeout: float
    def __init__(self, fetch: Fetch, max_bytes: int, rack: str, limits: FetchLimits, asked: OnePartition | None, timeout: float) -> None: ...
    def encoded(self, version: int, correlation_id: int, client_id: str | None) -> bytes: ...

class FetchWait:
    def came(self, now: float) -> None: ...
    def drained(self, now: float) -> None: ...
    def max_wait(self, now: float) -> float: ...

class FetchesUnderWay:
    reserved: int
    def __init__(self, buffer: FetchBuffer, limits: FetchLimits, sources: Sources, positions: Mapping[TopicPartition, Position],
                 responses: FetchResponses, placement: Placement, preferred: PreferredReplicas, fetch_wait: FetchWait, empty: EmptyResponses, *,
                 on_end: Callable[[Fetch, float, Outcome], None]) -> None: ...
    def fetches(self) -> list[Fetch]: ...
    def begin(self, node: int, session: Session, session_request: SessionRequest, room: int, now: float) -> Fetch: ...
    def end(self, fetch: Fetch) -> None: ...
    def room(self) -> int: ...
    def free(self, came: int = 0, released: int = 0) -> int: ...
    def repeat(self, now: float, fetch: Fetch, response: UsualResponse) -> NextFetch | None: ...
