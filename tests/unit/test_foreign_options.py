"""Every option of other clients is ours too, or the table says what becomes of it: renamed, ignored or refused, and
why."""
from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import foreign_options
from pyclient.config import AdminConfig, ConsumerConfig, OptionWarning, ProducerConfig
from pyclient.config.declaration import Config, _catalog
from pyclient.errors import ConfigurationError, UnknownOptionError
from pyclient.foreign_option_table import (
    FROM_LIBRDKAFKA, JAVA, LIBRDKAFKA, NAMES, PYTHON, ROLES, SCALA, VALUES, ByValue, Fate, Ignored, Refused, Renamed,
)
from pyclient.foreign_options import settle

DATA = Path(__file__).parents[1] / "data" / "options"
CLIENTS: dict[str, type[Config]] = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}
EVERYWHERE = {"*": list(CLIENTS), "P": ["producer"], "C": ["consumer"]}


def lines(file: str) -> Iterator[list[str]]:
    return (line.split() for line in (DATA / file).read_text().splitlines() if not line.startswith("#"))


def expected() -> set[tuple[str, str]]:
    """(client, name) of every option of every client and version."""
    named = {(client, name) for client, name, *_ in [*lines("java.txt"), *lines("scala.txt"), *lines("confluent-kafka.txt")]}
    named |= {(client, name) for _, client, name, *_ in lines("python.txt")}
    return named | {(client, name) for where, name in lines("librdkafka.txt") for client in EVERYWHERE[where]}


def fates() -> Iterator[tuple[str, Fate]]:
    for name, row in [*NAMES.items(), *((name, row) for (_, name), row in ROLES.items())]:
        for fate in [*row.fates.values(), row.otherwise] if isinstance(row, ByValue) else [row]:
            yield name, fate


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_options, "_warned", set())


def spelled(config: type[Config]) -> set[str]:
    return {way for option in config.fields() for way in (option.name, option.dotted, option.dotted.replace(".", "_"))}


DEFAULTS = "two of whose defaults are others here"


def parse(client: str, name: str, value: object) -> tuple[Any, list[str]]:
    """The configuration, and what was said about this option."""
    config, caught = pasted(client, {name: value})
    return config, [str(each.message) for each in caught if DEFAULTS not in str(each.message)]


def pasted(client: str, settings: dict[str, object]) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = CLIENTS[client].parse(settings)
    return config, [each for each in caught if each.category is OptionWarning]


def test_the_lists_are_as_long_as_those_clients_are() -> None:
    # a list that was cut short would make the tests below hollow
    assert len({name for client, name, *_ in lines("java.txt")}) > 130
    assert len(list(lines("librdkafka.txt"))) > 180
    assert len({name for _, _, name, *_ in lines("python.txt")}) > 80
    assert len(expected()) > 700


@pytest.mark.parametrize("client", CLIENTS)
def test_each_option_of_another_client_is_ours_renamed_ignored_or_refused(client: str) -> None:
    for name in sorted(name for role, name in expected() if role == client):
        if name not in spelled(CLIENTS[client]):
            check_fate(client, name)


def check_fate(client: str, name: str) -> None:
    """The name is in the table, and any value is taken or refused for a reason, never unknown."""
    key = name.replace(".", "_")
    if (client, key) not in ROLES and key not in NAMES and key != "sasl_jaas_config":
        with pytest.raises(UnknownOptionError, match=f"{name} is an option of the .*, not of the {client}"):
            CLIENTS[client].parse({name: "x"})
        return
    for value in ("true", "0", "-1", "x"):
        with warnings.catch_warnings(), contextlib.suppress(ConfigurationError):
            warnings.simplefilter("ignore", OptionWarning)
            assert settle(client, name, value, known=_catalog(CLIENTS[client]).spellings) is not None, name


def test_every_row_leads_somewhere_and_says_why() -> None:
    ours = {option.name for config in CLIENTS.values() for option in config.fields()}
    for name, fate in fates():
        if isinstance(fate, Renamed):
            assert fate.to in ours, name
        else:
            assert len(fate.why) > 15, name


def test_no_row_hides_an_option_of_ours() -> None:
    ours = {way for config in CLIENTS.values() for way in spelled(config)}
    assert not ours & {name for table in (JAVA, SCALA, LIBRDKAFKA, PYTHON) for name in table}


