"""JSON with a signature: a user's serializer for pyclient.

The signature (HMAC-SHA256 of topic and data) is in a header, so that readers without the secret read plain JSON.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from typing import Any

from pyclient.errors import SerializationError
from pyclient.plugins import Serialized

__all__ = ["SignedJson"]

VARIABLE = "SIGNED_JSON_SECRET"


class SignedJson:
    """Signs what it writes, and refuses what is not signed with *secret* (left out: of the environment)."""

    adds_headers = True

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = os.environ[VARIABLE].encode() if secret is None else secret
        self._header = "value_signature"

    def configure(self, *, is_key: bool) -> None:
        """Called when the client is made: keys and values have headers of their own."""
        self._header = "key_signature" if is_key else "value_signature"

    def serialize(self, topic: str, value: Any) -> Serialized | None:
        """The JSON text, and a header with its signature. Errors of `json` become SerializationError."""
        if value is None:
            return None
        data = json.dumps(value, sort_keys=True).encode()
        return Serialized(data, ((self._header, self._signature(topic, data)),))

    def deserialize(self, topic: str, data: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()) -> Any:
        """The value; SerializationError when the signature is missing or wrong."""
        if data is None:
            return None
        expected = self._signature(topic, data)
        if not any(name == self._header and hmac.compare_digest(given or b"", expected) for name, given in headers):
            raise SerializationError(f"topic {topic!r}: the header {self._header!r} is missing or does not fit the data")
        return json.loads(data)

    def _signature(self, topic: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, topic.encode() + b"\0" + data, hashlib.sha256)
