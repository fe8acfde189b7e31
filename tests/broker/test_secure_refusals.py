"""Refusals of real brokers raise the right error at once, with the way out; the timeouts are the defaults."""
from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import (
    AuthenticationError, IllegalSaslStateError, KafkaError, SaslAuthenticationError, SslAuthenticationError, UnsupportedSaslMechanismError,
)
from pyclient.testing import LocalCluster, Security
from tests.secured_clients import SOON_S, Options, from_endpoint, reaching, soon, with_password, with_token

SECURITY: Final = Security()
one = pytest.mark.kafka(security=SECURITY)
three = pytest.mark.kafka(brokers=3, security=SECURITY)
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WITH_TLS: Final = ("SSL", "MTLS", "EXPIRED", "WRONG_HOST", "SASL_SSL")
WITHOUT_TLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "OIDC")
versions = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


def of_version(version: str) -> Options:
    return {"ssl_enabled_protocols": version, "ssl_protocol": version}


def is_refused(options: Options, kind: type[KafkaError], *words: str) -> None:
    """The first call raises it, and every later one, without another request."""
    with Producer(**options) as producer:
        for _ in range(2):
            with soon(kind, *words):
                producer.send("orders", b"x").result(SOON_S)


# --- TLS -------------------------------------------------------------------------------------------------------------


@three
@versions
@pytest.mark.parametrize("listener", ["SSL", "MTLS", "SASL_SSL"])
def test_a_broker_of_an_unknown_authority_is_not_trusted(kafka_cluster: LocalCluster, listener: str, version: str) -> None:
    options = reaching(kafka_cluster, listener, **of_version(version)) | {"security_protocol": "SSL", "ssl_truststore_location": kafka_cluster.credentials.other_ca.path}
    is_refused(options, SslAuthenticationError, "not signed by an authority that this client trusts", "ssl_truststore_location")


@one
def test_the_machines_own_authorities_do_not_know_the_brokers(kafka_cluster: LocalCluster) -> None:
    options = reaching(kafka_cluster, "SSL")
    del options["ssl_truststore_location"]
    is_refused(options, SslAuthenticationError, "ssl_truststore_location")


@one
@versions
def test_a_certificate_that_has_expired_is_raised(kafka_cluster: LocalCluster, version: str) -> None:
    is_refused(reaching(kafka_cluster, "EXPIRED", **of_version(version)), SslAuthenticationError, "has expired", "Renew it on the broker")


@one
@versions
def test_a_certificate_for_another_host_is_raised_with_its_names_and_the_option(kafka_cluster: LocalCluster, version: str) -> None:
    is_refused(reaching(kafka_cluster, "WRONG_HOST", **of_version(version)), SslAuthenticationError,
               "kafka.invalid", "advertised.listeners", "ssl_endpoint_identification_algorithm")


@one
@versions
def test_without_a_certificate_of_the_client_the_option_is_named(kafka_cluster: LocalCluster, version: str) -> None:
    is_refused(reaching(kafka_cluster, "MTLS", **of_version(version)), SslAuthenticationError, "requires a client certificate", "ssl_keystore_location")


@one
@versions
@pytest.mark.parametrize("which", ["stranger", "expired"])
def test_a_certificate_of_the_client_that_brokers_do_not_take_is_raised(kafka_cluster: LocalCluster, version: str, which: str) -> None:
    keystore = getattr(kafka_cluster.credentials, which).keystore.path
    is_refused(reaching(kafka_cluster, "MTLS", ssl_keystore_location=keystore, **of_version(version)), SslAuthenticationError,
               "does not accept the client's certificate")


