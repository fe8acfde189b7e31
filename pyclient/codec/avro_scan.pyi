from collections.abc import Sequence
from typing import Final, TypeAlias

Instruction: TypeAlias = tuple[int, int, int, int, int, bool, bytes]
FAULTS: Final[tuple[str, ...]]

class AvroScan:
    def __init__(self, program: Sequence[Instruction], names: Sequence[str], most_records: int) -> None: ...
    def wrong(self, data: bytes) -> str: ...

def float_of(number: int) -> float: ...