def test_values_are_translated_for_options_that_exist() -> None:
    ours = {option.name for config in CLIENTS.values() for option in config.fields()}
    assert set(VALUES) <= ours


RENAMED = [
    ("producer", "metadata.broker.list", "a:1", "bootstrap_servers", (("a", 1),)),
    ("producer", "request.required.acks", "-1", "acks", -1),
    ("producer", "queue.buffering.max.ms", "50", "linger_ms", 50),
    ("producer", "message.send.max.retries", 3, "retries", 3),
    ("producer", "compression.codec", "2", "compression_type", "snappy"),
    ("producer", "compression.codec", "lz4", "compression_type", "lz4"),
    ("producer", "metadata.fetch.timeout.ms", "100", "max_block_ms", 100),
    ("producer", "block.on.buffer.full", "false", "max_block_ms", 0),
    ("producer", "queue.enqueue.timeout.ms", "-1", "max_block_ms", 2**63 - 1),
    ("producer", "queue.buffering.max.kbytes", "2048", "buffer_memory", 2048 * 1024),
    ("producer", "message.timeout.ms", 0, "delivery_timeout_ms", 2**31 - 1),
    ("producer", "max.in.flight", 2, "max_in_flight_requests_per_connection", 2),
    ("producer", "serializer.class", "kafka.serializer.StringEncoder", "value_serializer", "string"),
    ("producer", "socket.send.buffer.bytes", 0, "send_buffer_bytes", -1),
    ("producer", "max_batch_size", 1000, "batch_size", 1000),
    ("producer", "ssl_check_hostname", False, "ssl_endpoint_identification_algorithm", ""),
    ("producer", "ssl_ciphers", "A:B", "ssl_cipher_suites", ("A", "B")),
    ("consumer", "auto.commit.enable", "false", "enable_auto_commit", False),
    ("consumer", "fetch.message.max.bytes", 100, "max_partition_fetch_bytes", 100),
    ("consumer", "fetch.wait.max.ms", 100, "fetch_max_wait_ms", 100),
    ("consumer", "queued.max.messages.kbytes", 4, "fetch_buffer_memory", 4096),
    ("consumer", "receive_message_max_bytes", 2**27, "receive_max_frame_bytes", 2**27),
    ("consumer", "topic.metadata.refresh.interval.ms", -1, "metadata_max_age_ms", 2**63 - 1),
    ("consumer", "sasl.username", "u", "sasl_plain_username", "u"),
]


@pytest.mark.parametrize(("client", "name", "value", "ours", "meant"), RENAMED)
def test_a_renamed_option_has_its_effect_and_one_warning_names_ours(
    client: str, name: str, value: object, ours: str, meant: object
) -> None:
    config, said = parse(client, name, value)
    assert getattr(config, ours) == meant
    assert ours in config.given
    assert f"{name} is another client's name: it is {ours} here; use that" in said
    assert parse(client, name, value)[1] == []


@pytest.mark.parametrize(
    ("client", "name", "value"),
    [("producer", "batch.num.messages", 100), ("consumer", "queued.min.messages", 10), ("admin", "debug", "all"),
     ("consumer", "selector", object()), ("producer", "api_version", (2, 8, 0)), ("consumer", "enable.partition.eof", False),
     ("consumer", "max.in.flight", 4), ("producer", "client.rack", "r"), ("producer", "allow.auto.create.topics", True)],
)
def test_an_ignored_option_changes_nothing_and_one_warning_says_why(client: str, name: str, value: object) -> None:
    config, said = parse(client, name, value)
    assert config == CLIENTS[client].parse()
    assert len(said) == 1
    assert said[0].startswith(f"{name} is another client's option and is ignored: ")
    assert parse(client, name, value)[1] == []


