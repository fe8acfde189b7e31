# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable
from typing import Any, TypeVar

from pyclient.buffers.delivery import Observer

_C = TypeVar("_C")

def checked_callback(callback: _C) -> _C: ...

class WaiterCallback:
    def __init__(self, deliveries: object, callback: Callable[[Any], object], observer: Observer,
                 wake: Callable[[Callable[[Any], object], object], object]) -> None: ...
    def __call__(self) -> None: ...
    def discard(self) -> None: ...
