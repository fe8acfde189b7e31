# The compiled module's types; tests/test_tidy.py compares the names with the source.
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
