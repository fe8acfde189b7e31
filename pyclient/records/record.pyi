from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Self, final

from pyclient.records import Header, K_co, TimestampType, V_co

class Record(Generic[K_co, V_co]):
    __match_args__: ClassVar[tuple[str, ...]] = (
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch",
    )
    def __init__(
        self: Record[bytes | None, bytes | None],
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int = ...,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[Header] = (),
        leader_epoch: int | None = None,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def key(self) -> K_co: ...
    @property
    def value(self) -> V_co: ...
    @property
    def headers(self) -> list[Header]: ...
    @property
    def leader_epoch(self) -> int | None: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Self: ...

@final
class DecodedRecord(Record[K_co, V_co]):
    def __init__(
        self,
        key: K_co,
        value: V_co,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int = ...,
        raw_key: bytes | None = None,
        raw_value: bytes | None = None,
        headers: Iterable[Header] = (),
        leader_epoch: int | None = None,
    ) -> None: ...
    @property
    def raw_key(self) -> bytes | None: ...
    @property
    def raw_value(self) -> bytes | None: ...

def decoded(record: Record, key: Any, value: Any) -> DecodedRecord[Any, Any]: ...
