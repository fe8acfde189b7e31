"""`LocalCluster(security=...)`: every listener, credential and refusal, with one broker and three, seen by
confluent-kafka and Python's TLS."""
from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # public by its documentation

from pyclient.testing import LocalCluster, LocalClusterError, Security
from pyclient.testing.broker_security import LISTENERS
from pyclient.testing.probe import metadata
from pyclient.testing.pytest_plugin import ClusterFactory
from pyclient.testing.tokens import unsecured_token
from tests.secured import (
    Options,
    addresses,
    at,
    by_certificate,
    by_password,
    by_token,
    first_failure,
    produced,
    session,
    tls_connection,
)
from tests.waiting import eventually

REAUTH_MS = 1500
SECURITY = Security()
SHORT = Security(users={"alice": 'it\'s "so" \\ {node}; é 🙂'}, connections_max_reauth_ms=REAUTH_MS)
COUNTS = [pytest.param(count, marks=pytest.mark.kafka(brokers=count, security=SECURITY)) for count in (1, 3)]
one_and_three = pytest.mark.parametrize("brokers", COUNTS)
one = pytest.mark.kafka(security=SECURITY)

PROOFS: dict[str, Callable[[LocalCluster, str], Options]] = {
    "TLS": lambda cluster, _: at(cluster, "SSL"),
    "TLS, client certificate": lambda cluster, user: by_certificate(cluster, cluster.credentials.users[user].tls),
    "PLAIN": lambda cluster, user: by_password(cluster, user, "PLAIN"),
    "SCRAM-SHA-256": lambda cluster, user: by_password(cluster, user, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda cluster, user: by_password(cluster, user, "SCRAM-SHA-512"),
    "PLAIN over TLS": lambda cluster, user: by_password(cluster, user, "PLAIN", "SASL_SSL"),
    "SCRAM-SHA-256 over TLS": lambda cluster, user: by_password(cluster, user, "SCRAM-SHA-256", "SASL_SSL"),
    "SCRAM-SHA-512 over TLS": lambda cluster, user: by_password(cluster, user, "SCRAM-SHA-512", "SASL_SSL"),
    "unsecured token": lambda cluster, user: by_token(cluster, "SASL_PLAINTEXT", cluster.credentials.users[user].unsecured_token()),
    "signed token": lambda cluster, user: by_token(cluster, "OIDC", cluster.credentials.users[user].token()),
    "signed token over TLS": lambda cluster, user: by_token(cluster, "SASL_SSL", cluster.credentials.users[user].token()),
}


# --- who gets in ------------------------------------------------------------------------------------------------------


@one_and_three
@pytest.mark.parametrize("proof", PROOFS)
def test_each_proof_logs_a_user_in(kafka_cluster: LocalCluster, topic: str, brokers: int, proof: str) -> None:
    assert produced(PROOFS[proof](kafka_cluster, "alice"), topic) is None


@one
@pytest.mark.parametrize("proof", [proof for proof in PROOFS if proof != "TLS"])
def test_a_user_has_the_same_name_by_each_proof(kafka_cluster: LocalCluster, topic: str, proof: str) -> None:
    options = PROOFS[proof](kafka_cluster, "bob")
    assert produced(at(kafka_cluster, "SSL"), topic) is None  # it exists
    assert code(produced(options, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    kafka_cluster.grant("bob", "WRITE", topic=topic)
    assert produced(options, topic) is None
    kafka_cluster.revoke("bob", "WRITE", topic=topic)
    assert code(produced(options, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED


@one
def test_all_forms_of_a_client_certificate_are_accepted(kafka_cluster: LocalCluster, topic: str) -> None:
    tls = kafka_cluster.credentials.users["alice"].tls
    encrypted = at(kafka_cluster, "MTLS", ssl_certificate_location=tls.certificate.path, ssl_key_location=tls.encrypted_key.path,
                   ssl_key_password=tls.key_password)
    pkcs12 = at(kafka_cluster, "MTLS", ssl_keystore_location=tls.pkcs12, ssl_keystore_password=tls.key_password)
    texts = at(kafka_cluster, "MTLS", ssl_certificate_pem=tls.certificate.text, ssl_key_pem=tls.key.text)
    assert [produced(options, topic) for options in (encrypted, pkcs12, texts)] == [None, None, None]


@one
def test_a_client_that_fetches_its_tokens_from_the_endpoint_logs_in(kafka_cluster: LocalCluster, topic: str) -> None:
    tokens = kafka_cluster.credentials.tokens
    before = len(tokens.requests)
    options = at(kafka_cluster, "OIDC", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_method="oidc", sasl_oauthbearer_client_id="alice",
                 sasl_oauthbearer_client_secret=SECURITY.users["alice"], sasl_oauthbearer_token_endpoint_url=tokens.token_endpoint_url)
    assert produced(options, topic) is None
    assert {request.status for request in tokens.requests[before:]} == {200}


# --- who does not -----------------------------------------------------------------------------------------------------


@one_and_three
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_is_refused(kafka_cluster: LocalCluster, brokers: int, mechanism: str, listener: str) -> None:
    failure = first_failure(by_password(kafka_cluster, "alice", mechanism, listener) | {"sasl.password": "wrong"})
    assert failure.code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in failure.str()


@one
@pytest.mark.parametrize(("listener", "wrong"), [
    ("OIDC", {"known_key": False}), ("OIDC", {"lifetime_s": -120}), ("OIDC", {"aud": "others"}), ("OIDC", {"iss": "http://elsewhere"}),
    ("SASL_SSL", {"known_key": False}), ("OIDC", None), ("SASL_SSL", None), ("SASL_PLAINTEXT", {}),
], ids=str)
def test_a_token_that_is_wrong_for_the_listener_is_refused(kafka_cluster: LocalCluster, listener: str, wrong: dict[str, Any] | None) -> None:
    credentials = kafka_cluster.credentials
    token = credentials.users["alice"].unsecured_token() if wrong is None else credentials.tokens.token("alice", **wrong)
    failure = first_failure(by_token(kafka_cluster, listener, token))
    assert failure.code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in failure.str()


@one
def test_the_error_of_a_mechanism_that_is_not_offered_lists_the_offered_ones(kafka_cluster: LocalCluster) -> None:
    failure = first_failure(by_password(kafka_cluster, "alice", "PLAIN") | {"bootstrap.servers": kafka_cluster.bootstrap("OIDC")})
    assert "OAUTHBEARER" in failure.str()


@one
@pytest.mark.parametrize("listener", ["SSL", "MTLS", "SASL_SSL"])
def test_a_client_that_trusts_another_authority_does_not_trust_the_brokers(kafka_cluster: LocalCluster, listener: str) -> None:
    context = ssl.create_default_context(cafile=kafka_cluster.credentials.other_ca.path)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer|self.signed"), tls_connection(kafka_cluster, listener, context):
        pass


@one_and_three
@pytest.mark.parametrize(("listener", "said"), [("EXPIRED", "certificate has expired"), ("WRONG_HOST", "Hostname mismatch|IP address mismatch")])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_bad_certificates_are_presented_as_configured(kafka_cluster: LocalCluster, brokers: int, listener: str, said: str, host: str) -> None:
    context = ssl.create_default_context(cafile=kafka_cluster.credentials.ca.path)
    with tls_connection(kafka_cluster, "SSL", context, host) as trusted:
        assert trusted.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match=said), tls_connection(kafka_cluster, listener, context, host):
        pass


@one
def test_the_certificate_for_another_host_has_no_other_defect(kafka_cluster: LocalCluster, topic: str) -> None:
    assert produced(at(kafka_cluster, "WRONG_HOST", ssl_endpoint_identification_algorithm="none"), topic) is None


@one
@pytest.mark.parametrize("which", ["none", "stranger", "expired"])
def test_without_a_trusted_client_certificate_the_alert_comes_on_the_first_read(kafka_cluster: LocalCluster, which: str) -> None:
    context = ssl.create_default_context(cafile=kafka_cluster.credentials.ca.path)
    if which != "none":
        context.load_cert_chain(getattr(kafka_cluster.credentials, which).keystore.path)
    with tls_connection(kafka_cluster, "MTLS", context) as connection:  # TLS 1.3: the client is done before the broker has looked
        with pytest.raises(ssl.SSLError, match="alert") as refused:
            connection.recv(1)
        assert any(words in str(refused.value).lower() for words in ("bad certificate", "certificate required", "unknown ca", "certificate unknown"))


# --- ACLs -------------------------------------------------------------------------------------------------------------


def code(error: KafkaError | None) -> int | None:
    return None if error is None else error.code()


def refusal(action: Callable[[], object]) -> int | None:
    """The error that an action of confluent-kafka raises; None when it does not."""
    try:
        action()
    except KafkaException as refused:
        return code(refused.args[0])
    return None


def reading_as_a_group(options: Options, topic: str) -> None:
    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        assert message is not None, "neither a record nor an error"
        if (failed := message.error()) is not None:
            raise KafkaException(failed)
    finally:
        consumer.close()


def transaction_of(options: Options, topic: str) -> None:
    Producer(options | {"transactional.id": topic}).init_transactions(20)


def brokers_settings(options: Options, topic: str) -> None:
    admin = AdminClient(options)  # must live until its request has ended
    [asked] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    asked.result(20)


@pytest.mark.parametrize(("resource", "operations", "action", "error"), [
    ("group", ["READ"], reading_as_a_group, KafkaError.GROUP_AUTHORIZATION_FAILED),
    ("transactional_id", ["WRITE", "DESCRIBE"], transaction_of, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("cluster", ["DESCRIBE_CONFIGS"], brokers_settings, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
])
@one_and_three
def test_a_right_holds_from_its_grant_to_its_revocation(
    kafka_cluster: LocalCluster, topic: str, brokers: int, resource: str, operations: Sequence[Any], action: Callable[[Options, str], None], error: int,
) -> None:
    options = by_password(kafka_cluster, "bob")
    assert produced(by_password(kafka_cluster), topic) is None
    kafka_cluster.grant("bob", "READ", "DESCRIBE", topic=topic)
    named: dict[str, Any] = {resource: True if resource == "cluster" else topic}
    assert refusal(lambda: action(options, topic)) == error
    kafka_cluster.grant("bob", *operations, **named)
    assert refusal(lambda: action(options, topic)) is None
    kafka_cluster.revoke("bob", *operations, **named)
    assert refusal(lambda: action(options, topic)) == error


@one
def test_a_prefix_grants_matching_names_and_no_others(kafka_cluster: LocalCluster, topic: str) -> None:
    for name in (f"{topic}-in", f"not-{topic}"):
        assert produced(by_password(kafka_cluster), name) is None
    kafka_cluster.grant("bob", "WRITE", topic=topic, prefixed=True)
    assert produced(by_password(kafka_cluster, "bob"), f"{topic}-in") is None
    assert code(produced(by_password(kafka_cluster, "bob"), f"not-{topic}")) == KafkaError.TOPIC_AUTHORIZATION_FAILED


@one
def test_revoke_affects_one_user_and_accepts_rights_that_were_never_granted(kafka_cluster: LocalCluster, topic: str) -> None:
    carol = by_token(kafka_cluster, "SASL_PLAINTEXT", unsecured_token("carol"))
    kafka_cluster.grant("carol", "WRITE", "CREATE", topic=topic)
    kafka_cluster.revoke("bob", "READ", "WRITE", topic=topic)
    assert produced(carol, topic) is None


# --- sessions, passwords, tools ---------------------------------------------------------------------------------------


@pytest.mark.kafka(security=SHORT)
def test_a_session_has_the_configured_length_and_is_closed_afterwards(kafka_cluster: LocalCluster) -> None:
    [address] = addresses(kafka_cluster, "SASL_PLAINTEXT")
    with session(address, "PLAIN", b"\0alice\0" + SHORT.users["alice"].encode()) as logged_in:
        assert logged_in.lifetime_ms == REAUTH_MS
        assert not logged_in.is_cut()
        eventually(logged_in.is_cut)


@pytest.mark.kafka(security=SHORT)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_any_password_can_be_used(kafka_cluster: LocalCluster, topic: str, mechanism: str) -> None:
    assert produced(by_password(kafka_cluster, mechanism=mechanism), topic) is None


@one
def test_a_session_is_no_longer_than_its_token_and_unlimited_with_a_password(kafka_cluster: LocalCluster) -> None:
    token = kafka_cluster.credentials.users["alice"].token(lifetime_s=60)
    with session(addresses(kafka_cluster, "OIDC")[0], "OAUTHBEARER", b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01") as logged_in:
        assert 0 < logged_in.lifetime_ms <= 60_000
    with session(addresses(kafka_cluster, "SASL_PLAINTEXT")[0], "PLAIN", b"\0alice\0alice-secret") as logged_in:
        assert logged_in.lifetime_ms == 0


@one_and_three
def test_a_password_can_be_changed_and_users_added_while_brokers_run(kafka_cluster: LocalCluster, topic: str, brokers: int) -> None:
    user = f"user-{topic}"
    kafka_cluster.grant(user, "ALL", topic=topic)
    options = at(kafka_cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username=user)
    for password in ("first", "second"):
        kafka_cluster.set_password(user, password)
        assert produced(options | {"sasl.password": password}, topic) is None
    assert first_failure(options | {"sasl.password": "first"}).code() == KafkaError._AUTHENTICATION


@one
def test_javas_client_logs_in_with_the_same_files(kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    credentials = kafka_cluster.credentials
    file = tmp_path / "client.properties"
    file.write_text("\n".join([
        "security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={credentials.ca.path}", "ssl.keystore.type=PEM",
        f"ssl.keystore.location={credentials.users['alice'].tls.keystore.path}"]))
    done = kafka_cluster.run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka_cluster.bootstrap("MTLS"),
                                  "--command-config", file, "--create", "--topic", topic)
    assert done.returncode == 0, done


# --- the cluster itself -----------------------------------------------------------------------------------------------


@one_and_three
def test_every_listener_names_every_broker_and_none_twice(kafka_cluster: LocalCluster, brokers: int) -> None:
    found = [address for listener in ("PLAINTEXT", *LISTENERS) for address in addresses(kafka_cluster, listener)]
    assert len(set(found)) == len(found) == brokers * (1 + len(LISTENERS))
    assert kafka_cluster.bootstrap() == kafka_cluster.bootstrap("PLAINTEXT") == kafka_cluster.bootstrap_servers


@one
def test_the_error_of_an_unknown_listener_lists_the_listeners(kafka_cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match="no listener 'TLS' here, but PLAINTEXT, SSL, MTLS"):
        kafka_cluster.bootstrap("TLS")


def test_the_error_of_a_cluster_without_security_names_the_remedy(kafka_cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match=r"no listener 'SSL' here, but PLAINTEXT; security=Security\(\) adds others"):
        kafka_cluster.bootstrap("SSL")
    for act in (lambda: kafka_cluster.credentials, lambda: kafka_cluster.grant("bob", "ALL", topic="a"), lambda: kafka_cluster.set_password("a", "b")):
        with pytest.raises(LocalClusterError, match=r"LocalCluster\(security=Security\(\)\)"):
            act()


@one_and_three
def test_no_secret_is_in_logs_or_reprs(kafka_cluster: LocalCluster, brokers: int) -> None:
    shown = "\n".join([repr(kafka_cluster), kafka_cluster.description, repr(kafka_cluster.credentials), *(kafka_cluster.logs(node.id) for node in kafka_cluster.nodes)])
    assert "sasl_ssl" in shown.lower()
    for secret in (*SECURITY.users.values(), kafka_cluster.credentials.users["alice"].tls.key_password, "PRIVATE KEY", "BEGIN ENCRYPTED"):
        assert secret not in shown


@pytest.mark.kafka(brokers=3, security=SECURITY)
def test_a_secured_broker_can_be_killed_and_started_and_has_everything_again(kafka_cluster: LocalCluster, topic: str) -> None:
    user = f"user-{topic}"
    before = {listener: kafka_cluster.bootstrap(listener) for listener in LISTENERS}
    assert produced(by_password(kafka_cluster), topic) is None
    kafka_cluster.kill(1)
    try:
        kafka_cluster.grant(user, "WRITE", topic=topic)  # the other two are enough
        kafka_cluster.set_password(user, "while one is dead")
    finally:
        kafka_cluster.start(1)
    kafka_cluster.wait_in_sync()
    assert {listener: kafka_cluster.bootstrap(listener) for listener in LISTENERS} == before
    restarted = {"bootstrap.servers": before["SASL_SSL"].split(",")[0]}
    theirs = at(kafka_cluster, "SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username=user, sasl_password="while one is dead")
    assert produced(theirs | restarted, topic) is None
    assert produced(PROOFS["signed token over TLS"](kafka_cluster, "alice") | restarted, topic) is None


def test_a_secured_cluster_takes_settings_leaves_nothing_and_logs_nothing_secret(
    local_cluster: ClusterFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "pyclient"):
        cluster = local_cluster(security=SECURITY, listener_name_ssl_ssl_enabled_protocols="TLSv1.2")
        context = ssl.create_default_context(cafile=cluster.credentials.ca.path)
        with tls_connection(cluster, "SSL", context) as old:
            assert old.version() == "TLSv1.2"
        folder = Path(cluster.credentials.directory)
        endpoint = cluster.credentials.tokens.url.rpartition(":")[2]
        cluster.close()
    assert repr(cluster) == "<LocalCluster: not running>"
    assert "ready at" in caplog.text
    assert not any(secret in caplog.text for secret in SECURITY.users.values())
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        metadata(("127.0.0.1", int(endpoint)))
