# The compiled module's functions; tests/test_tidy.py compares the names with the source.
from pyclient.codec.arrow_columns import Column

def digest_rows(
    rows: int, shares: int, key: Column | None, value: Column | None, others: tuple[Column, ...], headers: Column | None
) -> tuple[int, int, int]: ...
