"""SCRAM (RFC 5802, RFC 7677) by the library scramp: the password never leaves this process, and the broker must know it too."""
from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Generator
from typing import Any, Final

from pyclient.errors import SaslAuthenticationError
from pyclient.plugins import Surroundings
from pyclient.sasl.passwords import OPTIONS, check_password
from pyclient.redaction import in_one_line

NONCE_BYTES: Final = 24
ITERATIONS: Final = range(4096, 1_000_001)
"""Fewer make a stolen exchange easy to guess from; more would let a broker keep this machine busy. Kafka's own range ends at 16,384."""
LONGEST: Final = 8192
"""Bytes of a broker's message; a real one has about a hundred."""
STAND_IN: Final = "x"
SHOWN: Final = 200


class Scram:
    """Two rounds; the second answer proves that the broker knows the password. Computing takes milliseconds to a second: in a worker."""

    blocking = True
    options = OPTIONS

    def __init__(self, name: str, *, nonce: Callable[[], str] | None = None) -> None:
        self.name = name
        self._token_bytes: Callable[[int], bytes] = secrets.token_bytes
        self._nonce = nonce or self._drawn

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Take the nonces from here."""
        self._token_bytes = surroundings.token_bytes

    def check(self, config: Any, /) -> None:
        """Both options must be set."""
        check_password(config, self.name)

    def exchange(self, config: Any, _host: str, /) -> Generator[bytes, bytes, None]:
        """The broker's signature is checked before the login counts."""
        self.check(config)
        client = self._client(config.sasl_plain_username, config.sasl_plain_password)
        first = yield client.get_client_first().encode()
        self._take(client.set_server_first, first)
        self._bound(int(client.iterations))
        final = yield client.get_client_final().encode()
        self._take(client.set_server_final, final)

    def _client(self, user: str, password: str) -> Any:
        from scramp import ScramClient

        client = ScramClient([self.name], STAND_IN, STAND_IN, c_nonce=self._nonce())
        # Kafka keeps users and passwords as they are, without SASLprep: what it would change or refuse could never log in.
        client.username.username = user
        client.password.password = password
        return client

    def _drawn(self) -> str:
        return base64.b64encode(self._token_bytes(NONCE_BYTES)).decode()

    def _take(self, take: Callable[[str], None], message: bytes) -> None:
        """Whatever the bytes are, what comes of them is an error that says so."""
        from scramp import ScramException

        if len(message) > LONGEST:
            raise SaslAuthenticationError(f"the broker sent {len(message)} B where {self.name} has about a hundred")
        try:
            take(message.decode())
        except ScramException as error:
            raise SaslAuthenticationError(f"the broker did not pass {self.name}: {_said(error)}") from None
        except Exception as error:  # noqa: BLE001 a message nobody foresaw; the original could show what was computed from the password
            raise SaslAuthenticationError(f"the broker's message is none of {self.name}: {type(error).__name__}") from None

    def _bound(self, iterations: int) -> None:
        if iterations not in ITERATIONS:
            raise SaslAuthenticationError(
                f"the broker asks for {iterations} iterations of {self.name}; {ITERATIONS[0]} to {ITERATIONS[-1]} are allowed")


def _said(error: Exception) -> str:
    text = str(error)
    if "signature" in text:
        return "its signature is wrong, so it does not know the password and may be somebody else's"
    return in_one_line(text, SHOWN)


class ScramSha256(Scram):
    """SCRAM-SHA-256."""

    def __init__(self, *, nonce: Callable[[], str] | None = None) -> None:
        super().__init__("SCRAM-SHA-256", nonce=nonce)


class ScramSha512(Scram):
    """SCRAM-SHA-512."""

    def __init__(self, *, nonce: Callable[[], str] | None = None) -> None:
        super().__init__("SCRAM-SHA-512", nonce=nonce)
