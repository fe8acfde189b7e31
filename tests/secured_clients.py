"""Our own clients on the listeners of a secured cluster: options for each proof, and what is done with them."""
from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, Record
from pyclient.testing import LocalCluster
from tests.kafka import numbers

SOON_S: Final = 15.0
"""Refusals are raised within this; the clients' own timeouts are the defaults, a minute and more."""
COUNT: Final = 12
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Options = dict[str, Any]
Proof = Callable[[LocalCluster, str], Options]


def reaching(cluster: LocalCluster, listener: str, **options: Any) -> Options:
    """Options to reach a listener, whose authority is trusted."""
    tls = {} if listener in {"PLAINTEXT", "SASL_PLAINTEXT", "OIDC"} else {"ssl_truststore_location": cluster.credentials.ca.path}
    protocol = {"MTLS": "SSL", "EXPIRED": "SSL", "WRONG_HOST": "SSL", "OIDC": "SASL_PLAINTEXT"}.get(listener, listener)
    return {"bootstrap_servers": cluster.bootstrap(listener), "security_protocol": protocol, **tls, **options}


def with_password(mechanism: str, listener: str) -> Proof:
    """The user's password."""
    return lambda cluster, user: reaching(
        cluster, listener, sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=cluster.credentials.users[user].password)


def with_token(listener: str, provider: Callable[[Callable[[], str]], Any]) -> Proof:
    """A token of the user's by what *provider* makes of a function that gets one."""
    def options(cluster: LocalCluster, user: str) -> Options:
        known = cluster.credentials.users[user]
        make = known.unsecured_token if listener == "SASL_PLAINTEXT" else known.token
        return reaching(cluster, listener, sasl_mechanism="OAUTHBEARER", sasl_token_provider=provider(make))
    return options


def called(make: Callable[[], str]) -> Any:
    """A function that gives the token."""
    return make


def awaited(make: Callable[[], str]) -> Any:
    """A coroutine function that gives the token."""
    async def give() -> str:
        return make()
    return give


def from_endpoint(listener: str) -> Proof:
    """A token that the client fetches itself (OIDC)."""
    return lambda cluster, user: reaching(
        cluster, listener, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=cluster.credentials.tokens.token_endpoint_url,
        sasl_oauthbearer_client_credentials_client_id=user,
        sasl_oauthbearer_client_credentials_client_secret=cluster.credentials.users[user].password)


def own_context(cluster: LocalCluster, _: str) -> Options:
    options = reaching(cluster, "SSL", ssl_context=ssl.create_default_context(cafile=cluster.credentials.ca.path))
    del options["ssl_truststore_location"]
    return options


def pem_files(cluster: LocalCluster, user: str) -> Options:
    tls = cluster.credentials.users[user].tls
    return reaching(cluster, "MTLS", ssl_certificate_location=tls.certificate.path, ssl_key_location=tls.key.path)


def one_pem_file(cluster: LocalCluster, user: str) -> Options:
    return reaching(cluster, "MTLS", ssl_keystore_location=cluster.credentials.users[user].tls.keystore.path)


def pem_texts(cluster: LocalCluster, user: str) -> Options:
    tls, ca = cluster.credentials.users[user].tls, cluster.credentials.ca
    options = reaching(cluster, "MTLS", ssl_truststore_certificates=ca.text, ssl_keystore_certificate_chain=tls.certificate.text, ssl_keystore_key=tls.key.text)
    del options["ssl_truststore_location"]
    return options


def encrypted_key(cluster: LocalCluster, user: str) -> Options:
    tls = cluster.credentials.users[user].tls
    return reaching(cluster, "MTLS", ssl_certificate_location=tls.certificate.path, ssl_key_location=tls.encrypted_key.path,
                    ssl_key_password=tls.key_password)


def pkcs12(cluster: LocalCluster, user: str) -> Options:
    tls = cluster.credentials.users[user].tls
    return reaching(cluster, "MTLS", ssl_keystore_location=tls.pkcs12, ssl_keystore_type="PKCS12", ssl_keystore_password=tls.key_password)


