"""No dump of options, or of a client that has them, shows a secret: reprs, dicts, exceptions, metrics, all that can be
reached."""
from __future__ import annotations

import gc
import json
import pickle
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.config import AdminConfig, ConsumerConfig, ProducerConfig
from pyclient.config.declaration import Config
from pyclient.errors import ConfigurationError, KafkaError
from pyclient.redaction import Secret
from pyclient.testing import FakeCluster
from tests.secrets import MARKER, assert_no_local_shows, shown_in

CONFIGS: list[type[Config]] = [ProducerConfig, ConsumerConfig, AdminConfig]
PASSWORD = f"anna's {MARKER}"
BY_PASSWORD = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "anna", "sasl_plain_password": PASSWORD}


def with_all_secrets(config: type[Config]) -> Config:
    given = {option.name: MARKER for option in config.fields() if option.secret and option.name != "sasl_token_provider"}
    assert len(given) >= 9
    return config.parse({**given, "proxy_url": f"socks5://anna:{MARKER}@proxy:1080"})


@pytest.mark.parametrize("config", CONFIGS)
def test_no_way_to_show_a_config_shows_a_secret(config: type[Config]) -> None:
    made = with_all_secrets(config)
    copied = pickle.loads(pickle.dumps(made))
    assert copied == made
    values = {option.name: value for option, value in made}
    for shown in (repr(made), str(made), f"{made}", made.describe(), repr(copied), copied.describe(), repr(list(made)), repr(values),
                  repr(attrs.asdict(made, recurse=False)), repr(attrs.astuple(made, recurse=False)), repr(attrs.evolve(made)),
                  shown_of(KafkaError(made)), shown_of(ConfigurationError("x", option=repr(made))), shown_of(ValueError(made, values))):  # type: ignore[arg-type]
        assert shown_in(shown) is None


def shown_of(error: BaseException) -> str:
    return repr(error) + str(error) + "".join(traceback.format_exception(error)) + repr(vars(error))


def test_a_secret_is_a_text_like_any_other_but_for_its_repr() -> None:
    secret = Secret(MARKER)
    assert (secret, str(secret), f"{secret}", secret.encode(), hash(secret)) == (MARKER, MARKER, MARKER, MARKER.encode(), hash(MARKER))
    assert json.loads(json.dumps({"a": secret})) == {"a": MARKER}
    assert type(pickle.loads(pickle.dumps(secret))) is Secret
    assert repr(secret) == repr({secret})[1:-1] == "[hidden]"


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("value", [5, b"marker-secret", ["marker-secret"], object()], ids=lambda value: type(value).__name__)
def test_a_secret_of_a_wrong_type_is_not_shown(config: type[Config], value: object) -> None:
    for option in config.fields():
        if option.secret:
            with pytest.raises(ConfigurationError, match=r"\[hidden\]") as caught:
                config.parse({option.name: value})
            assert shown_in(shown_of(caught.value)) is None


@pytest.mark.parametrize("config", CONFIGS)
def test_no_law_between_options_is_about_a_secret(config: type[Config]) -> None:
    """The error of a broken law shows the values."""
    secrets = {option.name for option in config.fields() if option.secret}
    assert not secrets & {name for rule in config._rows("RULES") for name in rule.options}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_nothing_that_can_be_reached_from_a_client_shows_a_secret(kind: type[Any], mechanism: str) -> None:
    with FakeCluster(sasl={"anna": PASSWORD}) as fake:
        fake.create_topic("orders")
        with kind({"sasl.mechanism": mechanism}, bootstrap_servers=fake.bootstrap_servers, **BY_PASSWORD) as client:
            if kind is Producer:
                client.send("orders", b"1").result(10)
            elif kind is Consumer:
                client.beginning_offsets([TopicPartition("orders", 0)])  # waits until the login has ended
            else:
                assert "orders" in client.list_topics()
            shown = [type(each).__name__ for each in reachable(client) if shown_in(repr(each))]
            assert not shown
            assert shown_in(repr(client.metrics() if hasattr(client, "metrics") else "")) is None


SECRETS = [each.name for each in ProducerConfig.fields() if each.secret] + [
    "ssl.keystore.key", "sasl.password", "ssl_password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl_plain_pasword", "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.pem", "sasl.jaas.config"]
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="anna" password="{MARKER}";'
WRONG: list[dict[str, Any]] = [
    {"no_such_option": 1}, {"request_timeout_ms": -5}, {"bootstrap_servers": "nowhere"}, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "NOPE"},
    {"ssl_keystore_location": "/no/such/file", "security_protocol": "SSL"}, {"client_id": 5, "metadata_max_age_ms": "soon"}, {"security_protocol": "SASL_SSL"},
]


