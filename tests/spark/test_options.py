"""Spark's option names: each accepted, or refused with the way out. No broker is asked."""
from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import TopicPartition
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, UnknownOptionError
from pyclient.integration.spark import KafkaSink, PyclientDataSource
from pyclient.integration.spark.columns import arrow_schema, spark_schema
from pyclient.integration.spark.exactly_once import ExactlyOnce
from pyclient.integration.spark.offsets import EARLIEST, LATEST
from pyclient.integration.spark.options import (
    IGNORED_BY_SOURCE, REFUSED_BY_SINK, REFUSED_BY_SOURCE, STREAM_ONLY, Bound, SinkOptions, SourceOptions, _warn_ignored,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def source(**options: str) -> SourceOptions:
    return SourceOptions.parse({**SERVERS, "subscribe": "t", **{name.lower(): value for name, value in options.items()}})


def with_dots(options: dict[str, str]) -> SourceOptions:
    return SourceOptions.parse({**SERVERS, "subscribe": "t", **options})


def test_names_are_known_in_any_case_for_spark_sends_lower_case() -> None:
    assert source(maxOffsetsPerTrigger="7").max_offsets == 7
    assert with_dots({"MaxOffsetsPerTrigger": "7"}).max_offsets == 7


def test_several_topics_are_separated_by_commas() -> None:
    assert source(subscribe=" b , a,b").topics == ("a", "b")


def test_assign_names_partitions() -> None:
    parsed = SourceOptions.parse({**SERVERS, "assign": '{"t": [1]}'})
    assert parsed.partitions == (TopicPartition("t", 1),)


@pytest.mark.parametrize("ways", [{}, {"subscribe": "t", "assign": '{"t": [0]}'}, {"subscribe": "t", "subscribepattern": "t.*"}])
def test_exactly_one_option_says_what_to_read(ways: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one of subscribe, subscribePattern and assign"):
        SourceOptions.parse({**SERVERS, **ways})


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="subscribePattern = '\\(' is no regular expression"):
        SourceOptions.parse({**SERVERS, "subscribepattern": "("})


def test_servers_are_asked_for_by_sparks_name() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers is missing"):
        SourceOptions.parse({"subscribe": "t"})


def test_kafkas_options_reach_the_client_without_their_prefix() -> None:
    assert with_dots({"kafka.isolation.level": "read_committed"}).client["isolation.level"] == "read_committed"


def test_kafkas_options_are_checked_when_the_source_is_loaded() -> None:
    with pytest.raises(UnknownOptionError, match="fetch.min.bites"):
        with_dots({"kafka.fetch.min.bites": "1"})


def test_an_unknown_option_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UnknownOptionError, match="'startingoffset' is no option here: did you mean startingOffsets?"):
        source(startingOffset="earliest")


