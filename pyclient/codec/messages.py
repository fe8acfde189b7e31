"""Requests to bytes and bytes to answers, for every API but the records inside Produce.

A request is a plain mapping of Kafka's field names (as kio spells them), the same for every version; fields a version
does not have are left out. Frames carry no length here: the connection adds it.
"""
from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kio.index import load_entity_module, load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.entities import Reader, schema_of
from pyclient.errors import ProtocolError

Fields: TypeAlias = Mapping[str, object]
Message: TypeAlias = Any  # a kio entity: its class differs by API and version


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, fields: Fields) -> bytes:
    """The bytes of a request, header included, frame length not."""
    schema = load_request_schema(api, version)
    out = io.BytesIO()
    write_header(out, api, version, correlation_id, client_id, flexible=schema.__flexible__)
    entity_writer(schema)(out, _fill(api, schema, fields))
    return out.getvalue()


def write_header(out: io.BytesIO, api: Api, version: int, correlation_id: int, client_id: str | None, *, flexible: bool) -> None:
    """Append a request header: v2 before flexible requests, v1 before the others."""
    header = RequestHeaderV2 if flexible else RequestHeaderV1
    made = header(request_api_key=i16(api), request_api_version=i16(version),
                  correlation_id=i32(correlation_id), client_id=client_id)
    entity_writer(type(made))(out, made)


def is_flexible(api: Api, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return load_request_schema(api, version).__flexible__


def correlation_id_of(frame: memoryview) -> int:
    """The correlation id, which every response begins with."""
    return Reader(frame).int32()


def decode_response(api: Api, version: int, frame: memoryview) -> Message:
    """The answer in *frame* (header included); its ``records`` fields are views of *frame*.

    Bytes after its end are ignored, as Java and librdkafka do: there are brokers that write some (librdkafka's mock
    cluster, after Metadata). Not in ApiVersions: there they tell that the version is not the one it was written in (M08).

    Raises:
        ProtocolError: truncated or damaged.
    """
    schema = load_response_schema(api, version)
    reader = Reader(frame)
    reader.read(schema.__header_schema__)
    try:
        message = reader.read(schema)
    except ProtocolError as error:
        raise ProtocolError(f"{api.title} v{version} answer does not decode: {error}") from error
    if reader.left and api is Api.API_VERSIONS:
        raise ProtocolError(f"{api.title} v{version} answer has {reader.left} B after its end")
    return message


def _fill(api: Api, schema: type, fields: Fields) -> Message:
    """Make a kio entity of *fields*, nested mappings included, leaving out what this version lacks."""
    known = _nested(schema)
    kwargs: dict[str, object] = {}
    for name, value in fields.items():
        if name in known:
            kwargs[name] = _value(api, known[name], value)
    return schema(**kwargs)


def _value(api: Api, nested: type | None, value: object) -> object:
    if nested is None or value is None:
        return tuple(value) if isinstance(value, (list, set, frozenset)) else value
    if isinstance(value, Mapping):
        return _fill(api, nested, value)
    if isinstance(value, Iterable):
        return tuple(_fill(api, nested, item) for item in value)
    raise TypeError(f"{api.title}: {nested.__name__} cannot be made of {value!r}")


@functools.cache
def _nested(schema: type) -> Mapping[str, type | None]:
    """Field name → class of its entity or entities, None for plain values."""
    return schema_of(schema).nested_classes()


@functools.cache
def field_names(api: Api) -> frozenset[str]:
    """Every field name any spoken version of the API's request has, at any depth. Imports all of them: for tests."""
    names: set[str] = set()
    for version in range(SPOKEN[api].low, SPOKEN[api].high + 1):
        module = load_entity_module(api.name.lower(), version, EntityType.request)
        for item in vars(module).values():
            if dataclasses.is_dataclass(item):
                names.update(field.name for field in dataclasses.fields(item))
    return frozenset(names)
