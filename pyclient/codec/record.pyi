from collections.abc import Iterable
from typing import Any, ClassVar, final

from pyclient.records import Header, TimestampType

class Record:
    __match_args__: ClassVar[tuple[str, ...]] = (
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch",
    )
    def __init__(
        self,
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
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[Header]: ...
    @property
    def leader_epoch(self) -> int | None: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Record: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Record: ...

@final
class DecodedRecord(Record):
    def __init__(
        self,
        key: Any,
        value: Any,
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
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def raw_key(self) -> bytes | None: ...
    @property
    def raw_value(self) -> bytes | None: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> DecodedRecord: ...

def decoded(record: Record, key: Any, value: Any) -> DecodedRecord: ...