def test_an_option_of_kafka_without_its_prefix_is_answered_with_it() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean kafka\.bootstrap\.servers?"):
        with_dots({"bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize("name", REFUSED_BY_SOURCE)
def test_what_the_source_decides_itself_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} cannot be set here: ."):
        with_dots({name.lower(): "1"})


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log, as in a process that has warned of nothing yet."""
    _warn_ignored.cache_clear()
    yield caplog
    _warn_ignored.cache_clear()


@pytest.mark.parametrize("name", [*IGNORED_BY_SOURCE, "kafka.group_id", "FETCHOFFSET.NUMRETRIES"])
def test_what_only_sparks_own_source_needs_is_accepted_with_one_warning(name: str, warnings: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert "group.id" not in with_dots({name.lower(): "5"}).client
    assert [f"{known} has no effect in this source: {why}" for known, why in IGNORED_BY_SOURCE.items()
            if known.lower() == name.lower().replace("_", ".")] == warnings.messages


@pytest.mark.parametrize("name", REFUSED_BY_SINK)
def test_what_the_sink_decides_itself_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} cannot be set here: ."):
        SinkOptions.parse({**SERVERS, "topic": "t", name: "1"})


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("maxOffsetsPerTrigger", "0", "a whole number from 1 on"),
    ("minOffsetsPerTrigger", "0", "a whole number from 1 on"),
    ("maxTriggerDelay", "soon", "a time such as 30s, 15m or 500ms"),
    ("maxTriggerDelay", "0s", "a time such as 30s, 15m or 500ms"),
    ("maxTriggerDelay", "5 weeks", "a time such as 30s, 15m or 500ms"),
    ("minPartitions", "many", "a whole number from 1 on"),
    ("maxRecordsPerPartition", "-1", "a whole number from 1 on"),
    ("failOnDataLoss", "yes", "true or false"),
    ("includeHeaders", "1", "true or false"),
    ("startingTimestamp", "-5", "milliseconds since 1970"),
    ("startingOffsetsByTimestampStrategy", "newest", "error or latest"),
    ("kafkaConsumer.pollTimeoutMs", "0", "a whole number from 1 on"),
])
def test_a_wrong_value_names_option_value_and_what_is_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} = '{value}' is not allowed: expected {expected}"):
        with_dots({name: value})


@pytest.mark.parametrize(("text", "seconds"), [("250", 0.25), ("250ms", 0.25), ("30s", 30), ("2 min", 120), ("15M", 900), ("1h", 3600), ("2d", 172800)])
def test_times_are_read_as_spark_writes_them(text: str, seconds: float) -> None:
    assert source(maxTriggerDelay=text, minOffsetsPerTrigger="1").for_stream().max_delay == seconds


def test_a_batch_that_cannot_be_both_small_and_large_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=8"):
        source(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8").for_stream()


def test_a_delay_without_what_it_waits_for_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="maxTriggerDelay says how long a batch waits for minOffsetsPerTrigger"):
        source(maxTriggerDelay="5s").for_stream()


@pytest.mark.parametrize("name", STREAM_ONLY)
def test_what_limits_the_batches_of_a_stream_has_no_effect_on_a_table(name: str, warnings: pytest.LogCaptureFixture) -> None:
    assert source(**{name: "5"}).for_batch().ending == Bound(LATEST)
    assert [message.partition(":")[0] for message in warnings.messages] == [f"{name} has no effect in this source"]


def test_an_empty_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="maxOffsetsPerTrigger is empty"):
        source(maxOffsetsPerTrigger=" ")


@pytest.mark.parametrize(("options", "bound"), [
    ({"startingOffsets": "earliest"}, Bound(EARLIEST)),
    ({"startingOffsets": "LATEST"}, Bound(LATEST)),
    ({"startingOffsets": '{"t": {"0": 5}}'}, Bound(EARLIEST, offsets={TopicPartition("t", 0): 5})),
    ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsets": "latest"}, Bound(EARLIEST, times={TopicPartition("t", 0): 5})),
    ({"startingTimestamp": "9", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}, Bound(EARLIEST, time=9)),
])
def test_the_most_exact_option_says_where_reading_begins(options: dict[str, str], bound: Bound) -> None:
    assert source(**options).starting == bound


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning_by_default() -> None:
    assert source().for_stream().starting == Bound(LATEST)
    assert (source().for_batch().starting, source().for_batch().ending) == (Bound(EARLIEST), Bound(LATEST))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"t": {"0": 5}}')
    with pytest.raises(ConfigurationError, match=f"{name} is for batches"):
        source(**{name: value}).for_stream()


@pytest.mark.parametrize("starting", ["latest", '{"t": {"0": -1}}'])
def test_a_batch_cannot_begin_at_the_end(starting: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be latest"):
        source(startingOffsets=starting).for_batch()


@pytest.mark.parametrize("ending", ["earliest", '{"t": {"0": -2}}'])
def test_a_batch_cannot_end_at_the_beginning(ending: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be earliest"):
        source(endingOffsets=ending).for_batch()


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(with_dots({"kafka.sasl.plain.password": "hunter2"}))


# ---- columns --------------------------------------------------------------------------------------------------------


def test_the_columns_are_those_of_sparks_own_kafka_source() -> None:
    assert PyclientDataSource({**SERVERS, "subscribe": "t", "includeheaders": "true"}).schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>")


@pytest.mark.parametrize("headers", [False, True])
def test_spark_and_arrow_get_the_same_columns(headers: bool) -> None:
    """Spark refuses batches that differ in a type or in what may be null."""
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(spark_schema(headers=headers), timezone="UTC") == arrow_schema(headers=headers)


# ---- the sink -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "option"), [
    ({}, "transactional_id_prefix"),
    ({"transactional_id_prefix": "no spaces"}, "transactional_id_prefix"),
    ({"transactional_id_prefix": "p", "slots": 0}, "slots"),
    ({"transactional_id_prefix": "p", "slots": True}, "slots"),
    ({"transactional_id_prefix": "p", "slots": 1001}, "slots"),
    ({"transactional_id_prefix": "p", "new_checkpoint": "maybe"}, "new_checkpoint"),
    ({"transactional_id_prefix": "p", "transactional_id": "t"}, "transactional_id"),
    ({"delivery": "at-least-once", "transactional_id": "t"}, "transactional_id"),
    ({"delivery": "at-least-once", "slots": 3}, "slots"),
    ({"delivery": "at-least-once", "transactional_id_prefix": "p"}, "transactional_id_prefix"),
    ({"delivery": "at-least-once", "marker_topic": "m"}, "marker_topic"),
    ({"delivery": "at-least-once", "new_checkpoint": "accept"}, "new_checkpoint"),
])
def test_arguments_of_a_guarantee_are_checked_where_the_sink_is_made(wrong: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError, match=option) as refused:
        KafkaSink("t", bootstrap_servers="localhost:9092", **{"delivery": "exactly-once", **wrong})
    assert refused.value.option == option


def test_a_transaction_may_take_as_long_as_brokers_allow_unless_the_user_says_otherwise() -> None:
    def timeout(**options: Any) -> object:
        sink = KafkaSink("t", {"bootstrap.servers": "localhost:9092", **options}, delivery="exactly-once", transactional_id_prefix="p")
        assert isinstance(sink._write, ExactlyOnce)
        return ProducerConfig.parse(sink._write._options.sink.client).transaction_timeout_ms

    assert timeout() == 900_000
    assert timeout(**{"transaction.timeout.ms": 5000}) == 5000


def test_an_unknown_guarantee_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="delivery='twice' is not known"):
        KafkaSink("t", bootstrap_servers="localhost:9092", delivery="twice")


def test_a_sink_without_servers_is_refused_where_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers is missing"):
        KafkaSink("t")


def test_a_sink_with_a_wrong_option_is_refused_where_it_is_made() -> None:
    with pytest.raises(UnknownOptionError, match="linger"):
        KafkaSink("t", {"bootstrap.servers": "localhost:9092", "linger.msec": 5})


def test_a_sink_travels_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(KafkaSink("t", bootstrap_servers="localhost:9092")))._options.topic == "t"


def test_what_spark_puts_among_a_sinks_options_is_no_mistake() -> None:
    assert SinkOptions.parse({**SERVERS, "topic": "t", "checkpointlocation": "/x", "queryname": "q"}).topic == "t"