@one
def test_no_cipher_suite_in_common_is_raised(kafka_cluster: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=kafka_cluster.credentials.ca.path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA")  # of RSA keys only, which no broker here has
    options = reaching(kafka_cluster, "SSL", ssl_context=context)
    del options["ssl_truststore_location"]
    is_refused(options, SslAuthenticationError, "no cipher suite", "ssl_cipher_suites")


@one
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("listener", WITH_TLS)
def test_a_client_without_tls_at_a_listener_with_it_is_refused(kafka_cluster: LocalCluster, listener: str, protocol: str) -> None:
    login = {} if protocol == "PLAINTEXT" else with_password("PLAIN", "SASL_PLAINTEXT")(kafka_cluster, "alice")
    is_refused(login | {"bootstrap_servers": kafka_cluster.bootstrap(listener)}, SslAuthenticationError, "uses TLS", "security_protocol=SSL")


@one
@versions
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
@pytest.mark.parametrize("listener", WITHOUT_TLS)
def test_a_client_with_tls_at_a_listener_without_it_is_refused(kafka_cluster: LocalCluster, listener: str, protocol: str, version: str) -> None:
    login = reaching(kafka_cluster, "SSL") if protocol == "SSL" else with_password("PLAIN", "SASL_SSL")(kafka_cluster, "alice")
    is_refused(login | {"bootstrap_servers": kafka_cluster.bootstrap(listener)} | of_version(version), SslAuthenticationError,
               "without TLS", "security_protocol=PLAINTEXT")


# --- SASL ------------------------------------------------------------------------------------------------------------


@one
@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize(("listener", "protocol"), [("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "SASL_SSL")])
def test_a_login_at_a_listener_without_logins_is_refused(kafka_cluster: LocalCluster, mechanism: str, listener: str, protocol: str) -> None:
    options = with_password(mechanism, protocol)(kafka_cluster, "alice") | {"bootstrap_servers": kafka_cluster.bootstrap(listener)}
    is_refused(options, IllegalSaslStateError, "a listener without SASL", "security_protocol")


@three
@pytest.mark.parametrize(("listener", "offered"), [
    ("SASL_PLAINTEXT", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]), ("OIDC", ["OAUTHBEARER"]),
    ("SASL_SSL", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])])
def test_a_missing_login_is_raised_with_the_mechanisms_that_the_listener_offers(kafka_cluster: LocalCluster, listener: str, offered: list[str]) -> None:
    options = reaching(kafka_cluster, listener)
    options["security_protocol"] = "SSL" if listener == "SASL_SSL" else "PLAINTEXT"
    is_refused(options, SaslAuthenticationError, "requires a login", "sasl_mechanism", "security_protocol", *offered)


@three
@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("wrong", [{"sasl_plain_password": "not-this-one"}, {"sasl_plain_username": "stranger"}], ids=["password", "user"])
def test_a_wrong_password_or_user_is_raised_without_the_password(
        kafka_cluster: LocalCluster, mechanism: str, listener: str, wrong: dict[str, str]) -> None:
    options = with_password(mechanism, listener)(kafka_cluster, "alice") | wrong
    is_refused(options, SaslAuthenticationError, mechanism, "sasl_plain_username and sasl_plain_password")
    with Admin(**options) as admin, pytest.raises(SaslAuthenticationError) as refused:
        admin.list_topics()
    assert options["sasl_plain_password"] not in repr(refused.value) + str(refused.value)


@one
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_the_error_of_a_mechanism_that_is_not_offered_lists_the_offered_ones(kafka_cluster: LocalCluster, mechanism: str) -> None:
    options = with_password(mechanism, "SASL_PLAINTEXT")(kafka_cluster, "alice") | {"bootstrap_servers": kafka_cluster.bootstrap("OIDC")}
    is_refused(options, UnsupportedSaslMechanismError, f"does not offer {mechanism}", "it offers OAUTHBEARER", "sasl_mechanism")


@one
@pytest.mark.parametrize(("listener", "claims"), [
    ("OIDC", {"known_key": False}), ("OIDC", {"lifetime_s": -120}), ("OIDC", {"aud": "others"}), ("OIDC", {"iss": "http://elsewhere"}),
    ("SASL_SSL", {"known_key": False}), ("SASL_PLAINTEXT", {})], ids=str)
def test_a_token_that_is_refused_is_raised(kafka_cluster: LocalCluster, listener: str, claims: dict[str, Any]) -> None:
    token = kafka_cluster.credentials.tokens.token("alice", **claims)
    options = with_token(listener, lambda _: lambda: (token, 4_102_444_800.0))(kafka_cluster, "alice")  # its claimed expiry
    is_refused(options, SaslAuthenticationError, "refused the login by OAUTHBEARER", "sasl_token_provider")


@one
def test_a_refusal_of_the_token_endpoint_is_raised(kafka_cluster: LocalCluster) -> None:
    options = from_endpoint("OIDC")(kafka_cluster, "alice") | {"sasl_oauthbearer_client_credentials_client_secret": "not-this-one"}
    is_refused(options, AuthenticationError, "sasl_oauthbearer_client_credentials_client_secret")


# --- every kind of client --------------------------------------------------------------------------------------------


REFUSALS: Final[dict[str, tuple[type[KafkaError], Callable[[LocalCluster], Options]]]] = {
    "certificate": (SslAuthenticationError, lambda cluster: reaching(cluster, "EXPIRED")),
    "plaintext": (SslAuthenticationError, lambda cluster: reaching(cluster, "SSL") | {"bootstrap_servers": cluster.bootstrap()}),
    "no login": (SaslAuthenticationError, lambda cluster: reaching(cluster, "SSL") | {"bootstrap_servers": cluster.bootstrap("SASL_SSL")}),
    "password": (SaslAuthenticationError, lambda cluster: with_password("SCRAM-SHA-512", "SASL_SSL")(cluster, "alice") | {"sasl_plain_password": "no"}),
}
each_refusal = pytest.mark.parametrize(("kind", "options"), REFUSALS.values(), ids=REFUSALS)


@three
@each_refusal
def test_consumers_and_admins_raise_it_in_each_call(
        kafka_cluster: LocalCluster, kind: type[KafkaError], options: Callable[[LocalCluster], Options]) -> None:
    with Consumer(topics=["orders"], group_id="orders", **options(kafka_cluster)) as consumer:
        for _ in range(2):
            with soon(kind):
                consumer.poll()
    with Consumer(**options(kafka_cluster)) as consumer, soon(kind):
        consumer.end_offsets([TopicPartition("orders", 0)])
    with Admin(**options(kafka_cluster)) as admin:
        for call in (admin.list_topics, admin.describe_cluster):
            with soon(kind):
                call()


@three
@each_refusal
def test_async_clients_raise_it_too(kafka_cluster: LocalCluster, kind: type[KafkaError], options: Callable[[LocalCluster], Options]) -> None:
    async def ask() -> None:
        async with AsyncProducer(**options(kafka_cluster)) as producer:
            with soon(kind):
                await producer.send("orders", b"x")
        async with AsyncConsumer(topics=["orders"], group_id="orders", **options(kafka_cluster)) as consumer:
            with soon(kind):
                await consumer.poll()
        async with AsyncAdmin(**options(kafka_cluster)) as admin:
            with soon(kind):
                await admin.list_topics()
    asyncio.run(ask())
