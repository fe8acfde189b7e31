"""No password, token or client secret is in anything shown: errors with their causes, logs, every repr (by grep)."""
from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.errors import KafkaError
from pyclient.net.sasl_login import SaslClient
from pyclient.testing import Answer, Drop, Fail, World
from tests.simulation.logins import Client, logins, run, world
from tests.unit.sasl.endpoint import Endpoint

MARKER = "marker-secret"
PASSWORD = {"sasl_plain_username": "anna", "sasl_plain_password": MARKER}
TOKEN = {"sasl_token_provider": lambda: MARKER * 60}
WORDS = f"no such login: anna / {MARKER * 60}!"
Spoil = Callable[[World], object]


def refusing(fields: dict[str, object]) -> Spoil:
    return lambda place: place.cluster.intercept(Answer({"error_message": None, "auth_bytes": b"", "session_lifetime": 0, "error_code": 0, **fields}), Api.SASL_AUTHENTICATE)


SPOILS: dict[str, Spoil] = {
    "wrong password": lambda place: None,
    "an echo": refusing({"error_code": 58, "error_message": WORDS}),
    "another error": refusing({"error_code": 34, "error_message": WORDS}),
    "an echo as data": refusing({"auth_bytes": WORDS.encode()}),
    "an echo as JSON": refusing({"auth_bytes": f'{{"status":"{WORDS}"}}'.encode()}),
    "an echo as SCRAM": refusing({"auth_bytes": f"r={MARKER},s=AAAAAAAAAAAAAAAAAAAA,i=5000".encode()}),
    "an echo as SCRAM's error": refusing({"auth_bytes": f"e={MARKER}".encode()}),
    "a hang-up": lambda place: place.cluster.intercept(Drop(), Api.SASL_AUTHENTICATE),
    "not offered": lambda place: place.cluster.intercept(Answer({"error_code": 33, "mechanisms": [MARKER * 60]}), Api.SASL_HANDSHAKE),
    "no SASL": lambda place: place.cluster.intercept(Fail(34), Api.SASL_HANDSHAKE),
}


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error) + repr(error.__cause__) + repr(error.__context__)


@pytest.mark.parametrize(("mechanism", "spoil"), [
    (mechanism, spoil) for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER") for spoil in SPOILS
    if "SCRAM" not in spoil or mechanism != "OAUTHBEARER"
])
def test_no_failure_of_a_login_shows_a_secret(mechanism: str, spoil: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    place = world()
    SPOILS[spoil](place)
    given: dict[str, Any] = TOKEN if mechanism == "OAUTHBEARER" else PASSWORD

    async def test(client: Client) -> None:
        ours = logins(client, mechanism, **given)
        seen = [repr(each) for each in everything(ours)]
        try:
            await client.log_in(ours)
        except KafkaError as error:
            seen.append(shown(error))
        else:
            assert mechanism == "PLAIN", "which proves nothing of the broker"
        seen += [repr(client.link), *map(shown, client.lost), *(repr(each) for each in everything(ours))]
        assert MARKER not in "\n".join(seen)

    run(place, test)
    assert MARKER not in caplog.text


def everything(ours: SaslClient) -> list[object]:
    login = ours.login("broker-1")
    return [ours, login, ours.credentials("broker-1", "broker 1"), ours._mechanism, ours._config, login.exchange, *vars(ours._mechanism).values(), *vars(ours).values()]


@pytest.mark.parametrize("answer", [(500, MARKER.encode()), (401, {"error": "x", "error_description": WORDS}), (200, {"access_token": f"{MARKER} {MARKER}"})])
def test_no_failure_of_a_token_endpoint_shows_a_secret(answer: tuple[int, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    place = world()
    with Endpoint(answer) as endpoint:
        given = {"sasl_oauthbearer_token_endpoint_url": endpoint.url, "sasl_oauthbearer_client_credentials_client_id": "us",
                 "sasl_oauthbearer_client_credentials_client_secret": MARKER, "sasl_login_retry_backoff_ms": 0}

        async def test(client: Client) -> None:
            ours = logins(client, "OAUTHBEARER", **given)
            with pytest.raises(KafkaError) as caught:
                await client.log_in(ours)
            assert MARKER not in shown(caught.value) + "".join(repr(each) for each in everything(ours))

        run(place, test)
    assert MARKER not in caplog.text