@pytest.mark.parametrize("wrong", range(len(WRONG)))
@pytest.mark.parametrize("kind", [Producer, Consumer, Admin, AsyncProducer, AsyncConsumer, AsyncAdmin])
@pytest.mark.filterwarnings("ignore::pyclient.foreign_options.OptionWarning")
def test_no_local_variable_of_a_failed_constructor_shows_a_secret(kind: type[Any], wrong: int) -> None:
    """Tools that report errors have the variables of each frame. Each has a repr, that of a half-made config too."""
    for name in SECRETS:
        given = {name: JAAS if "jaas" in name else MARKER, **WRONG[wrong]}
        for config, options in ((given, {}), ({}, given)):
            with pytest.raises(ConfigurationError) as caught:
                kind(config, **options)
            assert_no_local_shows(caught.value, MARKER, "repr raised")


URL = "sasl_oauthbearer_token_endpoint_url"


@pytest.mark.parametrize(("given", "shown"), [
    (f"https://a/token?key={MARKER}", "https://a/token?[hidden]"), (f"https://a:{MARKER}@a/token", "https://[hidden]@a/token"),
    (f"https://a@{MARKER}:{MARKER}@a?{MARKER}@{MARKER}", "https://[hidden]@a?[hidden]"), ("https://a/token", "https://a/token"),
], ids=["query", "password", "both", "neither"])
@pytest.mark.parametrize("config", CONFIGS)
def test_a_URL_is_shown_without_user_and_query(config: type[Config], given: str, shown: str) -> None:
    made = config.parse({URL: given})
    assert getattr(made, URL) == given
    assert f"'{shown}'" in repr(made)
    assert f"'{shown}'" in made.describe()
    assert shown_in(repr(attrs.asdict(made, recurse=False))) is None


@pytest.mark.parametrize("given", [
    f"ftp://a?key={MARKER}", f"https://a:{MARKER}@a", f"https://a b?{MARKER}", f"https://[?{MARKER}", f"https://{MARKER}@a:b?{MARKER}", f"https:///a?{MARKER}"], ids=range(6))
def test_no_local_variable_shows_a_URL_that_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Producer(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=given,
                 bootstrap_servers="127.0.0.1:1", sasl_oauthbearer_client_credentials_client_id="a", sasl_oauthbearer_client_credentials_client_secret=MARKER)
    assert_no_local_shows(caught.value, MARKER)
    assert shown_in(shown_of(caught.value)) is None


def test_a_half_made_config_has_a_repr() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ProducerConfig(linger_ms=-1)
    assert_no_local_shows(caught.value, "repr raised")


def reachable(root: object) -> Iterator[object]:
    """Objects of ours that a client holds, over any way; not what belongs to all the process."""
    seen = {id(root)}
    waiting = [root]
    while waiting:
        each = waiting.pop()
        yield each
        for found in gc.get_referents(each):
            if id(found) not in seen and not isinstance(found, (type, types.ModuleType, types.FunctionType, types.FrameType, types.CodeType, str, bytes)):
                seen.add(id(found))
                waiting.append(found)


KEY = "-----BEGIN PRIVATE KEY-----\nmarker\n-----END PRIVATE KEY-----\n"
PATHS = [option.name for option in ProducerConfig.fields() if option.range == "a path"]


def test_what_names_a_file_is_known() -> None:
    assert len(PATHS) == 8
    assert {option.name for option in ProducerConfig.fields() if option.name.startswith("ssl_") and option.name.endswith("_location")} <= {*PATHS}


@pytest.mark.parametrize("option", PATHS)
def test_a_key_that_is_given_where_a_path_belongs_is_not_shown(option: str) -> None:
    with pytest.raises(ConfigurationError, match="PEM text itself") as caught:
        ProducerConfig.parse({option: KEY})
    assert caught.value.option == option
    assert "marker" not in shown_of(caught.value)
    assert "ssl_keystore_key" in str(caught.value)


def test_a_key_is_shown_nowhere_whatever_it_was_given_for() -> None:
    made = ProducerConfig.parse({"sasl_oauthbearer_scope": KEY, "client_id": KEY})
    assert "marker" not in repr(made) + made.describe()


@pytest.mark.parametrize("option", PATHS)
def test_a_path_may_be_an_object(option: str) -> None:
    assert getattr(ProducerConfig.parse({option: Path("a folder", "a file")}), option) == str(Path("a folder", "a file"))
    for wrong in ("", "a\0b", b"a", 5, object()):
        with pytest.raises(ConfigurationError, match="expected a path") as caught:
            ProducerConfig.parse({option: wrong})
        assert caught.value.option == option
