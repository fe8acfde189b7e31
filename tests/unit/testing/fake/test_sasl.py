"""Logins at the fake cluster, as at Kafka's brokers: which request is admitted when, refusals, and session ends."""
from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import Api
from pyclient.codec.messages import decode_response, encode_request
from pyclient.errors import ConfigurationError, IllegalStateError
from pyclient.testing import FakeCluster
from pyclient.testing.fake.model.kafka import Broker, Kafka
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from pyclient.testing.fake.model.sasl import Answer, Session, enabled
from pyclient.testing.fake.model.settings import Settings

USERS = {"anna": "marker-secret", "bert": "other"}
ANNA = b"\0anna\0marker-secret"
NEWEST_VERSIONS = PROFILES[NEWEST].apis
LIMITED = {"connections.max.reauth.ms": 5000}
"""Only sessions that end are renewed."""
LOGIN = {Api.API_VERSIONS, Api.SASL_HANDSHAKE}


class Place:
    """A model whose clocks a test moves."""

    def __init__(self, users: Mapping[str, str] | None = USERS, settings: Mapping[str, object] | None = None) -> None:
        self.now = 100.0
        self.kafka = Kafka([Broker(1, "host", 9092)], clock=lambda: self.now, wall=lambda: round(self.now * 1000), random=Random(0),
                           settings=Settings.parse(settings or {}), users=users)
        self.session = Session(self.kafka)

    def log_in(self, message: bytes = ANNA, mechanism: str = "PLAIN") -> Answer:
        assert self.session.handshake(mechanism, 1) == 0
        answer = self.session.authenticate(message)
        assert answer is not None
        return answer

    def admitted(self) -> set[Api]:
        return {api for api in Api if self.session.admits(api)}

    def token(self, life: float = 60, **claims: Any) -> bytes:
        parts = ({"alg": "none"}, {"sub": "anna", "exp": self.now + life, **claims})
        text = ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts)
        return f"n,,\x01auth=Bearer {text}.\x01\x01".encode()


def test_before_a_login_only_versions_and_the_login_are_admitted_and_within_it_only_its_messages() -> None:
    place = Place()
    assert place.admitted() == LOGIN
    assert place.session.handshake("PLAIN", 1) == 0
    assert place.admitted() == {Api.SASL_AUTHENTICATE}
    assert place.session.authenticate(ANNA) == Answer()
    assert place.admitted() == set(Api)
    assert place.session.principal == "anna"


def test_versions_are_sent_once_before_a_login() -> None:
    place = Place()
    place.session.on_versions_requested()
    assert place.admitted() == {Api.SASL_HANDSHAKE}
    place.log_in()
    place.session.on_versions_requested()
    assert place.admitted() == set(Api)


def test_without_users_no_login_is_needed() -> None:
    place = Place(None)
    assert place.admitted() == set(Api)
    assert place.session.handshake("PLAIN", 1) == 34
    answer = place.session.authenticate(ANNA)
    assert answer is not None
    assert answer.error == 34
    assert enabled(place.kafka) == []


def test_an_empty_password_is_rejected() -> None:
    assert Place({"anna": ""}).log_in(b"\0anna\0").error == 58


def test_a_mechanism_that_is_not_enabled_ends_the_connection() -> None:
    place = Place(settings={"sasl.enabled.mechanisms": "SCRAM-SHA-512, GSSAPI"})
    assert enabled(place.kafka) == ["SCRAM-SHA-512"]
    assert place.session.handshake("PLAIN", 1) == 33
    assert place.session.over


def test_raw_messages_of_before_Kafka_1_0_are_not_modelled() -> None:
    assert Place().session.handshake("PLAIN", 0) == 34
    assert Place().session.handshake("GSSAPI", 0) == 33