@pytest.mark.parametrize(
    ("client", "name", "value", "way_out"),
    [
        ("consumer", "zookeeper.connect", "zk:2181", "bootstrap_servers"), ("consumer", "consumer.timeout.ms", 1000, r"while records := consumer\.poll\(1\)"),
        ("producer", "on_delivery", print, "on_delivery argument"),
        ("producer", "partitioner_cb", print, "partitioner="), ("producer", "compression.level", 3, "compression_zstd_level"),
        ("producer", "allow_auto_create_topics", False, "auto.create.topics.enable"),
        ("consumer", "enable.ssl.certificate.verification", False, "ssl_context"), ("consumer", "enable.partition.eof", True, r"end_offsets"),
        ("producer", "compressed.topics", "a,b", "compression_by_topic='orders:gzip,logs:gzip'"), ("consumer", "offsets.storage", "zookeeper", "leave it out"),
    ],
)
def test_a_refused_option_names_the_way_out(client: str, name: str, value: object, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is another client's option and cannot be used here: .*{way_out}"):
        parse(client, name, value)


@pytest.mark.parametrize("name", ["zookeeper.connect", "socks5_proxy", "selector", "sasl.jaas.config"])
def test_none_is_as_if_left_out_for_other_clients_names_too(name: str) -> None:
    assert parse("consumer", name, None) == (ConsumerConfig.parse(), [])


@pytest.mark.parametrize(
    ("client", "name", "value", "meant"),
    [
        ("consumer", "auto.offset.reset", "smallest", "earliest"), ("consumer", "auto_offset_reset", "largest", "latest"),
        ("consumer", "auto.offset.reset", "beginning", "earliest"), ("consumer", "auto.offset.reset", "error", "none"),
        ("producer", "key.serializer", "org.apache.kafka.common.serialization.StringSerializer", "string"),
        ("consumer", "value.deserializer", "org.apache.kafka.common.serialization.LongDeserializer", "long"),
        ("producer", "partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin"),
        ("producer", "partitioner", "fnv1a_random", "fnv1a"),
        ("producer", "partitioner.class", "org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky"), ("consumer", "connections.max.idle.ms", 0, -1),
        ("producer", "ssl.endpoint.identification.algorithm", "none", ""),
        ("consumer", "metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", ()),
    ],
)
def test_another_clients_value_is_translated_with_one_warning(client: str, name: str, value: object, meant: object) -> None:
    config, said = parse(client, name, value)
    option = next(option for option in config.fields() if name in (option.name, option.dotted))
    assert getattr(config, option.name) == meant
    assert said == [f"{name} = {value!r} is another client's value: it is {meant!r} here; use that"]
    assert parse(client, name, value)[1] == []


@pytest.mark.parametrize("value", ["kafka.producer.DefaultPartitioner", "kafka.producer.ByteArrayPartitioner"])
def test_a_partitioner_we_do_not_have_is_refused_rather_than_replaced(value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"partitioner = '{value}' cannot be used here: .*object with a partition method"):
        parse("producer", "partitioner", value)


@pytest.mark.parametrize("value", ["consistent", "consistent_random", "murmur2_random", "fnv1a"])
def test_librdkafkas_hashes_are_ours_too_and_need_no_warning(value: str) -> None:
    config, said = parse("producer", "partitioner", value)
    assert (config.partitioner, said) == (value, [])


# ── defaults that differ in silence ──────────────────────────────────────────────────────────────────────────────────

CLOUD: dict[str, object] = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": "k", "sasl.password": "s"}
OF_JAVA: dict[str, object] = {"bootstrap.servers": "b:9092", "request.timeout.ms": 60_000, "timeout.ms": 50_000}


def said_of_defaults(client: str, settings: dict[str, object]) -> list[warnings.WarningMessage]:
    return [each for each in pasted(client, settings)[1] if DEFAULTS in str(each.message)]


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_a_pasted_configuration_of_librdkafkas_gets_one_warning_that_two_defaults_differ(client: str) -> None:
    warning, = said_of_defaults(client, CLOUD)
    for word in ("'consistent_random' there", "'murmur2' here", "'read_committed' there", "'read_uncommitted' here", "partitioner='consistent_random'",
                 "isolation_level='read_committed'"):
        assert word in str(warning.message)
    assert warning.filename == __file__
    assert not [*said_of_defaults("producer", CLOUD), *said_of_defaults("consumer", CLOUD)]


@pytest.mark.parametrize(("client", "line"), [("producer", {"partitioner": "consistent_random"}), ("producer", {"partitioner": "murmur2"}),
                                              ("consumer", {"isolation.level": "read_committed"}), ("consumer", {"isolation_level": "read_uncommitted"})])
def test_the_line_that_the_warning_names_silences_it(client: str, line: dict[str, object]) -> None:
    assert not said_of_defaults(client, {**CLOUD, **line})
    assert said_of_defaults(client, CLOUD)


@pytest.mark.parametrize("settings", [OF_JAVA, {"socks5_proxy": "socks5://p:1"}, {"sasl.username": None}])
def test_a_configuration_without_a_name_of_librdkafkas_gets_no_warning(settings: dict[str, object]) -> None:
    assert not [*said_of_defaults("producer", settings), *said_of_defaults("consumer", settings), *said_of_defaults("admin", CLOUD)]


def test_librdkafkas_configuration_is_known_by_all_names_that_java_lacks() -> None:
    theirs = {name for _, name in lines("librdkafka.txt")} | {name for _, name, *_ in lines("confluent-kafka.txt")}
    java = {name for _, name, *_ in lines("java.txt")} | set(JAVA)
    ours = {way for config in CLIENTS.values() for way in spelled(config)}
    assert theirs - java - ours <= FROM_LIBRDKAFKA
    assert not FROM_LIBRDKAFKA & (java | ours)


def test_our_own_name_wins_over_another_clients() -> None:
    with pytest.warns(OptionWarning):
        config = ProducerConfig.parse({"timeout.ms": 100, "request.timeout.ms": 200})
    assert config.request_timeout_ms == 200


def test_two_names_of_other_clients_must_agree() -> None:
    with pytest.warns(OptionWarning), pytest.raises(ConfigurationError, match="are the same option, set to two values"):
        ProducerConfig.parse({"queue.enqueue.timeout.ms": 1, "metadata.fetch.timeout.ms": 2})


def test_a_renamed_option_of_another_kind_of_client_is_refused() -> None:
    with pytest.raises(UnknownOptionError, match=r"queue\.buffering\.max\.ms \(here linger_ms\) is no option of the consumer"):
        parse("consumer", "queue.buffering.max.ms", 1)


def test_a_renamed_options_value_is_checked_like_ours() -> None:
    with pytest.warns(OptionWarning), pytest.raises(ConfigurationError, match=r"linger_ms .* = -1 ms is not allowed"):
        ProducerConfig.parse({"queue.buffering.max.ms": -1})
    with pytest.warns(OptionWarning), pytest.raises(ConfigurationError, match=r"fetch_buffer_memory.*'x'"):
        ConsumerConfig.parse({"queued.max.messages.kbytes": "x"})


JAAS = 'org.apache.kafka.common.security.{}.{}LoginModule required\n  username="me" password="s3\\"cret";'


@pytest.mark.parametrize(("module", "cls"), [("plain", "Plain"), ("scram", "Scram")])
def test_a_jaas_line_for_plain_or_scram_gives_user_and_password(module: str, cls: str) -> None:
    config, said = parse("producer", "sasl.jaas.config", JAAS.format(module, cls))
    assert (config.sasl_plain_username, config.sasl_plain_password) == ("me", 's3"cret')
    assert len(said) == 1
    assert "s3" not in said[0] + repr(config)


@pytest.mark.parametrize(("extra", "is_token"), [(' tokenauth="true"', True), (" tokenauth=true", True), (' tokenauth="false"', False), ("", False)])
def test_a_jaas_line_may_say_that_it_has_a_delegation_token(extra: str, is_token: bool) -> None:
    line = JAAS.format("scram", "Scram").replace(";", f"{extra};")
    config, _ = parse("producer", "sasl.jaas.config", line)
    assert (config.sasl_scram_tokenauth, config.sasl_plain_username) == (is_token, "me")


def test_another_jaas_line_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="sasl_token_provider") as caught:
        parse("producer", "sasl.jaas.config", JAAS.format("oauthbearer", "OAuthBearer"))
    assert "s3" not in str(caught.value)


def test_the_warning_points_at_the_users_line_and_comes_once_per_process() -> None:
    program = (
        "import warnings; warnings.simplefilter('always')\n"
        "from pyclient.config import ProducerConfig\n"
        "for _ in range(3):\n"
        "    ProducerConfig.parse({'timeout.ms': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.count("OptionWarning") == 1
    assert "<string>:4: OptionWarning" in done.stderr


def test_an_ignored_reason_or_refusal_never_stands_for_an_unknown_kind_of_row() -> None:
    assert {type(fate) for _, fate in fates()} == {Renamed, Ignored, Refused}
