# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Mapping
from typing import final

from pyclient.codec.schemas import Schema

@final
class Writer:
    def header(self, api: int, version: int, correlation_id: int, client_id: str | None, flexible: bool) -> int: ...
    def take(self) -> bytes: ...
    def write(self, schema: Schema, fields: Mapping[str, object]) -> None: ...
