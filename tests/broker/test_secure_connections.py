"""Our clients on real brokers with TLS and SASL: every accepted login, with one broker and three, sync and async."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.testing import LocalCluster, Security
from tests.secured_clients import PROOFS, SOON_S, Proof, async_round_trip, round_trip

SECURITY: Final = Security()
one = pytest.mark.kafka(security=SECURITY)
three = pytest.mark.kafka(brokers=3, security=SECURITY)


each_proof = pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)


@one
@each_proof
def test_admin_producer_and_consumers_log_in_by_each_proof(kafka_cluster: LocalCluster, topic: str, proof: Proof) -> None:
    round_trip(proof(kafka_cluster, "alice"), topic)


@three
@each_proof
def test_async_clients_log_in_to_three_brokers_by_each_proof(kafka_cluster: LocalCluster, topic: str, proof: Proof) -> None:
    asyncio.run(async_round_trip(proof(kafka_cluster, "alice"), topic))


ANYWHERE: Final = ["PEM files", "SCRAM-SHA-512 on SASL_SSL", "signed token over TLS, awaited"]


@one
@pytest.mark.parametrize("name", ANYWHERE)
def test_async_clients_log_in_to_one_broker(kafka_cluster: LocalCluster, topic: str, name: str) -> None:
    asyncio.run(async_round_trip(PROOFS[name](kafka_cluster, "alice"), topic))


@three
@pytest.mark.parametrize("name", ANYWHERE)
def test_sync_clients_log_in_to_three_brokers(kafka_cluster: LocalCluster, topic: str, name: str) -> None:
    round_trip(PROOFS[name](kafka_cluster, "alice"), topic)


# --- by the names of other clients -----------------------------------------------------------------------------------


def java_tls(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap("MTLS"), "security.protocol": "SSL", "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cluster.credentials.ca.path, "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": cluster.credentials.users["alice"].tls.pkcs12,
        "ssl.keystore.password": cluster.credentials.users["alice"].tls.key_password}


def java_scram(cluster: LocalCluster) -> dict[str, Any]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": cluster.bootstrap("SASL_SSL"), "security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cluster.credentials.ca.path, "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="alice" password="{SECURITY.users["alice"]}";'}


def librdkafka_tls(cluster: LocalCluster) -> dict[str, Any]:
    tls = cluster.credentials.users["alice"].tls
    return {
        "bootstrap.servers": cluster.bootstrap("MTLS"), "security.protocol": "ssl", "ssl.ca.location": cluster.credentials.ca.path,
        "ssl.certificate.location": tls.certificate.path, "ssl.key.location": tls.encrypted_key.path, "ssl.key.password": tls.key_password}


def librdkafka_plain(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap("SASL_SSL"), "security.protocol": "sasl_ssl", "ssl.ca.location": cluster.credentials.ca.path,
        "sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": SECURITY.users["alice"]}


def librdkafka_token(cluster: LocalCluster) -> dict[str, Any]:
    alice = cluster.credentials.users["alice"]
    return {
        "bootstrap.servers": cluster.bootstrap("OIDC"), "security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (alice.token(), time.time() + 600)}


def kafka_python_tls(cluster: LocalCluster) -> dict[str, Any]:
    tls = cluster.credentials.users["alice"].tls
    return {
        "bootstrap_servers": cluster.bootstrap("MTLS"), "security_protocol": "SSL", "ssl_cafile": cluster.credentials.ca.path,
        "ssl_certfile": tls.certificate.path, "ssl_keyfile": tls.encrypted_key.path, "ssl_password": tls.key_password}


def kafka_python_scram(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap("SASL_SSL").split(","), "security_protocol": "SASL_SSL", "ssl_cafile": cluster.credentials.ca.path,
        "ssl_check_hostname": True, "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": SECURITY.users["alice"]}


@one
@pytest.mark.filterwarnings("ignore::pyclient.config.OptionWarning")  # they warn with our names
@pytest.mark.parametrize("words", [
    java_tls, java_scram, librdkafka_tls, librdkafka_plain, librdkafka_token, kafka_python_tls, kafka_python_scram])
def test_the_options_of_other_clients_log_in(kafka_cluster: LocalCluster, topic: str, words: Callable[[LocalCluster], dict[str, Any]]) -> None:
    with Producer(words(kafka_cluster)) as producer:
        assert producer.send(topic, b"x").result(SOON_S).offset == 0
