# The compiled module's types; tests/test_tidy.py compares the names with the source.
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Delivery

_Send = TypeVar("_Send", bound=Callable[..., Any])
_AsyncSend = TypeVar("_AsyncSend", bound=Callable[..., Coroutine[Any, Any, Any]])

@final
class SendPath:
    closed: bool
    def __init__(self, accumulator: Accumulator, *, ignore_keys: bool, keyless_sticky: bool, key_hash: object = None) -> None: ...
    def bind(self, loop: AbstractEventLoop) -> None: ...

class FastSend:
    _send_path: SendPath | None

def fast_send(method: _Send) -> _Send: ...
@final
class CompletedSend(Coroutine[Any, Any, Delivery]):
    def __await__(self) -> Generator[Any, Any, Delivery]: ...
    def __iter__(self) -> Generator[Any, Any, Delivery]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, kind: Any, value: Any = None, trace: Any = None, /) -> Any: ...
    def close(self) -> None: ...

class AsyncFastSend:
    _send_path: SendPath | None

def async_fast_send(method: _AsyncSend) -> _AsyncSend: ...
