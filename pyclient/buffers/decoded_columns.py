"""Keys and values of an Arrow table of records, decoded a chunk at a time.

Knows tables and `ColumnDecoder`; independent of formats.
"""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyclient.errors import SerializationError

if TYPE_CHECKING:
    from pyclient.column_serializers import ColumnDecoder
    from pyclient.records.record import Record


def decoded(table: Any, record: Callable[[int], Record[Any, Any]], key: ColumnDecoder | None, value: ColumnDecoder | None, *, headers: bool) -> Any:
    """*table*, which has headers, with decoded columns; *record* returns the record of a row.

    With errors, a column ``key_error`` or ``value_error`` follows the decoded one.
    """
    for name, decoder in (("key", key), ("value", value)):
        if decoder is None:
            continue
        column, errors = _column(table, name, decoder, record)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, column)
        if decoder.keeps_errors:
            table = table.add_column(at + 1, f"{name}_error", errors)
    return table if headers else table.drop_columns(["headers"])


def _column(table: Any, name: str, decoder: ColumnDecoder, record: Callable[[int], Record[Any, Any]]) -> tuple[Any, Any]:
    arrow = import_module("pyarrow")
    columns, errors, first = [], [], 0
    for batch in table.to_batches() or [arrow.RecordBatch.from_pylist([], table.schema)]:
        made, wrong = decoder.decode(batch.column(name), batch.column("headers"), _counted_from(record, first), is_key=name == "key")
        columns.append(made)
        errors.append(wrong)
        first += batch.num_rows
    kinds = {column.type for column in columns if not arrow.types.is_null(column.type)}
    if len(kinds) > 1:
        raise SerializationError(f"the {name}s were written with schemas of other columns ({', '.join(map(str, kinds))}): give the serde a schema to read all as")
    kind = next(iter(kinds), arrow.null())
    chunks = [column if column.type == kind else arrow.nulls(len(column), kind) for column in columns]
    return arrow.chunked_array(chunks, kind), arrow.chunked_array(errors, arrow.string()) if decoder.keeps_errors else None


def _counted_from(record: Callable[[int], Record[Any, Any]], first: int) -> Callable[[int], Record[Any, Any]]:
    return lambda row: record(first + row)
