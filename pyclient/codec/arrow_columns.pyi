# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import Any, TypeAlias, final

_Place: TypeAlias = tuple[int, int, bool] | None

class Column:
    def __init__(
        self,
        keeps: object,
        length: int,
        offset: int,
        valid: int,
        offsets: int,
        data: int,
        *,
        wide: bool = False,
        low: int = 0,
        high: int = 0,
        items: Column | None = None,
        key: Column | None = None,
        value: Column | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def items(self) -> Column | None: ...
    @property
    def key(self) -> Column | None: ...
    @property
    def value(self) -> Column | None: ...
    @property
    def keeps(self) -> object: ...

def bytes_column(array: Any, shift: int, wide: bool) -> Column: ...
@final
class PlainColumns:
    def __init__(self, schema: Any, value: _Place, key: _Place, kinds: tuple[type, type]) -> None: ...
