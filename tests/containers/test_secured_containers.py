"""Secured brokers in containers: only what differs from tests/broker/test_secured_cluster.py, which runs on both."""
from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import pytest

from pyclient.testing import LocalCluster, Security
from pyclient.testing.broker_security import LISTENERS
from tests.secured import addresses, at, by_certificate, by_password, by_token, produced, tls_connection
from tests.secured_clients import PROOFS, Proof, async_round_trip, round_trip
from tests.waiting import eventually


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(3, mode="container", security=Security(), startup_timeout=240) as cluster:
        yield cluster


def test_every_listener_of_every_broker_is_reached_and_on_the_loopback_interface_only(three: LocalCluster) -> None:
    published = set()
    for broker in three._backend._brokers.values():  # type: ignore[union-attr]  # the containers themselves are meant
        broker.docker.reload()
        published |= {(binding["HostIp"], int(binding["HostPort"])) for found in broker.docker.ports.values() for binding in found or ()}
    assert published == {address for listener in ("PLAINTEXT", *LISTENERS) for address in addresses(three, listener)}
    assert len(published) == 3 * (1 + len(LISTENERS))


def test_each_proof_is_accepted(three: LocalCluster, topic: str) -> None:
    alice = three.credentials.users["alice"]
    proofs = [
        at(three, "SSL"), by_certificate(three, alice.tls), by_token(three, "SASL_PLAINTEXT", alice.unsecured_token()),
        by_token(three, "OIDC", alice.token()), by_token(three, "SASL_SSL", alice.token()),
        *(by_password(three, "alice", mechanism, listener)
          for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") for listener in ("SASL_PLAINTEXT", "SASL_SSL")),
    ]
    assert [produced(options, topic) for options in proofs] == [None] * len(proofs)


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_our_clients_produce_and_consume_by_each_proof(three: LocalCluster, topic: str, proof: Proof) -> None:
    round_trip(proof(three, "alice"), topic)


def test_our_async_clients_do_so_too(three: LocalCluster, topic: str) -> None:
    async def each() -> None:
        for number, name in enumerate(("PEM files", "SCRAM-SHA-512 on SASL_SSL", "signed token over TLS, awaited", "token of an endpoint")):
            await async_round_trip(PROOFS[name](three, "alice"), f"{topic}-{number}")
    asyncio.run(each())


def test_the_certificate_holds_for_the_address_of_the_published_port(three: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=three.credentials.ca.path)
    with tls_connection(three, "SSL", context, three.nodes[0].host) as connection:
        assert connection.version() == "TLSv1.3"


def test_a_container_killed_started_or_taken_off_the_network_has_everything_again(three: LocalCluster, topic: str) -> None:
    alice = three.credentials.users["alice"]
    for lose, regain in ((three.kill, three.start), (three.disconnect, three.connect)):
        lose(1)
        regain(1)
        three.wait_in_sync()
        own = {"bootstrap.servers": three.bootstrap("OIDC").split(",")[0]}
        eventually(lambda own=own: produced(by_token(three, "OIDC", alice.token()) | own, topic) is None)  # type: ignore[misc]
