# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.net.lone_exchange import Lane

@final
class LaneRequest:
    def __init__(self, first: Lane) -> None: ...
