# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable
from typing import Any, final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Delivery
from pyclient.records import Headers

@final
class Entrance:
    closed: bool
    def __init__(self, accumulator: Accumulator, *, ignore_keys: bool, keyless_stick: bool, key_hash: object = None) -> None: ...
    def bind(self, is_running: Callable[[], bool]) -> None: ...
    def offer(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> Delivery | None: ...

class Sending:
    _entrance: Entrance | None
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery: ...
