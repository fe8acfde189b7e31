# The compiled module's types; tests/test_tidy.py compares the names with the source.
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator
from typing import Any, final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Delivery
from pyclient.records import Headers

@final
class Entrance:
    closed: bool
    def __init__(self, accumulator: Accumulator, *, ignore_keys: bool, keyless_stick: bool, key_hash: object = None) -> None: ...
    def bind(self, loop: AbstractEventLoop) -> None: ...

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

@final
class Queued(Coroutine[Any, Any, Delivery]):
    def __await__(self) -> Generator[Any, Any, Delivery]: ...
    def __iter__(self) -> Generator[Any, Any, Delivery]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, kind: Any, value: Any = None, trace: Any = None, /) -> Any: ...
    def close(self) -> None: ...

class AsyncSending:
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
    ) -> Coroutine[Any, Any, Delivery]: ...
