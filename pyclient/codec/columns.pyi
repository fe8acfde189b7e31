from collections.abc import Iterable

import pyarrow

from pyclient.codec.batches import RecordBatch

LARGEST_CHUNK: int

def schema(*, headers: bool = True) -> pyarrow.Schema: ...
def to_arrow(
    parts: Iterable[tuple[str, int, RecordBatch, int, int | None]], *, headers: bool = True, chunk_bytes: int = ...
) -> pyarrow.Table: ...
