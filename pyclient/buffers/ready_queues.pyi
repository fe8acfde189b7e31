# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

@final
class ReadyQueues:
    def __init__(self, linger: float) -> None: ...
