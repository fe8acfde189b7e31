"""PLAIN (RFC 4616): user and password as they are, so over TLS only."""
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyclient.sasl.passwords import OPTIONS, check_password


class Plain:
    """Sends user and password in one message."""

    name = "PLAIN"
    blocking = False
    options = OPTIONS

    def check(self, config: Any, /) -> None:
        """Both options must be set."""
        check_password(config, self.name)

    def exchange(self, config: Any, _host: str, /) -> Generator[bytes, bytes, None]:
        """No authorization id: one logs in as oneself."""
        self.check(config)
        yield f"\0{config.sasl_plain_username}\0{config.sasl_plain_password}".encode()
