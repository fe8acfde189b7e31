"""GSSAPI with a real KDC and a real broker: who gets in, what is said to who does not, and sessions that end."""
from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as TheirProducer

from pyclient import Consumer, Producer
from pyclient.errors import KafkaError, SaslAuthenticationError, TopicAuthorizationError
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, numbers
from tests.realm import SERVICE, Realm, jaas
from tests.waiting import eventually

AT_ONCE_S: Final = 5.0
"""Far below every timeout of a client, however busy the machine is."""
LET_IN: Final = "Successfully authenticated client: authenticationID={user}@"

ByKeytab = Callable[[str], None]
Options = dict[str, Any]


def logins(cluster: LocalCluster, user: str) -> int:
    """How often the broker has let a user in."""
    return cluster.logs().count(LET_IN.format(user=user))


def refused(options: Options, topic: str) -> SaslAuthenticationError:
    """What a producer says that does not get in."""
    began = time.monotonic()
    with pytest.raises(SaslAuthenticationError) as caught, Producer(**options) as producer:
        producer.send(topic, b"value").result()
    assert time.monotonic() - began < AT_ONCE_S
    return caught.value


def written_and_read(options: Options, topic: str) -> None:
    with Producer(**options) as producer:
        for value in numbers(100):
            producer.send(topic, value)
    with Consumer(**options, topics=[topic], group_id=topic, auto_offset_reset="earliest") as consumer:
        got: list[bytes | None] = []
        while len(got) < 100:
            records = consumer.poll(20)
            assert records, f"{len(got)} of 100 records, and no more"
            got += [record.value for record in records]
    assert got == numbers(100)


# ---- who gets in ----------------------------------------------------------------------------------------------------


def test_with_a_keytab_no_kinit_is_needed(cluster: LocalCluster, options: Options, by_keytab: ByKeytab, topic: str) -> None:
    make_topic(cluster, topic)
    by_keytab("alice")
    written_and_read(options, topic)


def test_the_ticket_of_kinit_is_used(
    cluster: LocalCluster, options: Options, kerberos: Realm, keytabs: dict[str, Path], cache: Path, topic: str,
) -> None:
    make_topic(cluster, topic)
    kerberos.ticket("alice", keytabs["alice"], cache)
    written_and_read(options, topic)


def test_tickets_are_accepted_over_TLS(cluster: LocalCluster, over_tls: Options, by_keytab: ByKeytab, topic: str) -> None:
    make_topic(cluster, topic)
    by_keytab("alice")
    written_and_read(over_tls, topic)


def test_the_broker_knows_the_principal(cluster: LocalCluster, options: Options, by_keytab: ByKeytab, topic: str) -> None:
    make_topic(cluster, topic)
    by_keytab("bob")
    with pytest.raises(TopicAuthorizationError, match=topic), Producer(**options) as producer:
        producer.send(topic, b"value").result()
    cluster.grant("bob", "WRITE", "DESCRIBE", topic=topic)
    with Producer(**options) as producer:
        producer.send(topic, b"value").result()


# ---- who does not ---------------------------------------------------------------------------------------------------


def test_without_a_ticket_the_error_is_raised_at_once_and_names_the_cache(options: Options, cache: Path, topic: str) -> None:
    text = str(refused(options, topic))
    assert f"No Kerberos credentials available (default cache: FILE:{cache})" in text
    assert "kinit" in text


def test_an_expired_ticket_is_raised_as_such(options: Options, kerberos: Realm, keytabs: dict[str, Path], cache: Path, topic: str) -> None:
    kerberos.ticket("alice", keytabs["alice"], cache, life="1s")
    eventually(lambda: not kerberos.is_good(cache, SERVICE))
    assert "expired" in str(refused(options, topic))


def test_a_service_that_the_realm_does_not_know_is_named(options: Options, by_keytab: ByKeytab, topic: str) -> None:
    by_keytab("alice")
    text = str(refused(options | {"sasl_kerberos_service_name": "kafak"}, topic))
    assert "kafak/127.0.0.1@PYCLIENT.TEST not found in Kerberos database" in text
    assert "that kafak@127.0.0.1 is the brokers' principal" in text


def test_a_ticket_for_another_service_is_refused_by_the_broker(options: Options, by_keytab: ByKeytab, topic: str) -> None:
    by_keytab("alice")
    text = str(refused(options | {"sasl_kerberos_service_name": "other"}, topic))
    assert "sasl_kerberos_service_name" in text


