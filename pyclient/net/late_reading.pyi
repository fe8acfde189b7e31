# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

@final
class LateReading:
    def __init__(self, epoll: int, timer: int, patience: float) -> None: ...
