"""Requests and responses to bytes and back, for every API but the records inside a Produce request on its way out.

A message to be written is a plain mapping of Kafka's field names (as schemas.txt spells them), the same for every
version; fields a version does not have are left out. Frames carry no length here: the connection adds it.
"""
from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from pyclient.codec.apis import Api
from pyclient.codec.entities import Reader
from pyclient.codec.entity_writer import Writer
from pyclient.codec.schemas import Schema, names_in, schema_of
from pyclient.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = Mapping[str, object]
Message: TypeAlias = Any  # its attributes differ by API and version
NULL: Final = -1
CORRELATION_ID_BYTES: Final = 4
_HEAD: Final = struct.Struct(">hhih")
"""API, version, correlation id, size of the client id: the same in every version of a request's header."""


def request_schema(api: Api, version: int) -> Schema:
    """What a request holds."""
    return schema_of(f"{api.title}Request", version)


def response_schema(api: Api, version: int) -> Schema:
    """What a response holds."""
    return schema_of(f"{api.title}Response", version)


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, fields: Fields) -> bytes:
    """The bytes of a request, header included, frame length not.

    Raises:
        ValueError: a field is missing or out of range.
    """
    schema = request_schema(api, version)
    out = Writer()
    out.header(api, version, correlation_id, client_id, schema.flexible)
    out.write(schema, fields)
    return out.take()


class RequestHead(NamedTuple):
    """The header of a request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def read_head(frame: memoryview) -> RequestHead:
    """The header of the request in *frame*, of an API that may be unknown.

    Raises:
        ProtocolError: it is cut off.
    """
    if len(frame) < _HEAD.size:
        raise ProtocolError(f"a request's header has {_HEAD.size} B at least, and this frame {len(frame)} B")
    api_key, version, correlation_id, size = _HEAD.unpack_from(frame)
    return RequestHead(api_key, version, correlation_id, None if size == NULL else _client_id(frame, size))


def _client_id(frame: memoryview, size: int) -> str:
    end = _HEAD.size + size
    if not _HEAD.size <= end <= len(frame):
        raise ProtocolError(f"a client id of {size} B in a request of {len(frame)} B")
    try:
        return str(frame[_HEAD.size:end], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the client id is not UTF-8: {error.reason}") from None


def decode_request(api: Api, version: int, frame: memoryview) -> Message:
    """The body of the request in *frame* (header included), as a broker reads it; ``records`` fields are views.

    Raises:
        ProtocolError: truncated, damaged, or longer than its fields.
    """
    schema = request_schema(api, version)
    reader = Reader(frame)
    reader.read(schema_of("RequestHeader", 2 if schema.flexible else 1))
    message = reader.read(schema)
    if reader.left:
        raise ProtocolError(f"{api.title} v{version} request has {reader.left} B after its end")
    return message


def encode_response(api: Api, version: int, correlation_id: int, fields: Fields) -> bytes:
    """The bytes of a response, header included, frame length not; fields as for `encode_request`."""
    schema = response_schema(api, version)
    out = Writer()
    out.write(_response_header(api, schema), {"correlation_id": correlation_id})
    out.write(schema, fields)
    return out.take()


def correlation_id_of(frame: memoryview) -> int:
    """The correlation id, which every response begins with.

    Raises:
        ProtocolError: the frame is shorter.
    """
    if len(frame) < CORRELATION_ID_BYTES:
        raise ProtocolError(f"a response has a correlation id of {CORRELATION_ID_BYTES} B at least, and this frame {len(frame)} B")
    return int.from_bytes(frame[:CORRELATION_ID_BYTES], "big", signed=True)


def decode_response(api: Api, version: int, frame: memoryview) -> Message:
    """The response in *frame* (header included); its ``records`` fields are views of *frame*.

    Bytes after its end are ignored, as Java and librdkafka do: some brokers write such bytes (librdkafka's mock
    cluster, after Metadata). Not in ApiVersions: there they show that the response was written in another version
    (M08).

    Raises:
        ProtocolError: truncated or damaged.
    """
    schema = response_schema(api, version)
    reader = Reader(frame)
    reader.read(_response_header(api, schema))
    try:
        message = reader.read(schema)
    except ProtocolError as error:
        raise ProtocolError(f"{api.title} v{version} response does not decode: {error}") from error
    if reader.left and api is Api.API_VERSIONS:
        raise ProtocolError(f"{api.title} v{version} response has {reader.left} B after its end")
    return message


def field_names(api: Api) -> frozenset[str]:
    """Every field name that any version of the API's request has, at any depth."""
    return names_in(f"{api.title}Request")


def _response_header(api: Api, schema: Schema) -> Schema:
    """Version 1 in front of flexible responses, but for ApiVersions: its reader may not know the version (KIP-511)."""
    return schema_of("ResponseHeader", 1 if schema.flexible and api is not Api.API_VERSIONS else 0)
