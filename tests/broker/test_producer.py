"""The guarantees of a producer on real brokers."""
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyclient import AsyncProducer, Delivery, Producer, TimestampType, TopicPartition
from pyclient.errors import (
    DeliveryError, IllegalStateError, InvalidTopicError, MetadataTimeoutError, RecordTooLargeError, SerializationError,
)
from pyclient.testing import LocalCluster
from tests.kafka import WRITTEN_AT, make_topic, read
from tests.raised_into import Sending

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_a_delivery_has_the_partition_offset_and_timestamp_of_the_stored_record(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 3)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        deliveries = [producer.send(topic, b"%d" % n, partition=n % 3, timestamp=WRITTEN_AT + n) for n in range(30)]
        metadata = [each.result(20) for each in deliveries]
    stored = {record.value: record for record in read(kafka_cluster, partitions, 30)}
    for n, each in enumerate(metadata):
        record = stored[b"%d" % n]
        assert (each.topic, each.partition, each.offset, each.timestamp) == (topic, n % 3, n // 3, WRITTEN_AT + n)
        assert (record.partition, record.offset, record.timestamp) == (each.partition, each.offset, each.timestamp)
        assert record.timestamp_type is TimestampType.CREATE_TIME


def test_single_records_of_several_threads_are_stored_once_in_each_threads_order(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    threads, each = 3, 100

    def send_alone(key: bytes) -> None:
        for number in range(each):
            producer.send(topic, b"%d" % number, key).result(20)

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=0) as producer, ThreadPoolExecutor(threads) as pool:
        list(pool.map(send_alone, [b"%d" % thread for thread in range(threads)]))
        send_alone(b"main")
    stored = read(kafka_cluster, partitions, (threads + 1) * each)
    for key in (b"0", b"1", b"2", b"main"):
        assert [int(record.value or b"") for record in stored if record.key == key] == list(range(each))


def test_a_record_without_timestamp_gets_the_time_of_its_send(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    before = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        metadata = producer.send(topic, b"now").result(20)
    after = time.time_ns() // 1_000_000
    assert before <= metadata.timestamp <= after
    assert read(kafka_cluster, partitions, 1)[0].timestamp == metadata.timestamp


def test_B07_with_LogAppendTime_deliveries_and_readers_see_the_brokers_time(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, message_timestamp_type="LogAppendTime")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        metadata = producer.send(topic, b"x", timestamp=5).result(20)
    record, = read(kafka_cluster, partitions, 1)
    assert metadata.timestamp > 1_600_000_000_000
    assert record.timestamp == metadata.timestamp
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("acks", [1, "all"])
def test_with_acks_1_and_all_the_offset_is_known(kafka_cluster: LocalCluster, topic: str, acks: Any) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, acks=acks) as producer:
        assert [producer.send(topic, b"x").result(20).offset for _ in range(2)] == [0, 1]


def test_P22_with_acks_0_a_record_is_done_when_written_its_offset_is_unknown_and_close_writes_the_last(
        kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, acks=0, linger_ms=0) as producer:
        deliveries = [producer.send(topic, b"%d" % n + bytes(20_000)) for n in range(200)]
    assert all(each.result(0).offset is None for each in deliveries)
    assert len(read(kafka_cluster, partitions, 200)) == 200


def test_P22_with_acks_0_a_closed_connection_makes_the_client_look_up_the_leader_again(
        kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")  # larger batches are refused, and with acks=0 the broker closes the connection
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, acks=0, linger_ms=0) as producer:
        producer.send(topic, bytes(10_000)).result(20)
        producer.send(topic, b"small").result(20)
        producer.flush()


def test_order_is_kept_in_each_partition_over_many_batches(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=4096) as producer:
        for n in range(20_000):
            producer.send(topic, b"%d" % n, key=b"%d" % (n % 7))
    seen: dict[tuple[int, bytes], int] = {}
    for record in read(kafka_cluster, partitions, 20_000, max_poll_records=5000):
        assert record.key is not None
        assert record.value is not None
        last = seen.get((record.partition, record.key), -1)
        assert int(record.value) > last
        seen[record.partition, record.key] = int(record.value)
    assert len({key for _, key in seen}) == len(seen) == 7, "each key is in one partition"


@pytest.mark.parametrize("codec", CODECS)
def test_the_consumer_reads_what_the_producer_compressed(kafka_cluster: LocalCluster, topic: str, codec: Any) -> None:
    partitions = make_topic(kafka_cluster, topic)
    values = [b"value %d " % n * 20 for n in range(2000)]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type=codec) as producer:
        for value in values:
            producer.send(topic, value)
    assert [record.value for record in read(kafka_cluster, partitions, 2000)] == values


def test_large_compressed_batches_sealed_by_a_worker_keep_their_order(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    values = [b"%d" % n * 100 for n in range(5000)]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type="zstd", linger_ms=50) as producer:
        for value in values:
            producer.send(topic, value)
    assert [record.value for record in read(kafka_cluster, partitions, 5000)] == values


