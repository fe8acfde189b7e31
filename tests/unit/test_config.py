"""Options: what is declared, how settings are read, and what is said about wrong ones."""
from __future__ import annotations

import math
import pickle
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import wait_fixed

from pyclient.config import Address, AdminConfig, ConsumerConfig, ProducerConfig
from pyclient.config.declaration import Config
from pyclient.config.kinds import Float, Int, duration_ms
from pyclient.errors import ConfigurationError, UnknownOptionError, UnsupportedFeatureError

DATA = Path(__file__).parents[1] / "data" / "options"
CLIENTS: dict[str, type[Config]] = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}
EVERY = [(config, option) for config in CLIENTS.values() for option in config.fields()]

AS_PASTED = {
    "acks": 1, "retries": 0, "buffer.memory": 10240, "batch.size": 10240, "linger.ms": 0,
    "max.in.flight.requests.per.connection": 1, "compression.type": "snappy", "receive.buffer.bytes": 4096,
}
AS_PASTED_TOO = {
    "session.timeout.ms": 10000, "heartbeat.interval.ms": 2000, "auto.commit.interval.ms": 5000, "fetch.max.bytes": 52428800,
}


def producer(**options: object) -> ProducerConfig:
    return ProducerConfig.parse(None, options)


def consumer(**options: object) -> ConsumerConfig:
    return ConsumerConfig.parse(None, options)


# ── spelling ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("config", "pasted"), [(ProducerConfig, AS_PASTED), (ConsumerConfig, AS_PASTED_TOO)])
@pytest.mark.parametrize("as_text", [False, True])
def test_real_world_configurations_construct_as_pasted(config: type[Config], pasted: Mapping[str, object], *, as_text: bool) -> None:
    values = {name: str(value) if as_text else value for name, value in pasted.items()}
    snake = {name.replace(".", "_"): value for name, value in values.items()}
    dotted = config.parse(values)
    assert dotted == config.parse(snake) == config.parse(None, snake) == config.parse(None, values)
    for name, value in pasted.items():
        assert getattr(dotted, name.replace(".", "_")) == value


def test_a_keyword_wins_over_the_mapping_and_none_is_the_same_as_leaving_it_out() -> None:
    assert ProducerConfig.parse({"linger.ms": 20}, {"linger_ms": 7}).linger_ms == 7
    # constructors hand on their own parameters, None unless given: that must not hide what the mapping says
    assert ProducerConfig.parse({"key.serializer": "string"}, {"key_serializer": None}).key_serializer == "string"
    assert ProducerConfig.parse({"linger.ms": None, "linger_ms": 7}).linger_ms == 7
    assert ProducerConfig.parse({"linger.ms": None}).linger_ms == 5
    assert "linger_ms" not in ProducerConfig.parse({"linger.ms": None}).given


def test_two_spellings_of_an_option_must_agree() -> None:
    assert ProducerConfig.parse({"linger.ms": 20, "linger_ms": 20}).linger_ms == 20
    with pytest.raises(ConfigurationError, match=r"linger.ms and linger_ms are the same option, set to two values"):
        ProducerConfig.parse({"linger.ms": 20, "linger_ms": 30})


@pytest.mark.parametrize("config", CLIENTS.values(), ids=CLIENTS)
def test_each_option_is_known_by_its_own_and_its_dotted_name(config: type[Config]) -> None:
    for option in config.fields():
        for spelling in (option.name, option.dotted, option.dotted.replace(".", "_")):
            assert config.parse({spelling: None}) == config.parse(), spelling


@pytest.mark.parametrize(
    ("typo", "right"), [("linger_mss", "linger_ms"), ("linger.mss", "linger.ms"), ("compresion_type", "compression_type"),
                        ("BOOTSTRAP_SERVERS", "bootstrap_servers"), ("bootstrap_server", "bootstrap_servers")],
)
def test_a_typo_is_answered_with_the_nearest_name_in_the_same_spelling(typo: str, right: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"did you mean {right}") as caught:
        producer(**{typo: 1})
    assert right.replace(".", "_") in caught.value.nearest


def test_a_name_that_resembles_nothing_points_to_the_list() -> None:
    with pytest.raises(UnknownOptionError, match=r"help\('pyclient\.option_types\.ProducerOptions'\)"):
        producer(zzz=1)


def test_an_option_of_another_client_is_named_as_such() -> None:
    with pytest.raises(UnknownOptionError, match="group_id is an option of the consumer, not of the producer"):
        producer(group_id="g")
    with pytest.raises(UnknownOptionError, match=r"linger\.ms is an option of the producer, not of the consumer"):
        consumer(**{"linger.ms": 1})


