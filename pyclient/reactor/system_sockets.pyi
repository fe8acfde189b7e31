# The compiled module's types; tests/test_tidy.py compares the names with the source.
import socket
from typing import Final

from pyclient.reactor.channels import Buffer

AVAILABLE: Final[bool]

def receive(sock: socket.socket, buffer: bytearray, start: int) -> int: ...
def send(sock: socket.socket, pieces: list[Buffer]) -> bool: ...
