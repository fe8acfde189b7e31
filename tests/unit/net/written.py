"""Requests with bytes that a test makes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyclient.codec.messages import Buffer
from pyclient.core.manager import Request


class Written(Request):
    """*pieces(version, correlation id, client id)* makes its bytes."""

    def __init__(self, pieces: Callable[[int, int, str | None], list[Buffer]], **fields: Any) -> None:
        self._pieces = pieces
        super().__init__(**fields)

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """As `Request.encode`."""
        return self._pieces(version, correlation_id, client_id)
