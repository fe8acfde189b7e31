# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.deliveries import Deliveries
from pyclient.buffers.delivery import Observer
from pyclient.buffers.rows import Rows
from pyclient.codec.arrow_columns import PlainColumns

@final
class ArrowPath:
    def __init__(self, accumulator: Accumulator, observer: Observer, key_hash: object) -> None: ...
    def learn(self, names: tuple[str | None, ...], plain: PlainColumns | None) -> None: ...
    def send(
        self,
        topic: object,
        data: object,
        value: object,
        key: object,
        headers: object,
        timestamp: object,
        topic_column: object,
        partition_column: object,
    ) -> Deliveries | Rows | None: ...
