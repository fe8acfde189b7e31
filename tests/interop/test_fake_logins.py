"""Other clients log in to the fake cluster, and re-authenticate (KIP-368)."""
from __future__ import annotations

import base64
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Producer as ConfluentProducer

from pyclient.testing import FakeCluster
from tests.waiting import eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

USERS = {"anna": "marker-secret"}


def token(_config: str = "") -> tuple[str, float]:
    ends = time.time() + 3600
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, {"sub": "anna", "exp": ends}))
    return ".".join(parts) + ".", ends


def librdkafka(fake: FakeCluster, mechanism: str, **given: Any) -> ConfluentProducer:
    who = {"oauth_cb": token} if mechanism == "OAUTHBEARER" else {"sasl.username": "anna", "sasl.password": "marker-secret"}
    return ConfluentProducer({"bootstrap.servers": fake.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **who, **given})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_logs_in_and_renews_its_session(mechanism: str) -> None:
    with FakeCluster(sasl=USERS, config={"connections.max.reauth.ms": 2000}) as fake:
        fake.create_topic("orders")
        producer = librdkafka(fake, mechanism)

        def renewed() -> bool:
            producer.produce("orders", b"value")
            assert producer.flush(20) == 0
            return len(fake.requests("SaslHandshake")) >= 4
        eventually(renewed)
        assert all(each.value == b"value" for each in fake.records("orders"))


def test_librdkafka_reports_a_wrong_password() -> None:
    errors: list[KafkaError] = []
    with FakeCluster(sasl=USERS) as fake:
        producer = librdkafka(fake, "PLAIN", **{"sasl.password": "wrong", "error_cb": errors.append})

        def complained() -> bool:
            producer.poll(0.05)
            return any(each.code() == KafkaError._AUTHENTICATION for each in errors)
        eventually(complained)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_python_logs_in(mechanism: str) -> None:
    with FakeCluster(sasl=USERS) as fake:
        fake.create_topic("orders")
        make: Callable[..., Any] = KafkaProducer
        producer = make(bootstrap_servers=fake.bootstrap_servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
                        sasl_plain_username="anna", sasl_plain_password="marker-secret")
        producer.send("orders", b"value").get(20)
        producer.close()
        assert [each.value for each in fake.records("orders")] == [b"value"]
