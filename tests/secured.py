"""confluent-kafka on the listeners of a secured cluster: another client's word for what the brokers do."""
from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Producer
from kio.schema.metadata.v9 import request as metadata_request
from kio.schema.sasl_authenticate.v2 import request as authenticate_request
from kio.schema.sasl_authenticate.v2 import response as authenticate_response
from kio.schema.sasl_handshake.v1 import request as handshake_request
from kio.schema.sasl_handshake.v1 import response as handshake_response

from pyclient.testing import ClientCertificate, LocalCluster, probe
from tests.waiting import eventually

LIMIT_S: Final = 30.0
_CONSEQUENCES: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._MSG_TIMED_OUT)  # of the failure that is looked for

Options = dict[str, Any]


def at(cluster: LocalCluster, listener: str, **options: Any) -> Options:
    """Options of confluent-kafka, underscores for dots, to reach a listener."""
    tls = {"ssl.ca.location": cluster.credentials.ca.path} if listener not in {"SASL_PLAINTEXT", "OIDC"} else {}
    protocol = {"MTLS": "SSL", "EXPIRED": "SSL", "WRONG_HOST": "SSL", "OIDC": "SASL_PLAINTEXT"}.get(listener, listener)
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": cluster.bootstrap(listener), "security.protocol": protocol, **tls, **named}


def by_password(cluster: LocalCluster, user: str = "alice", mechanism: str = "SCRAM-SHA-512", listener: str = "SASL_PLAINTEXT") -> Options:
    """A user who gives the password."""
    password = cluster.credentials.users[user].password
    return at(cluster, listener, sasl_mechanism=mechanism, sasl_username=user, sasl_password=password)


def by_token(cluster: LocalCluster, listener: str, token: str) -> Options:
    """Somebody with a token."""
    options = at(cluster, listener, sasl_mechanism="OAUTHBEARER")
    return options | {"oauth_cb": lambda _: (token, time.time() + 3600)}


def by_certificate(cluster: LocalCluster, client: ClientCertificate) -> Options:
    """Somebody with a client certificate."""
    return at(cluster, "MTLS", ssl_certificate_location=client.certificate.path, ssl_key_location=client.key.path)


def produced(options: Options, topic: str) -> KafkaError | None:
    """Produce one record; its outcome."""
    outcome: list[KafkaError | None] = []
    producer = Producer(options | {"log_level": 0, "message.timeout.ms": int(LIMIT_S * 1000)})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    eventually(lambda: producer.poll(0.01) and outcome, LIMIT_S)
    return outcome[0]


def first_failure(options: Options) -> KafkaError:
    """Why a client does not get a connection."""
    failures: list[KafkaError] = []
    on_error: Callable[[KafkaError], None] = failures.append
    producer = Producer(options | {"log_level": 0, "error_cb": on_error})
    eventually(lambda: producer.poll(0.01) or any(each.code() not in _CONSEQUENCES for each in failures), LIMIT_S)
    return next(each for each in failures if each.code() not in _CONSEQUENCES)


# --- without any client ----------------------------------------------------------------------------------------------


def addresses(cluster: LocalCluster, listener: str) -> list[tuple[str, int]]:
    """Where the brokers' listener is."""
    pairs = (each.rpartition(":") for each in cluster.bootstrap(listener).split(","))
    return [(host, int(port)) for host, _, port in pairs]


@contextmanager
def tls_connection(cluster: LocalCluster, listener: str, context: ssl.SSLContext, host: str = "localhost") -> Iterator[ssl.SSLSocket]:
    """Python's own TLS to the first broker."""
    plain = socket.create_connection(addresses(cluster, listener)[0], timeout=LIMIT_S)
    with plain, context.wrap_socket(plain, server_hostname=host) as connection:
        yield connection


class Session(NamedTuple):
    """A connection that has logged in by PLAIN or OAUTHBEARER, in raw protocol."""

    connection: socket.socket
    lifetime_ms: int

    def is_cut(self) -> bool:
        """Whether the broker ends the connection instead of answering."""
        try:
            self.connection.sendall(probe._framed(metadata_request.MetadataRequest(
                topics=(), allow_auto_topic_creation=False, include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False)))
            return not self.connection.recv(65536)
        except ConnectionError:
            return True


@contextmanager
def session(address: tuple[str, int], mechanism: str, message: bytes) -> Iterator[Session]:
    """Log in with one message; fails when the broker does not take it."""
    with socket.create_connection(address, timeout=LIMIT_S) as connection:
        offered = _answer(connection, handshake_request.SaslHandshakeRequest(mechanism=mechanism), handshake_response.SaslHandshakeResponse)
        assert mechanism in offered.mechanisms
        answer = _answer(connection, authenticate_request.SaslAuthenticateRequest(auth_bytes=message), authenticate_response.SaslAuthenticateResponse)
        assert not answer.error_code, answer
        yield Session(connection, int(answer.session_lifetime.total_seconds() * 1000))


def _answer(connection: socket.socket, request: Any, kind: Any) -> Any:
    connection.sendall(probe._framed(request))
    return probe._parsed(probe._receive(connection, struct.unpack(">i", probe._receive(connection, 4))[0]), kind)
