# The compiled module's types; tests/test_tidy.py compares the names with the source.
from types import TracebackType
from typing import final

@final
class DeferredExceptions:
    def __enter__(self) -> None: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
