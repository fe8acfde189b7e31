"""compression_by_topic: some topics have a codec of their own, with that codec's level."""
from __future__ import annotations

import threading
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.codec.batches import read_batches
from pyclient.codec.compression import Compression, compress
from pyclient.codec.encode import HEADER_SIZE
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError
from pyclient.testing import FakeCluster

VALUE: Final = b"".join(b"%d is a number like many others, and another is %d; " % (number, number * 7919) for number in range(2_000))


def sent(cluster: FakeCluster, topic: str, **options: Any) -> tuple[Compression, int]:
    """The codec and size of the batch that a record becomes."""
    cluster.create_topic(topic)
    with Producer({}, bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        producer.send(topic, VALUE).result(20)
    records = cluster.requests("Produce")[-1].body.topic_data[0].partition_data[0].records
    assert [record.value for record in cluster.records(topic)] == [VALUE]
    (batch,) = read_batches(records)
    return batch.compression, batch.size


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
def test_a_named_topic_has_its_own_codec_and_the_others_that_of_the_producer(fake_cluster: FakeCluster, codec: str) -> None:
    rest = "zstd" if codec == "none" else "none"
    options = {"compression_type": rest, "compression_by_topic": {"named": codec}}
    assert sent(fake_cluster, "named", **options)[0] is Compression.named(codec)
    assert sent(fake_cluster, "other", **options)[0] is Compression.named(rest)


@pytest.mark.parametrize(("codec", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 12), ("zstd", 19)])
def test_the_level_of_a_codec_holds_for_the_topics_that_have_it(fake_cluster: FakeCluster, codec: str, level: int) -> None:
    sent(fake_cluster, "plain")
    plain = fake_cluster.requests("Produce")[-1].body.topic_data[0].partition_data[0].records[HEADER_SIZE:]
    levels = {f"compression_{codec}_level": level}
    size = len(compress(Compression.named(codec), plain, level))
    assert size != len(compress(Compression.named(codec), plain))
    assert sent(fake_cluster, "named", compression_by_topic={"named": codec}, **levels)[1] == HEADER_SIZE + size
    assert sent(fake_cluster, "other", compression_type=codec, **levels)[1] == HEADER_SIZE + size


def test_large_batches_of_a_topic_with_a_codec_are_compressed_by_a_worker_and_those_without_are_not(fake_cluster: FakeCluster) -> None:
    for topic, works in (("plain", False), ("packed", True)):
        fake_cluster.create_topic(topic)
        with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, compression_type="gzip",
                      compression_by_topic={"plain": "none"}) as producer:
            producer.send(topic, VALUE).result(20)
            assert any(thread.name.startswith("pyclient-seal") for thread in threading.enumerate()) is works


def test_a_worker_that_has_compressed_a_batch_wakes_the_loop(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("packed")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, compression_type="gzip") as producer:
        producer.send("packed", b"small").result(20)
        woken_by, accumulator = [], producer._core.accumulator
        wake = accumulator.on_ready

        def noted() -> None:
            woken_by.append(threading.current_thread().name)
            wake()

        accumulator.on_ready = noted
        producer.send("packed", VALUE).result(20)
        assert any(name.startswith("pyclient-seal") for name in woken_by)


def test_the_option_may_be_a_string_as_in_properties_files() -> None:
    config = ProducerConfig.parse({"compression.by.topic": " logs : ZSTD, events:none,"})
    assert dict(config.compression_by_topic) == {"logs": "zstd", "events": "none"}
    assert ProducerConfig.parse({"compression_by_topic": {"logs": "gzip"}}).compression_by_topic == (("logs", "gzip"),)
    assert ProducerConfig.parse({}).compression_by_topic == ()


@pytest.mark.parametrize("wrong", ["zstd", "logs:brotli", {"logs": 3}, {"": "zstd"}, {7: "zstd"}, ["zstd"], 7, "logs:zstd:9"])
def test_an_unknown_codec_of_a_topic_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="compression_by_topic"):
        ProducerConfig.parse({"compression_by_topic": wrong})


def test_a_config_with_the_option_can_be_hashed_and_compared() -> None:
    one, other = (ProducerConfig.parse({"compression_by_topic": {"logs": "zstd"}}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