def test_a_first_argument_that_is_no_mapping_is_refused_and_a_consumer_is_pointed_to_topics() -> None:
    with pytest.raises(ConfigurationError, match="expected a mapping of options as first argument, got list"):
        ProducerConfig.parse(["localhost:9092"])  # type: ignore[arg-type]  # as users do
    with pytest.raises(ConfigurationError, match=r"got str.*write Consumer\(topics="):
        ConsumerConfig.parse("orders")  # type: ignore[arg-type]  # as users of kafka-python do


def test_an_option_name_must_be_a_text() -> None:
    with pytest.raises(ConfigurationError, match="expected an option name as str"):
        ProducerConfig.parse({1: 2})  # type: ignore[dict-item]


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("linger_ms", " 5 ", 5), ("acks", "all", -1), ("acks", "-1", -1), ("acks", 1, 1), ("acks", "0", 0),
        ("partitioner_ignore_keys", "TRUE", True), ("partitioner_ignore_keys", False, False),
        ("compression_type", "ZSTD", "zstd"), ("sasl_login_refresh_window_factor", "0.9", 0.9),
        ("ssl_enabled_protocols", "TLSv1.2, TLSv1.3", ("TLSv1.2", "TLSv1.3")), ("ssl_cipher_suites", ["a", "b"], ("a", "b")),
        ("bootstrap_servers", "a:1,b:2", (Address("a", 1), Address("b", 2))), ("security_protocol", "plaintext", "PLAINTEXT"),
    ],
)
def test_texts_become_values(option: str, text: object, value: object) -> None:
    assert getattr(producer(**{option: text}), option) == value


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("linger_ms", -1, "a whole number of 0 or more"), ("linger_ms", 1.5, "a whole number"), ("linger_ms", True, "a whole number"),
        ("linger_ms", "5ms", "a whole number"), ("acks", 2, "'all' .the same as -1., 0 or 1"), ("acks", True, "'all'"),
        ("compression_gzip_level", 0, "from 1 to 9 or -1"), ("compression_zstd_level", 23, "from -131072 to 22"),
        ("compression_type", "brotli", "one of none, gzip, snappy, lz4, zstd"), ("partitioner_ignore_keys", "yes", "True or False"),
        ("partitioner_ignore_keys", 1, "True or False"), ("client_id", 3, "a text"), ("ssl_cipher_suites", 3, "a list of texts"),
        ("ssl_cipher_suites", [3], "a list of texts"), ("sasl_login_refresh_window_factor", "nan", "a number from 0.5 to 1.0"),
        ("sasl_login_refresh_window_factor", "x", "a number"), ("retry_backoff", 3, "a tenacity wait"),
        ("ssl_context", "x", r"an ssl\.SSLContext"), ("max_request_size", 2**31, "a whole number"),
    ],
)
def test_a_wrong_value_is_answered_with_option_value_and_what_is_allowed(option: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option}.*{expected}") as caught:
        producer(**{option: value})
    assert repr(value) in str(caught.value)
    assert caught.value.option == option


def test_a_message_names_the_dotted_form_and_the_unit() -> None:
    with pytest.raises(ConfigurationError, match=r"^linger_ms \(linger\.ms\) = -1 ms is not allowed"):
        producer(linger_ms=-1)


INTS = {option.name: option for _, option in EVERY if isinstance(option.kind, Int)}


@pytest.mark.parametrize("name", INTS)
def test_every_number_has_limits_and_they_hold_to_the_last_one(name: str) -> None:
    option: Any = INTS[name]
    low, high = option.kind.low, option.kind.high
    assert low is not None
    assert high is not None
    assert (option.convert(low), option.convert(str(high))) == (low, high)
    for outside in (low - 1, high + 1):
        if outside not in option.kind.or_else:
            with pytest.raises(ConfigurationError, match=option.name):
                option.convert(outside)


@given(st.sampled_from([option for _, option in EVERY]),
       st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.lists(st.text()) | st.lists(st.integers()))
def test_whatever_the_value_only_a_configuration_error_escapes(option: Any, value: object) -> None:
    try:
        converted = option.convert(value)
    except ConfigurationError as error:
        assert error.option == option.name  # noqa: PT017
    else:
        assert option.convert(converted) == converted


