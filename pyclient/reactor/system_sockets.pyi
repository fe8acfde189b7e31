# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import Final

from pyclient.reactor.channels import Buffer

AVAILABLE: Final[bool]

def receive(descriptor: int, buffer: bytearray, start: int) -> int: ...
def send(descriptor: int, pieces: list[Buffer]) -> bool: ...