@pytest.mark.parametrize(("longest_ms", "life", "lifetime_ms"), [(0, 60, 60_000), (10_000, 60, 10_000), (10_000, 5, 5_000)])
def test_a_session_lives_as_long_as_its_token_and_the_listener_allow(longest_ms: int, life: float, lifetime_ms: int) -> None:
    place = Place(settings={"connections.max.reauth.ms": longest_ms})
    answer = place.log_in(place.token(life), "OAUTHBEARER")
    assert (answer.error, answer.lifetime_ms) == (0, lifetime_ms)
    place.now += lifetime_ms / 1000 - 0.1
    assert place.session.admits(Api.METADATA)
    place.now += 0.2
    assert place.admitted() == {Api.SASL_HANDSHAKE}, "a session that has ended can still be renewed"


@pytest.mark.parametrize("claims", [{"exp": float("nan")}, {"exp": float("inf")}])
def test_a_token_without_a_finite_end_is_explained_and_then_refused(claims: dict[str, Any]) -> None:
    place = Place()
    assert place.log_in(place.token(**claims), "OAUTHBEARER").data == b'{"status":"invalid_token"}'
    assert place.admitted() == {Api.SASL_AUTHENTICATE}
    answer = place.session.authenticate(b"\x01")
    assert answer is not None
    assert (answer.error, answer.words) == (58, '{"status":"invalid_token"}')
    assert place.session.over


def test_a_login_can_be_renewed_by_the_same_user_and_mechanism_at_once_and_then_after_a_second() -> None:
    place = Place(settings=LIMITED)
    place.log_in()
    place.log_in()
    place.now += 0.9
    assert place.session.handshake("PLAIN", 1) == 34
    assert place.admitted() == set(Api), "it is refused and nothing else"
    place.now += 0.2
    assert place.log_in().lifetime_ms == 5000
    place.now += 4.9
    assert place.session.admits(Api.METADATA)


def test_a_session_that_has_ended_within_a_second_of_its_renewal_cannot_be_renewed_before() -> None:
    place = Place()
    place.log_in(place.token(60), "OAUTHBEARER")
    place.now += 1
    place.log_in(place.token(0.5), "OAUTHBEARER")
    place.now += 0.7
    assert place.admitted() == set()
    place.now += 0.4
    assert place.admitted() == {Api.SASL_HANDSHAKE}


def test_messages_of_a_login_are_not_longer_than_half_a_mebibyte() -> None:
    with FakeCluster(sasl=USERS) as fake, connected(fake) as call:
        assert call(Api.SASL_HANDSHAKE, mechanism="PLAIN").error_code == 0
        assert call(Api.SASL_AUTHENTICATE, auth_bytes=bytes(512 * 1024)) is None


@contextlib.contextmanager
def connected(fake: FakeCluster) -> Iterator[Callable[..., Any]]:
    """A connection on which to ask; None is what a broker answers that hangs up."""
    host, _, port = fake.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as stream:
        def call(api: Api, **fields: object) -> Any:
            version = NEWEST_VERSIONS[api].high
            frame = encode_request(api, version, 1, "test", fields)
            try:
                connection.sendall(len(frame).to_bytes(4, "big") + frame)
                size = int.from_bytes(stream.read(4), "big")
                return decode_response(api, version, memoryview(stream.read(size))) if size else None
            except ConnectionError:
                return None
        yield call


@given(mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]), messages=st.lists(st.binary(max_size=60) | st.just(b"n,,n=anna,r=abc"), max_size=4))
def test_random_messages_are_answered_and_never_log_in(mechanism: str, messages: list[bytes]) -> None:
    place = Place({"anna": "x" * 40})
    assert place.session.handshake(mechanism, 1) == 0
    for message in messages:
        answer = place.session.authenticate(message)
        assert answer is not None
        assert answer.error in (0, 34, 58)
    assert Api.METADATA not in place.admitted()


def test_passwords_can_be_changed_while_a_cluster_runs() -> None:
    with FakeCluster(sasl={"anna": "marker-secret"}) as fake:
        fake.set_password("anna", "another")
        fake.set_password("bert", "new")
        fake.set_password("unknown", None)
        assert fake._model.users == {"anna": "another", "bert": "new"}
    with FakeCluster() as fake, pytest.raises(IllegalStateError, match="sasl="):
        fake.set_password("anna", "marker-secret")


def test_a_setting_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"connections\.max\.reauth\.sec"):
        FakeCluster(sasl={}, config={"connections.max.reauth.sec": 5})