FLOATS = {option.name: option for _, option in EVERY if isinstance(option.kind, Float)}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, "nan"])
def test_a_number_that_is_none_is_refused(name: str, value: float | str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        FLOATS[name].convert(value)


@pytest.mark.parametrize(("text", "ms"), [("PT1H", 3_600_000), ("P1D", 86_400_000), ("P1DT2H3M4.5S", 93_784_500), ("PT0.001S", 1)])
def test_a_reset_by_duration_reads_iso_8601(text: str, ms: int) -> None:
    config = consumer(auto_offset_reset=f"by_duration:{text}")
    assert config.auto_offset_reset == f"by_duration:{text}"
    assert config.reset_duration_ms == ms == duration_ms(text)
    assert consumer(auto_offset_reset="earliest").reset_duration_ms is None


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h", "by_duration:-PT1H", "never", ""])
def test_another_reset_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="auto_offset_reset"):
        consumer(auto_offset_reset=text)


def test_objects_are_taken_as_they_are() -> None:
    wait, context = wait_fixed(1), ssl.create_default_context()
    assert producer(retry_backoff=wait).retry_backoff is wait
    assert producer(ssl_context=context).ssl_context is context


# ── laws between options ─────────────────────────────────────────────────────────────────────────────────────────────

LAWS = [
    (ProducerConfig, {"delivery_timeout_ms": 1000, "linger_ms": 0, "request_timeout_ms": 1001}, "at least linger_ms . request_timeout_ms"),
    (ProducerConfig, {"delivery_timeout_ms": 1000, "linger_ms": 1000}, "here delivery_timeout_ms = 1000, linger_ms = 1000, request_timeout_ms = 30000"),
    (ProducerConfig, {"batch_size": 2048, "buffer_memory": 1024}, "batch_size must not exceed buffer_memory"),
    (ProducerConfig, {"retry_backoff_ms": 200, "retry_backoff_max_ms": 100}, "retry_backoff_max_ms must be at least"),
    (ProducerConfig, {"reconnect_backoff_ms": 200, "reconnect_backoff_max_ms": 100}, "reconnect_backoff_max_ms must be at least"),
    (ProducerConfig, {"socket_connection_setup_timeout_ms": 2, "socket_connection_setup_timeout_max_ms": 1}, "setup_timeout_max_ms must"),
    (ProducerConfig, {"default_api_timeout_ms": 10, "request_timeout_ms": 11}, "default_api_timeout_ms must be at least"),
    (ConsumerConfig, {"heartbeat_interval_ms": 5000, "session_timeout_ms": 5000}, "heartbeat_interval_ms must be less"),
    (ConsumerConfig, {"fetch_min_bytes": 11, "fetch_max_bytes": 10}, "fetch_min_bytes must not exceed"),
    (ConsumerConfig, {"fetch_max_wait_ms": 5, "request_timeout_ms": 5}, "fetch_max_wait_ms must be less"),
    (ConsumerConfig, {"receive_max_frame_bytes": 2000, "fetch_max_bytes": 2000}, "receive_max_frame_bytes must be at least"),
    (AdminConfig, {"bootstrap_servers": "b:9092", "bootstrap_controllers": "c:9093"}, "exclude each other"),
    (ConsumerConfig, {"enable_auto_commit": True}, "enable_auto_commit needs group_id"),
    (ConsumerConfig, {"group_instance_id": "i"}, "group_instance_id needs group_id"),
]


@pytest.mark.parametrize(("config", "settings", "law"), LAWS)
def test_what_the_user_set_must_keep_the_law_and_the_message_shows_the_values(
    config: type[Config], settings: Mapping[str, object], law: str
) -> None:
    with pytest.raises(ConfigurationError, match=law) as caught:
        config.parse(settings)
    for name, value in settings.items():
        assert f"{name} = {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "settings", "name", "value"),
    [
        (ProducerConfig, {"request_timeout_ms": 200_000}, "delivery_timeout_ms", 200_005),
        (ProducerConfig, {"request_timeout_ms": 200_000}, "default_api_timeout_ms", 200_000),
        (ProducerConfig, {"delivery_timeout_ms": 5_000}, "request_timeout_ms", 4_995),
        (ProducerConfig, {"delivery_timeout_ms": 5_000, "request_timeout_ms": 4_999}, "linger_ms", 1),
        (ProducerConfig, {"delivery_timeout_ms": 5_000, "linger_ms": 4_000}, "request_timeout_ms", 1_000),
        (ProducerConfig, {"delivery_timeout_ms": 3}, "linger_ms", 2),
        (ProducerConfig, {"default_api_timeout_ms": 5_000}, "request_timeout_ms", 5_000),
        (ProducerConfig, {"buffer_memory": 1024}, "batch_size", 1024),
        (ProducerConfig, {"batch_size": 2**30}, "buffer_memory", 2**30),
        (ProducerConfig, {"retry_backoff_ms": 5000}, "retry_backoff_max_ms", 5000),
        (ConsumerConfig, {"session_timeout_ms": 1500}, "heartbeat_interval_ms", 500),
        (ConsumerConfig, {"heartbeat_interval_ms": 60_000}, "session_timeout_ms", 180_000),
        (ConsumerConfig, {"fetch_min_bytes": 2**27}, "fetch_max_bytes", 2**27),
        (ConsumerConfig, {"fetch_max_bytes": 2**28}, "receive_max_frame_bytes", 2**28 + 65_536),
        (ConsumerConfig, {"receive_max_frame_bytes": 1_000_000}, "fetch_max_bytes", 934_464),
        (ConsumerConfig, {"request_timeout_ms": 400}, "fetch_max_wait_ms", 200),
        (ConsumerConfig, {"group_id": None}, "enable_auto_commit", False),
        (ConsumerConfig, {"group_id": "g"}, "enable_auto_commit", True),
    ],
)
def test_a_default_gives_way_to_what_the_user_set(
    config: type[Config], settings: Mapping[str, object], name: str, value: object
) -> None:
    parsed = config.parse(settings)
    assert getattr(parsed, name) == value
    assert name not in parsed.given


