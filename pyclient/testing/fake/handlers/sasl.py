"""SaslHandshake and SaslAuthenticate. The login itself is the connection's (`pyclient.testing.fake.model.sasl`)."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.sasl import enabled, session_of


@runtime_checkable
class SupportsCut(Protocol):
    """A connection."""

    def cut(self) -> None:
        """End it."""


def sasl_handshake(kafka: Kafka, request: Request) -> Fields | None:
    """Choose a mechanism; the answer names those that are enabled, save where none can be chosen now."""
    session = session_of(request.connection)
    code = ErrorCode.illegal_sasl_state if session is None else session.handshake(request.body.mechanism, request.version)
    if code is None:
        _hang_up(request)
        return None
    return {"error_code": code, "mechanisms": enabled(kafka) if code != ErrorCode.illegal_sasl_state else []}


def refuse_sasl_handshake(_request: Request, code: int) -> Fields:
    """An error."""
    return {"error_code": code, "mechanisms": []}


def sasl_authenticate(kafka: Kafka, request: Request) -> Fields | Awaitable[Fields] | None:
    """A message of the mechanism. A refusal comes late, so that guessing takes long."""
    session = session_of(request.connection)
    if session is None:
        return refuse_sasl_authenticate(request, ErrorCode.illegal_sasl_state)
    answer = session.authenticate(bytes(request.body.auth_bytes))
    if answer is None:
        _hang_up(request)
        return None
    fields = {"error_code": answer.error, "error_message": answer.words, "auth_bytes": answer.data, "session_lifetime": answer.lifetime_ms}
    delay = kafka.settings.connection_failed_authentication_delay_ms
    return _later(fields, delay / 1000) if answer.error == ErrorCode.sasl_authentication_failed and delay > 0 else fields


def refuse_sasl_authenticate(_request: Request, code: int) -> Fields:
    """An error."""
    return {"error_code": code, "error_message": None, "auth_bytes": b"", "session_lifetime": 0}


def _hang_up(request: Request) -> None:
    if isinstance(request.connection, SupportsCut):
        request.connection.cut()


async def _later(fields: Fields, delay: float) -> Fields:
    await asyncio.sleep(delay)
    return fields
