"""Values of options that stand elsewhere, and the properties files that they may stand in."""
from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from pyclient.config import AdminConfig, ConsumerConfig, ProducerConfig
from pyclient.config.properties import properties
from pyclient.config.providers import provided
from pyclient.errors import ConfigurationError, UnknownOptionError
from pyclient.testing import FakeCluster

PASSWORD = "marker-secret-of-a-provider"
LOGIN = {"sasl_plain_username": "ann", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
JAVA = "org.apache.kafka.common.config.provider."


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "kafka.properties").write_text(f"password={PASSWORD}\nlinger: 7\n")
    (tmp_path / "password").write_text(PASSWORD)
    return tmp_path


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_each_provider_gives_the_value_of_its_reference(config: type[Any], secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    for reference in (f"${{file:{secrets}/kafka.properties:password}}", f"${{directory:{secrets}:password}}", "${env:KAFKA_PASSWORD}"):
        parsed = config.parse({**LOGIN, "config.providers": "file,directory,env", "sasl_plain_password": reference})
        assert parsed.sasl_plain_password == PASSWORD
        assert PASSWORD not in repr(parsed) + parsed.describe()


@pytest.mark.parametrize(("kind", "twin"), [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)])
def test_every_client_finds_its_brokers_and_logs_in_with_values_of_providers(kind: type[Any], twin: type[Any], secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "user").write_text("ann")
    with FakeCluster(sasl={"ann": PASSWORD}) as cluster:
        monkeypatch.setenv("KAFKA_BROKERS", cluster.bootstrap_servers)
        options = {
            "config.providers": "file,directory,env", "bootstrap.servers": "${env:KAFKA_BROKERS}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.plain.username": f"${{directory:{secrets}:user}}", "sasl.plain.password": f"${{file:{secrets}/kafka.properties:password}}",
        }
        cluster.create_topic("orders")
        with kind(options) as client:
            assert topics_of(client)
        asyncio.run(opened(twin, options))


def topics_of(client: Any) -> Any:
    return client.partitions_for("orders") if hasattr(client, "partitions_for") else client.list_topics()


async def opened(kind: type[Any], options: dict[str, str]) -> None:
    async with kind(options) as client:
        assert await topics_of(client)


def test_values_of_every_kind_and_parts_of_texts_are_replaced(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "kafka-1")
    config = ProducerConfig.parse(
        {"bootstrap.servers": "${env:HOST}:9092,${env:HOST}0:9093", "linger.ms": f"${{file:{secrets}/kafka.properties:linger}}"},
        {"config_providers": ["env", "file"], "client_id": "app-${env:HOST}"})
    assert ([(each.host, each.port) for each in config.bootstrap_servers], config.linger_ms, config.client_id) == (
        [("kafka-1", 9092), ("kafka-10", 9093)], 7, "app-kafka-1")
    assert "client_id='app-kafka-1'" in repr(config)


def test_javas_classes_name_providers_and_parameters_limit_them(secrets: Path) -> None:
    settings = {**LOGIN, "config.providers": "vault", "config.providers.vault.class": f"{JAVA}FileConfigProvider",
                "sasl_plain_password": f"${{vault:{secrets}/kafka.properties:password}}"}
    assert ProducerConfig.parse({**settings, "config.providers.vault.param.allowed.paths": f"/nowhere,{secrets}"}).sasl_plain_password == PASSWORD
    with pytest.raises(ConfigurationError, match="param.allowed.paths of its provider does not allow"):
        ProducerConfig.parse({**settings, "config.providers.vault.param.allowed.paths": str(secrets / "other")})


@pytest.mark.parametrize("way", ["..", "link"])
def test_no_way_leads_out_of_the_allowed_paths(secrets: Path, way: str) -> None:
    (secrets / "open").mkdir()
    (secrets / "open" / "link").symlink_to(secrets)
    with pytest.raises(ConfigurationError, match="does not allow"):
        provided({"config.providers": "file", "config.providers.file.param.allowed.paths": str(secrets / "open"),
                  "sasl_plain_password": f"${{file:{secrets}/open/{way}/kafka.properties:password}}"})
    with pytest.raises(ConfigurationError, match="not the name of a file"):
        provided({"config.providers": "directory", "sasl_plain_password": f"${{directory:{secrets}/open:../password}}"})


def test_the_environment_is_limited_by_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOST", "a")
    limited = {"config.providers": "env", "config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    assert provided({**limited, "client.id": "${env:KAFKA_HOST}"})[0]["client.id"] == "a"
    with pytest.raises(ConfigurationError, match="does not allow 'PATH'"):
        provided({**limited, "client.id": "${env:PATH}"})


@pytest.mark.parametrize(("settings", "says"), [
    ({"sasl_plain_password": "${file:/no/such/file:x}"}, r"sasl_plain_password = \$\{file:/no/such/file:x\}: /no/such/file cannot be read: No such file"),
    ({"sasl_plain_password": "${file:HERE/kafka.properties:x}"}, "has no key 'x'"),
    ({"client.id": "${env:PYCLIENT_NO_SUCH}"}, "the environment variable 'PYCLIENT_NO_SUCH' is not set"),
    ({"config.providers.env.class": "com.example.Vault"}, "names 'com.example.Vault': there are the providers file, directory, env"),
    ({"config.providers.env.param.x": "1"}, r"the provider env takes config\.providers\.env\.param\.allowlist\.pattern"),
    ({"config.providers.env.param.allowlist.pattern": "("}, "is no regular expression"),
])
def test_what_a_provider_does_not_have_is_named(secrets: Path, settings: dict[str, str], says: str) -> None:
    here = {key: value.replace("HERE", str(secrets)) for key, value in settings.items()}
    with pytest.raises(ConfigurationError, match=says):
        ConsumerConfig.parse({"config.providers": "env,file", **here})


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="it is not UTF-8"):
        provided({"config_providers": "directory", "sasl_plain_password": f"${{directory:{tmp_path}:key}}"})


