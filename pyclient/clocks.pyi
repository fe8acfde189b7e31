# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable

def seconds_of(clock: Callable[[], float]) -> float: ...
