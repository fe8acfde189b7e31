"""kio entities for property tests: every field over the whole range of its type, made from the schema's own fields."""
from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
from typing import Any, Final

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from pyclient.codec.apis import SPOKEN

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
SPOKEN_PAIRS: Final = [(api, version) for api, spoken in SPOKEN.items() for version in range(spoken.low, spoken.high + 1)]
RESPONSES: Final = [load_response_schema(api, version) for api, version in SPOKEN_PAIRS]
REQUESTS: Final = [load_request_schema(api, version) for api, version in SPOKEN_PAIRS]
YEAR_9999_S: Final = 253_402_300_799
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def signed(bits: int) -> st.SearchStrategy[int]:
    """Every signed integer of this width, its edges often."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(st.integers(low, high), st.sampled_from([low, -1, 0, 1, high]))


def unsigned(bits: int) -> st.SearchStrategy[int]:
    """Every unsigned integer of this width, its edges often."""
    return st.one_of(st.integers(0, 2**bits - 1), st.sampled_from([0, 1, 2**bits - 1]))


PLAIN: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    **{f"int{bits}": signed(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": unsigned(bits) for bits in (8, 16, 32, 64)},
    "float64": st.floats(allow_nan=False),
    "uuid": st.none() | st.uuids(),
    "string": TEXT,
    "bytes": st.binary(max_size=12),
    "records": st.none() | st.binary(max_size=40),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": signed(32).map(lambda ms: ms * MILLISECOND),
    "timedelta_i64": st.integers(-(10**13), 10**13).map(lambda ms: ms * MILLISECOND),
    # Whole seconds: kio's writer and reader go through floating point and lose a millisecond after the year 2100.
    "datetime_i64": st.integers(0, YEAR_9999_S).map(lambda seconds: EPOCH + datetime.timedelta(seconds=seconds)),
}


@functools.cache
def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Entities of one kio class, nested ones included; a tagged field has its default often."""
    fields = {field.name: field_values(field) for field in dataclasses.fields(schema)}
    return st.builds(schema, **fields)


def field_values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    """What one field may hold."""
    values = annotated(field.type, field.metadata.get("kafka_type"))
    if "tag" in field.metadata and field.default is not dataclasses.MISSING:
        return st.just(field.default) | values
    return values


def annotated(annotation: Any, kafka_type: str | None) -> st.SearchStrategy[Any]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
        return st.none() | annotated(inner, kafka_type)
    if typing.get_origin(annotation) is tuple:
        return st.lists(annotated(typing.get_args(annotation)[0], kafka_type), max_size=2).map(tuple)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return st.deferred(lambda: entities(annotation))
    assert kafka_type is not None
    return PLAIN[kafka_type]
