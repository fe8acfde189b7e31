"""The token endpoint as clients use it. Brokers check them in tests/broker/test_secured_cluster.py."""
from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from pyclient.testing.tokens import TokenIssuer, TokenRequest, unsecured_token
from tests.waiting import eventually

USERS = {"alice": "alice-secret", "bob": "100% & more: ü"}


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(USERS) as running:
        yield running


def asked(issuer: TokenIssuer, authorization: str = "", **form: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON that the endpoint answers to a form."""
    request = urllib.request.Request(issuer.token_endpoint_url, urllib.parse.urlencode(form).encode())
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def basic(client_id: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def fetched(issuer: TokenIssuer, user: str = "alice", **form: str) -> tuple[int, dict[str, Any]]:
    return asked(issuer, basic(user, USERS[user]), grant_type="client_credentials", **form)


def claims(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return found


def check_signature(issuer: TokenIssuer, token: str) -> None:
    """Raises InvalidSignature unless the key that the issuer publishes made it."""
    with urllib.request.urlopen(f"{issuer.url}/jwks", timeout=20) as answer:
        [key] = json.load(answer)["keys"]
    number = {name: int.from_bytes(base64.urlsafe_b64decode(key[name] + "=="), "big") for name in ("n", "e")}
    covered, _, signature = token.rpartition(".")
    public = rsa.RSAPublicNumbers(number["e"], number["n"]).public_key()
    public.verify(base64.urlsafe_b64decode(signature + "=="), covered.encode(), padding.PKCS1v15(), hashes.SHA256())


def test_a_client_gets_a_signed_token_of_its_own(issuer: TokenIssuer) -> None:
    status, answer = fetched(issuer, scope="kafka.write")
    assert status == 200
    assert (answer["token_type"], answer["expires_in"], answer["scope"]) == ("Bearer", 3600, "kafka.write")
    content = claims(answer["access_token"])
    assert (content["sub"], content["iss"], content["aud"], content["scope"]) == ("alice", issuer.url, "kafka", "kafka.write")
    assert content["exp"] - content["iat"] == 3600
    check_signature(issuer, answer["access_token"])


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("user", USERS)
def test_the_secret_may_come_in_the_header_encoded_or_not_or_in_the_form(issuer: TokenIssuer, user: str, encoded: bool) -> None:
    secret = urllib.parse.quote_plus(USERS[user]) if encoded else USERS[user]
    assert asked(issuer, basic(user, secret), grant_type="client_credentials")[0] == 200
    assert asked(issuer, grant_type="client_credentials", client_id=user, client_secret=USERS[user])[0] == 200


@pytest.mark.parametrize(("authorization", "grant", "status", "error"), [
    (basic("alice", "wrong"), "client_credentials", 401, "invalid_client"),
    (basic("unknown", ""), "client_credentials", 401, "invalid_client"),
    ("Basic ???", "client_credentials", 401, "invalid_client"), ("", "client_credentials", 401, "invalid_client"),
    (basic("alice", USERS["alice"]), "password", 400, "unsupported_grant_type"),
])
def test_what_is_wrong_is_refused_in_the_words_of_the_rfc(issuer: TokenIssuer, authorization: str, grant: str, status: int, error: str) -> None:
    found, answer = asked(issuer, authorization, grant_type=grant)
    assert (found, answer["error"]) == (status, error)


def test_it_fails_as_often_as_configured_and_counts(issuer: TokenIssuer) -> None:
    issuer.fail(503, times=2)
    assert [fetched(issuer)[0] for _ in range(3)] == [503, 503, 200]
    issuer.fail(500)
    assert [fetched(issuer)[0] for _ in range(3)] == [500, 500, 500]
    issuer.heal()
    assert fetched(issuer, "bob")[0] == 200
    assert len(issuer.requests) == 7
    assert issuer.requests[-1] == TokenRequest("bob", "", 200)
    assert not any(secret in repr(issuer.requests) for secret in USERS.values())


def test_tokens_have_the_configured_lifetime(issuer: TokenIssuer) -> None:
    issuer.lifetime_s = 5
    answer = fetched(issuer)[1]
    assert answer["expires_in"] == 5
    assert claims(answer["access_token"])["exp"] <= time.time() + 5


def test_a_slow_endpoint_answers_late_and_does_not_hold_up_the_end() -> None:
    with TokenIssuer(USERS) as issuer:
        issuer.delay_s = 0.2
        began = time.monotonic()
        assert fetched(issuer)[0] == 200
        assert time.monotonic() - began >= 0.2
        issuer.delay_s = 3600
        waiting = threading.Thread(target=quietly_fetched, args=(issuer,), daemon=True)
        waiting.start()
        eventually(answers_somebody)
        began = time.monotonic()
    eventually(lambda: not answers_somebody())
    assert time.monotonic() - began < 10


def answers_somebody() -> bool:
    return any("process_request_thread" in thread.name for thread in threading.enumerate())


def quietly_fetched(issuer: TokenIssuer) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):  # the endpoint is gone
        fetched(issuer)


def test_tokens_that_brokers_must_refuse_can_be_had(issuer: TokenIssuer) -> None:
    check_signature(issuer, issuer.token("alice"))
    with pytest.raises(InvalidSignature):
        check_signature(issuer, issuer.token("alice", known_key=False))
    assert claims(issuer.token("alice", lifetime_s=-60))["exp"] < time.time()
    assert claims(issuer.token("alice", aud="others", iss="unknown"))["aud"] == "others"


def test_what_it_publishes_leads_to_the_endpoint(issuer: TokenIssuer) -> None:
    with urllib.request.urlopen(f"{issuer.url}/.well-known/openid-configuration", timeout=20) as answer:
        found = json.load(answer)
    assert found == {"issuer": issuer.url, "token_endpoint": issuer.token_endpoint_url, "jwks_uri": f"{issuer.url}/jwks"}
    for path in ("/", "/token"):
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(issuer.url + path, timeout=20)
        missing.value.close()


def test_an_unsecured_token_has_algorithm_none() -> None:
    head, _, signature = unsecured_token("alice", 60, scope="x").split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert signature == ""
    content = claims(unsecured_token("alice", 60, scope="x"))
    assert (content["sub"], content["scope"]) == ("alice", "x")
    assert 60 <= content["exp"] - content["iat"] < 61


def test_an_unsecured_token_is_never_from_the_future_of_a_clock_of_whole_milliseconds() -> None:
    for _ in range(100):
        issued = claims(unsecured_token("alice"))["iat"]
        assert issued * 1000 <= time.time_ns() // 1_000_000
