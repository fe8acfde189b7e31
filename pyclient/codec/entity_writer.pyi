# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Mapping
from typing import final

@final
class Writer:
    def take(self) -> bytes: ...
    def write(self, entity: type, fields: Mapping[str, object]) -> None: ...
