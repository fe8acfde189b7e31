# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable
from typing import Any, Final

from pyclient.buffers.queues import TopicQueues
from pyclient.buffers.deliveries import Deliveries
from pyclient.codec.arrow_columns import Column
from pyclient.errors import KafkaError

CHUNK: Final = 1024

def no_partition(topic: str, count: int, partition: int) -> IndexError: ...

def note_interruption(stopped: BaseException, reached: int | None) -> None: ...

class Rows:
    def __init__(
        self,
        deliveries: Deliveries,
        topics: list[TopicQueues | Exception],
        names: list[str],
        convert: Callable[[str, Any], Any],
        key_hash: object = None,
        on_rejected: Callable[[KafkaError], object] | None = None,
    ) -> None: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def topics(self) -> list[TopicQueues | Exception]: ...
    @property
    def first(self) -> int: ...
    @property
    def position(self) -> int | None: ...
    @property
    def decided(self) -> int: ...
    @property
    def loaded(self) -> int: ...
    @property
    def topic(self) -> TopicQueues: ...
    def reject(self, error: Exception) -> None: ...
    def load(
        self,
        first: int,
        values: list[Any],
        keys: list[Any] | None,
        headers: list[Any] | None,
        stamps: list[Any] | None,
        partitions: list[Any] | None,
        topic_indexes: list[int] | None,
        partition: int,
        now: int,
    ) -> None: ...
    def load_columns(
        self,
        first: int,
        start: int,
        stop: int,
        value: Column | None,
        key: Column | None,
        headers: Column | None,
        timestamp: Column | None,
        topics: Column | None,
        partitions: Column | None,
        now: int,
    ) -> None: ...
