"""SCRAM (RFC 5802, RFC 7677) by scramp: the password is never sent, and the broker must prove that it knows it."""
from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Generator
from typing import Any, Final

from pyclient.errors import SaslAuthenticationError
from pyclient.plugins import Surroundings
from pyclient.redaction import in_one_line
from pyclient.sasl.passwords import OPTIONS, LogsInByPassword

NONCE_BYTES: Final = 24
ITERATIONS: Final = range(4096, 1_000_001)
"""With fewer, a recorded login is easy to brute-force; with more, a broker could keep this machine busy.

Kafka allows up to 16,384.
"""
LONGEST: Final = 8192
"""Bytes of a broker's message; a normal one has about a hundred."""
PLACEHOLDER: Final = "x"
BY_TOKEN: Final = ",tokenauth=true"  # noqa: S105 no secret
"""The extension of the first message."""
SHOWN: Final = 200


class Scram(LogsInByPassword):
    """Two rounds; the second response proves that the broker knows the password.

    Hashing takes up to a second: it runs in a worker.
    """

    blocking = True
    options = (*OPTIONS, "sasl_scram_tokenauth")

    def __init__(self, name: str, *, nonce: Callable[[], str] | None = None) -> None:
        super().__init__()
        self.name = name
        self._token_bytes: Callable[[int], bytes] = secrets.token_bytes
        self._nonce = nonce or self._new_nonce

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Use this randomness for nonces."""
        self._token_bytes = surroundings.token_bytes

    def exchange(self, config: Any, _host: str, /) -> Generator[Any, Any, None]:
        """Checks the broker's signature before the login succeeds."""
        self.check(config)
        password = yield from self._password(config)
        client = self._client(config.sasl_plain_username, password)
        first = yield self._first(client, is_token=getattr(config, "sasl_scram_tokenauth", False)).encode()
        self._pass_to(client.set_server_first, first)
        self._check_iterations(int(client.iterations))
        final = yield client.get_client_final().encode()
        self._pass_to(client.set_server_final, final)

    def _client(self, user: str, password: str) -> Any:
        from scramp import ScramClient

        client = ScramClient([self.name], PLACEHOLDER, PLACEHOLDER, c_nonce=self._nonce())
        # Kafka does not apply SASLprep: users and passwords that SASLprep changes or refuses could not log in.
        client.username.username = user
        client.password.password = password
        return client

    def _first(self, client: Any, *, is_token: bool) -> str:
        """The first message; with a delegation token, its extension says that the user is a token's id (KIP-48)."""
        message = str(client.get_client_first())
        if is_token:
            client.client_first_bare += BY_TOKEN  # which both sides sign
            message += BY_TOKEN
        return message

    def _new_nonce(self) -> str:
        return base64.b64encode(self._token_bytes(NONCE_BYTES)).decode()

    def _pass_to(self, take: Callable[[str], None], message: bytes) -> None:
        """Raises SaslAuthenticationError for every message that is not a valid one."""
        from scramp import ScramException

        if len(message) > LONGEST:
            raise SaslAuthenticationError(f"the broker sent a message of {len(message)} B; {self.name} messages have about a hundred")
        failure = None
        try:
            take(message.decode())
        except ScramException as error:
            failure = f"{self.name} failed: {_reason(error)}"
        except Exception as error:  # noqa: BLE001 any message of the broker's
            failure = f"the broker's message is not a valid {self.name} message: {type(error).__name__}"
        if failure is not None:  # raised here: as its context, the original would keep values computed from the password in its frames
            raise SaslAuthenticationError(failure)

    def _check_iterations(self, iterations: int) -> None:
        if iterations not in ITERATIONS:
            raise SaslAuthenticationError(
                f"the broker requests {iterations} iterations of {self.name}; allowed are {ITERATIONS[0]} to {ITERATIONS[-1]}")


def _reason(error: Exception) -> str:
    text = str(error)
    if "signature" in text:
        return "the broker's signature is wrong: it does not know the password, so it may be an impostor"
    return in_one_line(text, SHOWN)


class ScramSha256(Scram):
    """SCRAM with SHA-256."""

    def __init__(self, *, nonce: Callable[[], str] | None = None) -> None:
        super().__init__("SCRAM-SHA-256", nonce=nonce)


class ScramSha512(Scram):
    """SCRAM with SHA-512."""

    def __init__(self, *, nonce: Callable[[], str] | None = None) -> None:
        super().__init__("SCRAM-SHA-512", nonce=nonce)