def test_null_and_empty_keys_values_and_headers_stay_distinct(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    headers = [("a", b"1"), ("a", None), ("", b"")]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, None, b"tombstone")
        producer.send(topic, b"", b"", headers=headers)
        producer.send(topic)
    records = read(kafka_cluster, partitions, 3)
    assert [(record.key, record.value, list(record.headers)) for record in records] == [
        (b"tombstone", None, []), (b"", b"", headers), (None, None, [])]


def test_P11_linger_makes_fewer_batches_than_records(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=200) as producer:
        for _ in range(1000):
            producer.send(topic, bytes(100))
        producer.flush()
        assert producer.metrics()["batch-total"] <= 3
        assert producer.metrics()["record-send-total"] == 1000


def test_P11_a_single_record_leaves_when_its_linger_is_over(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=30) as producer:
        assert producer.send(topic, b"x").result(20).offset == 0


def test_flush_ends_the_linger_and_returns_with_everything_acknowledged(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        deliveries = [producer.send(topic, b"x") for _ in range(10)]
        producer.flush(20)
        assert all(each.done() for each in deliveries)


def test_a_too_large_record_is_refused_before_it_is_queued(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLargeError, match="max_request_size=10000"):
            producer.send(topic, bytes(10_000))
        producer.send(topic, b"small").result(20)
    assert producer.metrics()["record-send-total"] == 1


def test_flush_raises_a_failure_that_was_not_looked_at_exactly_once(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        lost = producer.send(topic, bytes(5000))
        with pytest.raises(DeliveryError, match=f"1 record .*{topic}-0") as failed:
            producer.flush()
        assert failed.value.count == 1
        assert isinstance(failed.value.causes[TopicPartition(topic, 0)], RecordTooLargeError)
        producer.flush()
        assert isinstance(lost.exception(0), RecordTooLargeError)
        producer.send(topic, bytes(5000))  # a failure that was looked at late does not hide the next one
        with pytest.raises(DeliveryError):
            producer.flush()


def test_close_raises_a_failure_that_was_not_looked_at(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    producer.send(topic, bytes(5000))
    with pytest.raises(DeliveryError):
        producer.close()
    producer.close()


@pytest.mark.parametrize("look", ["result", "exception", "callback"])
def test_flush_does_not_raise_a_failure_that_was_looked_at(kafka_cluster: LocalCluster, topic: str, look: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        delivery = producer.send(topic, bytes(5000), on_delivery=(lambda _: None) if look == "callback" else None)
        if look == "result":
            with pytest.raises(RecordTooLargeError):
                delivery.result(20)
        if look == "exception":
            assert isinstance(delivery.exception(20), RecordTooLargeError)
        producer.flush()


def test_an_error_in_the_block_is_not_replaced_by_failed_deliveries(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    with pytest.raises(ZeroDivisionError), Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, bytes(5000))
        raise ZeroDivisionError


def test_P23_callbacks_run_on_one_thread_in_the_order_of_the_partition(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    seen: list[int | None] = []
    threads: set[str] = set()

    def note(delivery: Delivery) -> None:
        threads.add(threading.current_thread().name)
        seen.append(delivery.result(0).offset)

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=1000) as producer:
        for n in range(2000):
            producer.send(topic, b"%d" % n, on_delivery=note)
    assert seen == list(range(2000))
    assert len(threads) == 1
    assert threads != {threading.current_thread().name}


def test_P23_a_callbacks_exception_is_logged_and_stops_no_other_callback(
        kafka_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(kafka_cluster, topic)
    seen: list[Delivery] = []

    def fail(_: Delivery) -> None:
        raise ZeroDivisionError("in the callback")

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"1", on_delivery=fail)
        producer.send(topic, b"2", on_delivery=seen.append)
    assert len(seen) == 1
    assert "in the callback" in caplog.text


@pytest.mark.parametrize("call", ["result", "flush", "close", "close with a limit"])
def test_a_callback_that_would_wait_for_itself_gets_an_error(kafka_cluster: LocalCluster, topic: str, call: str) -> None:
    make_topic(kafka_cluster, topic)
    raised: list[BaseException] = []
    done = threading.Event()
    linger_ms = 1000 if call == "result" else 0  # the record must not have been delivered when its result is asked for
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=linger_ms) as producer:
        calls: dict[str, Callable[[], object]] = {
            "result": lambda: producer.send(topic, b"2").result(5), "flush": producer.flush, "close": producer.close,
            "close with a limit": lambda: producer.close(1)}

        def attempt(_: Delivery) -> None:
            try:
                calls[call]()
            except IllegalStateError as error:
                raised.append(error)
            done.set()

        producer.send(topic, b"1", on_delivery=attempt)
        assert done.wait(20)
    assert len(raised) == 1
    assert "must not block" in str(raised[0])


def test_close_0_in_a_callback_ends_the_producer_without_waiting(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    ended = threading.Event()

    def close(_: Delivery) -> None:
        producer.close(0)
        ended.set()

    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=0)
    producer.send(topic, b"1", on_delivery=close)
    assert ended.wait(20)


def test_close_0_in_a_callback_does_not_wait_for_a_close_that_waits_for_the_callback(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=60_000)
    producer.send(topic, b"1", on_delivery=lambda _: producer.close(0))
    producer.close(20)


def test_close_again_or_from_other_threads_does_nothing_and_then_every_call_raises_closed(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    delivery = producer.send(topic, b"x")
    threads = [threading.Thread(target=producer.close) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    producer.close()
    assert delivery.result(0).offset == 0
    for call in (lambda: producer.send(topic, b"y"), producer.flush, lambda: producer.partitions_for(topic), producer.__enter__):
        with pytest.raises(Exception, match="closed"):
            call()


def test_an_unknown_topic_is_created_if_brokers_allow_it(kafka_cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        assert producer.send(topic, b"first").result(20).offset == 0
        assert producer.partitions_for(topic) == 1


@pytest.mark.kafka(auto_create_topics_enable=False)
def test_P04_a_topic_that_does_not_exist_is_named_after_max_block_ms(kafka_cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=4000) as producer, \
            pytest.raises(MetadataTimeoutError, match=rf"{topic}.*does not create topics automatically \(auto.create.topics.enable=false\)"):
        producer.send(topic, b"x")


def test_P04_the_error_of_an_unknown_partition_names_it_and_the_number_of_partitions(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=3000) as producer:
        with pytest.raises(MetadataTimeoutError, match="partition 7 .* the topic has 2"):
            producer.send(topic, b"x", partition=7)
        with pytest.raises(ValueError, match="-3 is negative"):
            producer.send(topic, b"x", partition=-3)


def test_M03_an_invalid_topic_name_is_refused_at_once_and_other_topics_are_sent(kafka_cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for _ in range(2):
            with pytest.raises(InvalidTopicError, match="no/such"):
                producer.send("no/such name", b"x")
        assert producer.send(topic, b"x").result(20).offset == 0


def test_a_partitioner_object_chooses_and_its_exception_is_raised_by_send(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 3)

    class ByValue:
        def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Any) -> int:
            assert len(partitions) == 3
            return int(value or b"")

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, partitioner=ByValue()) as producer:
        assert [producer.send(topic, b"%d" % n).result(20).partition for n in (2, 0, 1)] == [2, 0, 1]
        with pytest.raises(ValueError, match="ByValue chose partition 3 .* has 3"):
            producer.send(topic, b"3")
        with pytest.raises(ValueError, match="invalid literal"):
            producer.send(topic, b"none")
        assert producer.send(topic, b"none", partition=1).result(20).partition == 1


def test_serializers_make_bytes_and_their_failure_is_raised_before_anything_is_queued(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, key_serializer="string", value_serializer="json") as producer:
        producer.send(topic, {"a": 1}, "k").result(20)
        with pytest.raises(SerializationError, match=topic):
            producer.send(topic, object(), "k")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer, pytest.raises(TypeError, match="value_serializer"):
        producer.send(topic, {"a": 1})
    record, = read(kafka_cluster, partitions, 1)
    assert (record.key, record.value) == (b"k", b'{"a":1}')


@pytest.mark.parametrize("idempotent", [True, False])
def test_P20_a_batch_too_large_for_the_topic_is_split_until_it_fits(kafka_cluster: LocalCluster, topic: str, idempotent: bool) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=1000, enable_idempotence=idempotent) as producer:
        deliveries = [producer.send(topic, b"%0100d" % number) for number in range(200)]
        producer.flush()
    assert [delivery.result().offset for delivery in deliveries] == list(range(200))


def test_the_async_producer_delivers_and_flushes(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    seen: list[int | None] = []

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            deliveries = [await producer.send(topic, b"%d" % n, partition=n % 2, on_delivery=lambda d: seen.append(d.partition))
                          for n in range(100)]
            metadata = [await each for each in deliveries]
            assert [(each.partition, each.offset) for each in metadata] == [(n % 2, n // 2) for n in range(100)]
            with pytest.raises(IllegalStateError, match="await"):
                (await producer.send(topic, b"x", partition=0)).result()
            await producer.flush()

    asyncio.run(main())
    assert len(seen) == 100
    assert len(read(kafka_cluster, partitions, 101)) == 101


def test_the_async_producer_raises_unseen_failures_and_not_those_awaited(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, max_message_bytes="2000")

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            with pytest.raises(RecordTooLargeError):
                await (await producer.send(topic, bytes(5000)))
            await producer.flush()
            await producer.send(topic, bytes(5000))
            with pytest.raises(DeliveryError):
                await producer.flush()

    asyncio.run(main())


def test_exceptions_raised_into_a_thread_that_sends_lose_and_double_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=0, compression_type="gzip") as producer:  # without cached requests
        sending = Sending(producer, topic, seed=1)
        sending.run(100)
        last = producer.send(topic, b"last", partition=0).result(20)
        producer.flush(20)
    assert last.offset is not None
    stored = [record.value for record in read(kafka_cluster, partitions, last.offset + 1)]
    sending.check(stored[:-1])
    assert stored[-1] == b"last"
