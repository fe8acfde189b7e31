"""PLAIN (RFC 4616): sends user and password unencrypted, so use it with TLS only."""
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyclient.sasl.passwords import LogsInByPassword


class Plain(LogsInByPassword):
    """One message with user and password."""

    name = "PLAIN"

    @property
    def blocking(self) -> bool:
        """Whether a user's function gives the password: it may wait."""
        return self.renews

    def exchange(self, config: Any, _host: str, /) -> Generator[Any, Any, None]:
        """Without an authorization id."""
        self.check(config)
        password = yield from self._password(config)
        yield f"\0{config.sasl_plain_username}\0{password}".encode()