def test_without_providers_and_of_other_providers_the_text_stays() -> None:
    assert ProducerConfig.parse({"client.id": "${env:HOME}"}).client_id == "${env:HOME}"
    assert ProducerConfig.parse({"client.id": "${vault:a:b}", "config.providers": "env"}).client_id == "${vault:a:b}"
    with pytest.raises(UnknownOptionError):
        ProducerConfig.parse({"config.providers.env.class": "env"})


def test_a_value_is_not_searched_for_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNER", "x")
    monkeypatch.setenv("OUTER", "${env:INNER}")
    assert ProducerConfig.parse({"config.providers": "env", "client.id": "${env:OUTER}"}).client_id == "${env:INNER}"


def test_no_report_of_variables_shows_a_value(secrets: Path) -> None:
    try:
        ProducerConfig.parse({**LOGIN, "config.providers": "file", "sasl_plain_password": f"${{file:{secrets}/kafka.properties:password}}",
                              "ssl.key.password": f"${{file:{secrets}/kafka.properties:missing}}"})
    except ConfigurationError as error:
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert PASSWORD not in "".join(report.format())
    else:
        pytest.fail("a missing key was accepted")


def test_a_value_that_an_option_refuses_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_TEST", PASSWORD)
    for option in ("request_timeout_ms", "security_protocol", "bootstrap_servers"):
        with pytest.raises(ConfigurationError, match=rf"^{option} .* = \[hidden\], from a config provider") as caught:
            ProducerConfig.parse({"config.providers": "env", option: "${env:PYCLIENT_TEST}"})
        assert PASSWORD not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("path", ["a\0b", "HERE/circle/x"])
def test_what_is_no_path_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    given = path.replace("HERE", str(tmp_path))
    for settings in ({"client.id": f"${{file:{given}:k}}"}, {"client.id": "${file:/x:k}", "config.providers.file.param.allowed.paths": given}):
        with pytest.raises(ConfigurationError, match="is no path of a file"):
            provided({"config.providers": "file", **settings})


@pytest.mark.parametrize("key", ["", ".", ".."])
def test_a_directory_has_values_in_files_alone(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a file"):
        provided({"config.providers": "directory", "client.id": f"${{directory:{tmp_path}:{key}}}"})


def test_a_keyword_wins_over_the_mapping_for_providers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_TEST", "x")
    assert ProducerConfig.parse({"config.providers": "env", "client.id": "${env:PYCLIENT_TEST}"}, {"config_providers": ""}).client_id == "${env:PYCLIENT_TEST}"


def test_a_malformed_escape_is_refused_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(f"a={PASSWORD}\\u12\n")
    with pytest.raises(ConfigurationError, match=r"is no file of properties: malformed \\uxxxx") as caught:
        provided({"config.providers": "file", "client.id": f"${{file:{tmp_path}/f:a}}"})
    assert PASSWORD not in "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())


# ---- properties files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "read"), [
    ("a=1\nb:2\nc 3\nd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    ("# no\n! no\n  # no\n\n a = b # yes", {"a": "b # yes"}),
    ("fruits  apple, \\\n    pear, \\\r\n  plum", {"fruits": "apple, pear, plum"}),
    ("cheeses", {"cheeses": ""}),
    (r"a\:b\=c\ d=e\:f", {"a:b=c d": "e:f"}),
    (r"path=C:\\dir\tx\z", {"path": "C:\\dir\txz"}),
    (r"u=\u00e9\u20ac", {"u": "é€"}),
    (r"halves=\ud83d\ude00", {"halves": "😀"}),
    (r"a=\\u12", {"a": r"\u12"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\", {"a": "b"}),
    ("=v", {"": "v"}),
    ("a==b", {"a": "=b"}),
])
def test_properties_are_read_as_java_reads_them(text: str, read: dict[str, str]) -> None:
    assert properties(text) == read


def _stored(text: str, *, is_key: bool) -> str:
    """As ``java.util.Properties.store`` writes it."""
    special = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
    written = "".join(special.get(each, each) for each in text)
    leading = len(written) - len(written.lstrip(" "))
    return written.replace(" ", "\\ ") if is_key else "\\ " * min(leading, 1) + written[min(leading, 1):]


@given(st.dictionaries(st.text("ab \\=:#!\t\n\r\fé€", min_size=1), st.text("ab \\=:#!\t\n\r\fé€")))
def test_what_java_stores_is_read_back(values: dict[str, Any]) -> None:
    text = "\n".join(f"{_stored(key, is_key=True)}={_stored(value, is_key=False)}" for key, value in values.items())
    assert properties(text) == values
