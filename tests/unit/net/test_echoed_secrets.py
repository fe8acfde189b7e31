"""A broker repeats what it was sent: no form of a secret shows in errors, nor in the variables of their frames."""
from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, cast
from urllib.parse import quote, quote_plus

import pytest

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.config import ProducerConfig
from pyclient.core.handshake import Versions
from pyclient.core.sasl import Wait, Work
from pyclient.errors import KafkaError
from pyclient.net.sasl_login import SaslClient
from pyclient.runtime.environment import Environment
from tests.secrets import MARKER, assert_no_local_shows
from tests.unit.core.world import answer
from tests.reactors import idle_portal

PASSWORD = f"{MARKER}/ü+1"
RANGES: dict[int, VersionRange] = {int(api): limits for api, limits in SPOKEN.items()}
FORMS: list[Callable[[bytes], str]] = [
    lambda secret: secret.decode(), lambda secret: base64.b64encode(secret).decode(), lambda secret: base64.urlsafe_b64encode(secret).decode(),
    lambda secret: base64.b64encode(secret).decode().rstrip("="), lambda secret: secret.hex(), lambda secret: secret.hex().upper(),
    lambda secret: quote(secret, safe=""), quote_plus,
]
LOGINS: list[dict[str, Any]] = [
    {"sasl_mechanism": "PLAIN", "sasl_plain_username": "anna", "sasl_plain_password": PASSWORD},
    {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "anna", "sasl_plain_password": PASSWORD},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: f"{MARKER}.token"},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: (f"{MARKER}.token", 4e9)},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: f"{MARKER} of two words"},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: (f"{MARKER}.token", 1.0)},
    {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: (f"{MARKER}.token", "soon")},
]


def secrets_of(given: dict[str, Any], message: bytes) -> list[bytes]:
    """What the client sent, and the password or token in it."""
    return [message, str(given["sasl_plain_password"]).encode() if "sasl_plain_password" in given else f"{MARKER}.token".encode()]


def refused(given: dict[str, Any], respond: Callable[[bytes], Any]) -> tuple[KafkaError, bytes]:
    """The error of a login to which *respond* gives the responses, and the client's last message."""
    client = SaslClient.of(ProducerConfig.parse({"bootstrap_servers": "localhost:1", "security_protocol": "SASL_PLAINTEXT", **given}), Environment(), idle_portal(), Random(1))
    assert client is not None
    exchange = client.login("localhost").exchange(Versions(RANGES), peer="localhost:1 (node 1)", again=False)
    said: list[bytes] = [b""]
    with pytest.raises(KafkaError) as caught:
        send: Any = None
        while True:
            step = exchange.send(send)
            if isinstance(step, Work):
                send = step.run()
            elif isinstance(step, Wait):
                pytest.fail("a token function that is not async is not awaited")
            elif step.api is Api.SASL_HANDSHAKE:
                send = answer(Api.SASL_HANDSHAKE, 1, error_code=0, mechanisms=[])
            else:
                assert MARKER not in repr(step)
                said.append(bytes(cast(bytes, step.fields["auth_bytes"])))
                send = respond(said[-1])
    return caught.value, said[-1]


@pytest.mark.parametrize("given", LOGINS, ids=range(len(LOGINS)))
@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("place", ["error_message", "auth_bytes"])
def test_a_secret_that_a_broker_repeats_in_any_form_is_not_shown(given: dict[str, Any], form: int, place: str) -> None:
    def respond(message: bytes) -> Any:
        text = " and ".join(FORMS[form](secret) for secret in secrets_of(given, message))
        error = 58 if place == "error_message" else 0
        return answer(Api.SASL_AUTHENTICATE, 2, error_code=error, error_message=f"wrong: {text}", auth_bytes=text.encode() if place == "auth_bytes" else b"",
                      session_lifetime=timedelta())

    if place == "auth_bytes" and given["sasl_mechanism"] == "PLAIN":
        pytest.skip("PLAIN has no response")
    error, message = refused(given, respond)
    for secret in secrets_of(given, message):
        assert not message or FORMS[form](secret).rstrip("=") not in str(error) + repr(error)
        assert_no_local_shows(error, MARKER, repr(secret)[2:-1] if message else MARKER, base64.b64encode(secret).decode().rstrip("=") or MARKER)