def test_a_default_does_not_give_way_to_one_option_and_break_the_law_of_another() -> None:
    with pytest.raises(ConfigurationError, match="receive_max_frame_bytes must be at least"):
        consumer(receive_max_frame_bytes=1_000_000, fetch_min_bytes=10_000_000)


@pytest.mark.parametrize("config", CLIENTS.values())
@given(data=st.data())
def test_a_number_that_is_set_alone_breaks_no_law(config: type[Config], data: st.DataObject) -> None:
    name, default, kind = data.draw(st.sampled_from([(each.name, each.default, each.kind) for each in config.fields() if isinstance(each.kind, Int) and each.default]))
    low, high = kind.low or 0, kind.high or 2**63 - 1
    number = data.draw(st.integers(max(default // 20, low), max(min(default * 20, high), low)))
    parsed = config.parse({name: number})
    assert getattr(parsed, name) == number
    assert all(rule.holds(parsed) for rule in config._rows("RULES"))


@pytest.mark.parametrize("config", CLIENTS.values())
def test_the_defaults_keep_every_law(config: type[Config]) -> None:
    # enable_auto_commit is the one default that depends on another: there are no offsets to commit without a group
    changed = {option.name for option, value in config() if value != option.convert(None)}
    assert changed <= {"enable_auto_commit"}


# ── what is not there yet ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ProducerConfig, {"transaction_two_phase_commit_enable": True}),
        (ConsumerConfig, {"share_acknowledgement_mode": "explicit"}), (ConsumerConfig, {"share_acquire_mode": "record_limit"}),
        (ConsumerConfig, {"metric_reporters": "my.module:Reporter"}), (ConsumerConfig, {"enable_metrics_push": True}),
        (AdminConfig, {"metrics_recording_level": "DEBUG"}),
    ],
)
def test_asking_for_what_a_later_release_brings_raises_and_says_what_to_do(config: type[Config], settings: Mapping[str, object]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="this release does not support that yet") as caught:
        config.parse(settings)
    assert caught.value.option == next(iter(settings)).replace(".", "_")


@pytest.mark.parametrize(
    "settings", [{"security_protocol": "PLAINTEXT"}, {"transactional_id": None}, {"interceptors": []}])
def test_not_asking_for_it_is_fine(settings: Mapping[str, object]) -> None:
    assert ProducerConfig.parse(settings).transactional_id is None


@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": "0"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}])
def test_what_idempotence_cannot_do_switches_it_off_unless_it_was_asked_for(settings: Mapping[str, object]) -> None:
    assert ProducerConfig.parse({}).enable_idempotence is True
    assert ProducerConfig.parse(settings).enable_idempotence is False
    with pytest.raises(ConfigurationError, match="idempotent producer needs"):
        ProducerConfig.parse({**settings, "enable_idempotence": True})


# ── the object ───────────────────────────────────────────────────────────────────────────────────────────────────────

SECRETS = ["ssl_key_password", "ssl_keystore_key", "ssl_keystore_password", "ssl_truststore_password", "sasl_plain_password",
           "sasl_oauthbearer_client_credentials_client_secret", "sasl_oauthbearer_assertion_private_key_passphrase"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_stands_in_no_text(name: str) -> None:
    config = producer(**{name: "hunter2"})
    assert getattr(config, name) == "hunter2"
    assert "hunter2" not in repr(config) + str(config) + config.describe()
    assert f"{name}=[hidden]" in repr(config)
    with pytest.raises(ConfigurationError) as caught:
        producer(**{name: b"hunter2"})
    assert "hunter2" not in str(caught.value)


def test_every_option_that_sounds_secret_is_declared_so() -> None:
    for config in CLIENTS.values():
        for option in config.fields():
            if option.name.endswith(("password", "secret", "passphrase", "_key")):
                assert option.secret, option.name


def test_the_config_is_frozen_equal_by_value_and_pickles() -> None:
    config = ProducerConfig.parse(AS_PASTED)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.linger_ms = 3  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.given == config.given


def test_repr_shows_what_was_set_and_describe_shows_all() -> None:
    config = producer(linger_ms=20, bootstrap_servers="a:1")
    assert repr(config) == "ProducerConfig(bootstrap_servers='a:1', linger_ms=20)"
    lines = config.describe().splitlines()
    assert len(lines) == len(config.fields())
    assert "linger.ms = 20" in lines
    assert "acks = -1  (default)" in lines


def test_constructing_directly_checks_the_same() -> None:
    assert ProducerConfig(linger_ms=20).given == {"linger_ms"}
    with pytest.raises(ConfigurationError, match="linger_ms"):
        ProducerConfig(linger_ms=-20)
    with pytest.raises(ConfigurationError, match="enable_idempotence"):
        ProducerConfig(transactional_id="mine", enable_idempotence=False)


# ── the declarations ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_option_is_fully_declared() -> None:
    for _, option in EVERY:
        assert option.importance in {"high", "medium", "low"}, option.name
        assert len(option.doc.split()) >= 3, option.name
        assert option.range, option.name


@pytest.mark.parametrize("config", CLIENTS.values(), ids=CLIENTS)
def test_the_annotation_is_the_type_of_the_values(config: type[Config]) -> None:
    hints = get_type_hints(config, localns={"wait_base": object})
    for option in config.fields():
        plain = {"int": int, "float": float, "bool": bool, "str": str}.get(option.kind.accepts)
        if plain is not None:
            assert hints[option.name] == (plain if option.default is not None else plain | None), option.name


def java_facts() -> list[list[str]]:
    return [line.split("\t") for line in (DATA / "java-4.3.1.txt").read_text().splitlines()[1:]]


OTHER_DEFAULTS = {  # name: why ours differs; each is stated in the option's doc
    "batch.size", "send.buffer.bytes", "receive.buffer.bytes", "ssl.truststore.type", "ssl.keystore.type",
    "enable.idempotence", "enable.metrics.push", "metric.reporters", "partition.assignment.strategy",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_defaults_are_those_of_kafka_4_save_the_documented_ones(client: str) -> None:
    theirs = {name: default for role, name, _, default, *_ in java_facts() if role == client and default != "(required)"}
    options = {option.dotted: option for option in CLIENTS[client].fields()}
    compared = (options.keys() & theirs.keys()) - OTHER_DEFAULTS
    assert len(compared) > 60
    for name in compared:
        default = None if theirs[name] == "null" else theirs[name].strip("[]")
        assert options[name].convert(None) == options[name].convert(default), name


def test_importance_is_that_of_kafka() -> None:
    theirs = {(name, importance.lower()) for _, name, *_, importance in java_facts()}  # the three clients differ in a few
    names = {name for name, _ in theirs}
    for _, option in EVERY:
        assert option.dotted not in names or (option.dotted, option.importance) in theirs, option.name


def test_since_is_the_first_kafka_release_with_the_name() -> None:
    first: dict[str, str] = {}
    for line in (DATA / "java.txt").read_text().splitlines()[1:]:
        _, name, release, _ = line.split()
        first[name] = min(first.get(name, release), release, key=lambda text: [int(part) for part in text.split(".")])
    for config in CLIENTS.values():
        for option in config.fields():
            assert (option.since == "pyclient") == (option.dotted not in first), option.name
            if option.dotted in first:
                assert option.since == ".".join(first[option.dotted].split(".")[:2]), option.name


@pytest.mark.parametrize(("option", "value"), [
    ("client_id", "\ud800"), ("client_id", "x" * 32_768), ("client_id", "é" * 16_384), ("group_id", "x" * 32_768),
    ("group_instance_id", "\udfff")])
def test_a_text_that_no_request_can_carry_is_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        ConsumerConfig.parse({"group_id": "g"} | {option: value})


def test_what_is_no_number_is_not_mistaken_for_two_values() -> None:
    with pytest.raises(ConfigurationError, match="linger_ms .* expected a whole number"):
        ProducerConfig.parse({"linger_ms": float("nan")})
