"""A producer's records on one real broker with changing topics and quotas, read back by Java and librdkafka."""
from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Final, NamedTuple

import pytest

from pyclient import Admin, Delivery, NewTopic, Producer
from pyclient.errors import KafkaError, MetadataTimeoutError, RecordTooLargeError
from pyclient.testing import LocalCluster
from tests.broker.durability.numbering import Found, Stream, Verdict, acknowledged, judge, parse, value
from tests.broker.durability.verifiers import WITNESSES, ends
from tests.kafka import make_topic
from tests.waiting import eventually

ONE: Final = Stream(0, 0)
QUICK_QUOTAS: Final = pytest.mark.kafka(quota_window_num=2, quota_window_size_seconds=1)


class Way(NamedTuple):
    """The options of one producer."""

    acks: Any
    compression_type: Any
    enable_idempotence: bool


WAYS: Final = [way for way in itertools.starmap(Way, itertools.product(
    (0, 1, "all"), ("none", "gzip", "snappy", "lz4", "zstd"), (False, True))) if way.acks == "all" or not way.enable_idempotence]
COUNT: Final = 3000


@pytest.fixture(scope="module")
def written(_kafka_clusters: Any) -> tuple[LocalCluster, str]:
    """A topic with one partition for each combination of options."""
    cluster: LocalCluster = _kafka_clusters.get(1, {})
    topic = f"ways-{time.time_ns()}"
    make_topic(cluster, topic, len(WAYS))
    ends(cluster, topic, len(WAYS))  # before it leads, a broker closes the connections of producers with acks=0
    for partition, way in enumerate(WAYS):
        with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=32_768, **way._asdict()) as producer:
            for number in range(COUNT):
                producer.send(topic, value(Stream(0, partition), number), partition=partition)
    return cluster, topic


@pytest.fixture(scope="module", params=WITNESSES)
def read_back(request: pytest.FixtureRequest, written: tuple[LocalCluster, str]) -> list[Found]:
    return WITNESSES[request.param](*written, len(WAYS))


@pytest.mark.parametrize("partition", range(len(WAYS)), ids=["-".join(map(str, way)) for way in WAYS])
def test_B03_records_of_every_acks_codec_and_idempotence_are_read_back_complete_and_in_order(read_back: list[Found], partition: int) -> None:
    stream = Stream(0, partition)
    records = [found for found in read_back if found.partition == partition]
    assert judge({stream: range(COUNT)}, {stream: COUNT}, records) == Verdict(COUNT, 0, 0, 0, 0)
    assert [found.offset for found in records] == list(range(COUNT))


def test_only_oversized_records_fail_with_RecordTooLargeError(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="5000")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=2000) as producer:
        deliveries = [producer.send(topic, value(ONE, number).ljust(20_000 if number % 10 == 7 else 0, b"."), partition=0) for number in range(100)]
        failed = [number for number, each in enumerate(deliveries) if each.exception(20) is not None]
    assert failed == list(range(7, 100, 10))
    for number in failed:
        error = deliveries[number].exception(0)
        assert isinstance(error, RecordTooLargeError)
        assert str(error.topic_partition) == f"{topic}-0"
    for read in WITNESSES.values():
        verdict = judge(acknowledged({ONE: deliveries}), {ONE: 100}, read(kafka_cluster, topic, 1))
        assert verdict == Verdict(90, 0, 0, 0, 0)


@pytest.mark.kafka(auto_create_topics_enable=False)
def test_an_unknown_topic_fails_its_own_send_and_no_other(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=1000) as producer:
        deliveries = []
        for number in range(10):
            deliveries.append(producer.send(topic, value(ONE, number), partition=0))
            with pytest.raises(MetadataTimeoutError, match=f"{topic}-unknown"):
                producer.send(f"{topic}-unknown", b"x")
        producer.flush()
    for read in WITNESSES.values():
        assert judge(acknowledged({ONE: deliveries}), {ONE: 10}, read(kafka_cluster, topic, 1)) == Verdict(10, 0, 0, 0, 0)


# --- a recreated topic ------------------------------------------------------------------------------------------------


class Sending(threading.Thread):
    """Numbers records of one partition until it is stopped."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__()
        self.deliveries: list[Delivery] = []
        self.refused: KafkaError | None = None
        self._producer, self._topic = producer, topic
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.wait(0.001):
                self.deliveries.append(self._producer.send(self._topic, value(ONE, len(self.deliveries)), partition=0))
        except KafkaError as error:
            self.refused = error

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def test_P25_a_topic_recreated_under_load_holds_what_was_acknowledged_since_and_every_delivery_is_settled(
        kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin, Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        sending = Sending(producer, topic)
        sending.start()
        try:
            eventually(lambda: len(sending.deliveries) > 100 and sending.deliveries[100].done())
            admin.delete_topics([topic])
            eventually(lambda: topic not in admin.list_topics())
            create_when_gone(admin, topic)
            first = len(sending.deliveries)
            eventually(lambda: sending.refused or (len(sending.deliveries) > first + 100 and sending.deliveries[first + 100].done()), 60)
        finally:
            sending.stop()
        assert sending.refused is None, sending.refused
        errors = [each.exception(60) for each in sending.deliveries]
    assert not any(errors), next(filter(None, errors))
    for read in WITNESSES.values():
        records = read(kafka_cluster, topic, 1)
        verdict = judge({ONE: range(first, len(errors))}, {ONE: len(errors)}, records)
        assert verdict == Verdict(len(records), 0, verdict.doubled, 0, 0)
        stored = {parse(found)[1]: found.offset for found in records}
        assert all(sending.deliveries[number].result(0).offset == stored[number] for number in range(first, len(errors)))


def create_when_gone(admin: Admin, topic: str) -> None:
    """Deletion ends some time after the topic has left the list."""
    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])
        except KafkaError as refused:
            return "exist" in str(refused) and topic in admin.list_topics()  # an earlier try that timed out, or a send
        return True

    eventually(created)


# --- quotas ----------------------------------------------------------------------------------------------------------


@QUICK_QUOTAS
def test_M09_a_throttled_producer_waits_before_its_next_request_and_loses_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    """A client that ignores throttle_time is muted: its requests take as long as the throttling.

    A client that waits gets quick responses. One request in flight: others would be sent before the response.
    """
    make_topic(kafka_cluster, topic)
    limited, count = f"limited-{topic[-8:]}", 10_000
    limit_bytes(kafka_cluster, limited, 250_000)
    began = time.monotonic()
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, client_id=limited, batch_size=65_536, max_in_flight_requests_per_connection=1) as producer:
        deliveries = [producer.send(topic, value(ONE, number), partition=0) for number in range(count)]
        producer.flush(60)
        took, figures = time.monotonic() - began, producer.metrics()
    assert took > 2, "a megabyte at a quarter of it per second, less what a window lets through"
    assert figures["request-latency-max{node=1}"] < 500, figures
    for read in WITNESSES.values():
        assert judge(acknowledged({ONE: deliveries}), {ONE: count}, read(kafka_cluster, topic, 1)) == Verdict(count, 0, 0, 0, 0)


def limit_bytes(cluster: LocalCluster, client_id: str, per_second: int) -> None:
    done = cluster.run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap_servers, "--alter", "--add-config",
                            f"producer_byte_rate={per_second}", "--entity-type", "clients", "--entity-name", client_id)
    assert done.returncode == 0, done.stdout + done.stderr