def test_a_name_of_the_broker_that_has_no_principal_is_named(options: Options, by_keytab: ByKeytab, topic: str) -> None:
    by_keytab("alice")
    elsewhere = options["bootstrap_servers"].replace("127.0.0.1", "localhost")
    assert "kafka/localhost@PYCLIENT.TEST not found" in str(refused(options | {"bootstrap_servers": elsewhere}, topic))


def test_a_KDC_that_does_not_answer_is_raised_at_once(
    options: Options, kerberos: Realm, by_keytab: ByKeytab, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_keytab("alice")
    nowhere = tmp_path / "krb5.conf"
    nowhere.write_text(re.sub(r"kdc = .*", "kdc = 127.0.0.1:1", kerberos.config.read_text()))
    monkeypatch.setenv("KRB5_CONFIG", str(nowhere))
    assert "Cannot contact any KDC" in str(refused(options, topic))


# ---- sessions that end ----------------------------------------------------------------------------------------------


def test_sessions_are_renewed_while_records_flow(cluster: LocalCluster, over_tls: Options, by_keytab: ByKeytab, topic: str) -> None:
    make_topic(cluster, topic)
    by_keytab("alice")
    with Producer(**over_tls) as producer:
        producer.send(topic, b"first").result()
        before, opened = logins(cluster, "alice"), connections(producer)
        sent = 0

        def renewed() -> bool:
            nonlocal sent
            producer.send(topic, b"value").result()
            sent += 1
            return logins(cluster, "alice") >= before + 3

        eventually(renewed)
        assert sent > 3
        assert connections(producer) == opened, "sessions are renewed on the connections that there are"


def test_a_client_whose_tickets_expired_continues_with_new_ones(
    cluster: LocalCluster, over_tls: Options, kerberos: Realm, keytabs: dict[str, Path], cache: Path, topic: str,
) -> None:
    make_topic(cluster, topic)
    kerberos.ticket("alice", keytabs["alice"], cache, life="3s")
    with Producer(**over_tls, delivery_timeout_ms=1500, request_timeout_ms=1000, linger_ms=0) as producer:
        eventually(lambda: "Ticket expired" in (failure(producer, topic) or ""))
        assert not kerberos.is_good(cache, SERVICE)
        kerberos.ticket("alice", keytabs["alice"], cache)
        eventually(lambda: failure(producer, topic) is None)


def failure(producer: Producer, topic: str) -> str | None:
    """The error of a record that was not stored."""
    try:
        producer.send(topic, b"value").result()
    except KafkaError as error:
        return str(error)
    return None


def connections(producer: Producer) -> float:
    """How many were opened."""
    return producer.metrics()["connection-creation-total"]


# ---- other clients --------------------------------------------------------------------------------------------------


@pytest.fixture
def javas_options(kerberos: Realm, keytabs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for Java's tools: alice, by her keytab.

    Java looks up a host name for the broker's address if it has one.
    """
    hosts, file = tmp_path / "no hosts", tmp_path / "java.properties"
    hosts.touch()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f'{kerberos.environment()["JAVA_TOOL_OPTIONS"]} "-Djdk.net.hosts.file={hosts}"')
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nsasl.jaas.config={jaas(keytabs['alice'], 'alice')}\n")
    return file


def test_Java_reads_with_a_ticket_what_we_wrote_with_one(
    cluster: LocalCluster, options: Options, by_keytab: ByKeytab, topic: str, javas_options: Path,
) -> None:
    make_topic(cluster, topic)
    by_keytab("alice")
    with Producer(**options) as producer:
        for value in numbers(3):
            producer.send(topic, value)
    done = cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", options["bootstrap_servers"], "--topic", topic,
        "--from-beginning", "--max-messages", 3, "--timeout-ms", 30_000, "--command-config", javas_options)
    assert done.stdout.split() == ["0", "1", "2"], done.stderr


def test_we_read_with_a_ticket_what_Java_wrote_with_one(
    cluster: LocalCluster, options: Options, by_keytab: ByKeytab, topic: str, javas_options: Path,
) -> None:
    where, = make_topic(cluster, topic)
    done = cluster.run_tool(
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", options["bootstrap_servers"], "--topic", topic,
        "--command-config", javas_options, stdin="from Java\n")
    assert done.returncode == 0, done.stderr
    by_keytab("alice")
    with Consumer(**options, auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        assert [record.value for record in consumer.poll(20)] == [b"from Java"]


def test_confluent_kafkas_wheel_has_no_GSSAPI_to_compare_with(options: Options) -> None:
    """When this fails, another client can be asked."""
    with pytest.raises(KafkaException, match="No provider for SASL mechanism GSSAPI"):
        TheirProducer({"bootstrap.servers": options["bootstrap_servers"], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI",
                       "sasl.kerberos.service.name": "kafka"})
