# The compiled module's types; tests/test_tidy.py compares the names with the source.
import threading
from types import TracebackType
from typing import final

@final
class Held:
    def __init__(self, lock: threading.Lock | threading.RLock, timeout: float = ...) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