def without_names(cluster: LocalCluster, _: str) -> Options:
    return reaching(cluster, "WRONG_HOST", ssl_endpoint_identification_algorithm="")


def of_version(version: str) -> Proof:
    return lambda cluster, _: reaching(cluster, "SSL", ssl_enabled_protocols=version, ssl_protocol=version)


PROOFS: Final[dict[str, Proof]] = {
    "TLS": lambda cluster, _: reaching(cluster, "SSL"),
    "TLS 1.2": of_version("TLSv1.2"),
    "TLS 1.3": of_version("TLSv1.3"),
    "own context": own_context,
    "any name": without_names,
    "PEM files": pem_files,
    "one PEM file": one_pem_file,
    "PEM texts": pem_texts,
    "encrypted key": encrypted_key,
    "PKCS12": pkcs12,
    **{f"{mechanism} on {listener}": with_password(mechanism, listener) for mechanism in PASSWORDS for listener in ("SASL_PLAINTEXT", "SASL_SSL")},
    "unsecured token": with_token("SASL_PLAINTEXT", called),
    "signed token": with_token("OIDC", called),
    "signed token, awaited": with_token("OIDC", awaited),
    "signed token over TLS": with_token("SASL_SSL", called),
    "signed token over TLS, awaited": with_token("SASL_SSL", awaited),
    "token of an endpoint": from_endpoint("OIDC"),
    "token of an endpoint over TLS": from_endpoint("SASL_SSL"),
}
"""Everything that is let in, by name."""


# --- what is done with them ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def soon(kind: type[BaseException], *words: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block raises such an error that says all *words*, and does not take until a timeout."""
    begin = time.monotonic()
    with pytest.raises(kind) as raised:
        yield raised
    took = time.monotonic() - begin
    said = str(raised.value)
    assert not [each for each in words if each not in said], said
    assert took < SOON_S, f"it took {took:.1f} s to say: {said}"


def round_trip(options: Options, topic: str) -> None:
    """Create the topic, write to it, read it back by assignment and as a group."""
    with Admin(**options) as admin:
        admin.create_topics([NewTopic(topic, 3, -1)])
    with Producer(acks="all", **options) as producer:
        deliveries = [producer.send(topic, value, key=value) for value in numbers(COUNT)]
        producer.flush(SOON_S)
        assert len({(each.result(0).partition, each.result(0).offset) for each in deliveries}) == COUNT
    for how in ({"group_id": topic}, {"group_id": topic + "-newer", "group_protocol": "consumer"}):
        with Consumer(auto_offset_reset="earliest", topics=[topic], **how, **options) as consumer:  # type: ignore[arg-type]
            assert _values(_all_of(consumer)) == sorted(numbers(COUNT))
            consumer.commit()


def _all_of(consumer: Consumer) -> list[Record]:
    found: list[Record] = []
    while len(found) < COUNT:
        records = consumer.poll(SOON_S)
        assert records, f"{len(found)} records, and no more"
        found += records
    return found


def _values(records: list[Record]) -> list[bytes]:
    return sorted(each.value or b"" for each in records)


async def async_round_trip(options: Options, topic: str) -> None:
    """The same, async."""
    async with AsyncAdmin(**options) as admin:
        await admin.create_topics([NewTopic(topic, 3, -1)])
    async with AsyncProducer(acks="all", **options) as producer:
        deliveries = [await producer.send(topic, value, key=value) for value in numbers(COUNT)]
        assert len({((await each).partition, (await each).offset) for each in deliveries}) == COUNT
    found: list[Record] = []
    async with AsyncConsumer(auto_offset_reset="earliest", topics=[topic], group_id=topic, **options) as consumer:
        while len(found) < COUNT:
            records = await consumer.poll(SOON_S)
            assert records, f"{len(found)} records, and no more"
            found += records
        await consumer.commit()
    assert _values(found) == sorted(numbers(COUNT))
