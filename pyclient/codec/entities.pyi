# The compiled module's types; tests/test_tidy.py compares the names with the source.
import datetime
from typing import Any, Final, final

from typing_extensions import Buffer

from pyclient.codec.schemas import Schema

EPOCH: Final[datetime.datetime]

@final
class Reader:
    def __init__(self, source: Buffer, offset: int = 0) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def left(self) -> int: ...
    def read(self, schema: Schema) -> Any: ...
    def int32(self) -> int: ...
