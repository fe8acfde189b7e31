"""PLAIN (RFC 4616): sends user and password unencrypted, so use it with TLS only."""
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyclient.sasl.passwords import OPTIONS, check_password


class Plain:
    """One message with user and password."""

    name = "PLAIN"
    blocking = False
    options = OPTIONS

    def check(self, config: Any, /) -> None:
        """Raises ConfigurationError: user or password is missing."""
        check_password(config, self.name)

    def exchange(self, config: Any, _host: str, /) -> Generator[bytes, bytes, None]:
        """Without an authorization id."""
        self.check(config)
        yield f"\0{config.sasl_plain_username}\0{config.sasl_plain_password}".encode()
