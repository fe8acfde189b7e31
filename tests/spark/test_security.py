"""Spark on brokers that want TLS and a login: every way in and out, and no secret in anything that Spark shows or
keeps."""
from __future__ import annotations

import functools
import re
import ssl
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from pyclient.config import ConsumerConfig
from pyclient.errors import ConfigurationError, KafkaError
from pyclient.foreign_options import names_of
from pyclient.integration.spark import KafkaSink, producers, register, shared_producer
from pyclient.integration.spark.datasource import PyclientDataSource
from pyclient.integration.spark.options import HIDDEN_IN_PLANS, SinkOptions, SourceOptions
from pyclient.testing import LocalCluster, Security
from tests.secrets import MARKER
from tests.spark.conftest import TOKENS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 180
PASSWORD = f'it\'s "so" \\ {MARKER}'
SECURITY = Security(users={"alice": PASSWORD, "bob": f"bob's {MARKER}"})
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"
IN_JAAS = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')

Options = dict[str, str]
secured = pytest.mark.kafka(security=SECURITY)


def by_jaas(cluster: LocalCluster, _: Any) -> Options:
    """As for Spark's own connector."""
    return {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM_JAAS} username="alice" password="{IN_JAAS}";',
            "kafka.ssl.truststore.location": cluster.credentials.ca.path}


def by_librdkafka(cluster: LocalCluster, _: Any) -> Options:
    """As pasted from a program with confluent-kafka."""
    return {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanisms": "PLAIN", "kafka.sasl.username": "alice",
            "kafka.sasl.password": PASSWORD, "kafka.ssl.ca.pem": cluster.credentials.ca.text}


def by_token_endpoint(cluster: LocalCluster, _: Any) -> Options:
    """Tasks fetch tokens themselves."""
    return {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": cluster.credentials.tokens.token_endpoint_url,
            "kafka.sasl.oauthbearer.client.credentials.client.id": "alice",
            "kafka.sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
            "kafka.ssl.truststore.location": cluster.credentials.ca.path}


def by_token_function(cluster: LocalCluster, function: Callable[[str], str]) -> Options:
    """A function by its name, in a module that is installed everywhere."""
    return {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.token.provider": function(cluster.credentials.users["alice"].token()),
            "kafka.ssl.truststore.location": cluster.credentials.ca.path}


def by_certificate(cluster: LocalCluster, _: Any) -> Options:
    """Mutual TLS, with an encrypted key."""
    tls = cluster.credentials.users["alice"].tls
    return {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": cluster.credentials.ca.path,
            "kafka.ssl.keystore.certificate.chain": tls.certificate.text, "kafka.ssl.keystore.key": tls.encrypted_key.text,
            "kafka.ssl.key.password": tls.key_password}


WAYS = [by_jaas, by_librdkafka, by_token_endpoint, by_token_function, by_certificate]
STREAMED = [by_jaas, by_token_function]
"""The ways by which streams go too: they take options as batches do, and seconds each."""


@pytest.fixture
def function(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """``function(token)``: the name of a function that gives it, in all processes of Spark."""
    def made(token: str) -> str:
        (tmp_path / "token").write_text(token)
        (modules / f"{TOKENS}.py").write_text(f"def kafka():\n    return open({str(tmp_path / 'token')!r}).read()\n")
        return f"{TOKENS}:kafka"

    monkeypatch.setenv("PYCLIENT_ALLOW_IMPORTS", TOKENS)  # for sinks, which this process makes
    return made


class Shown:
    """Everything that was seen, to be searched for what may stand nowhere."""

    def __init__(self, options: Options) -> None:
        self._secrets = [MARKER, *(value for name, value in options.items() if re.search("password|jaas|secret|[.]key$|pem|certificate", name))]
        self._texts: dict[str, str] = {}

    def add(self, what: str, *texts: object) -> None:
        """Search these later; *what* names them."""
        self._texts[what] = self._texts.get(what, "") + "\n".join(map(str, texts))

    def hold_no_secret(self) -> bool:
        """Fails with the name of what holds one."""
        assert all(self._texts.values()), [what for what, text in self._texts.items() if not text]
        bad = [what for what, text in self._texts.items() for secret in self._secrets if secret in text]
        assert not bad
        return True


def plans(frame: DataFrame) -> Iterator[str]:
    """Everything Spark explains about its plan."""
    execution = frame._jdf.queryExecution()
    yield execution.toString()
    for mode in ("simple", "extended", "cost", "formatted"):
        yield frame._sc._jvm.PythonSQLUtils.explainString(execution, mode)  # type: ignore[union-attr]
    for plan in (execution.logical(), execution.analyzed(), execution.optimizedPlan(), execution.executedPlan()):
        yield from (plan.toString(), plan.toJSON(), plan.treeString())


def executions(spark: SparkSession) -> str:
    """What Spark's UI and event logs would show of all that was executed, writing too."""
    store = spark._jsparkSession.sharedState().statusStore()
    listed = store.executionsList()
    each = (listed.apply(number) for number in range(listed.size()))
    return "\n".join(f"{one.description()} {one.details()} {one.physicalPlanDescription()} {one.modifiedConfigs().toString()} {one.errorMessage().toString()}" for one in each)


def files(folder: Path) -> str:
    """All that a checkpoint holds."""
    return "\n".join(f"{path.name} {path.read_bytes()!r}" for path in sorted(folder.rglob("*")) if path.is_file())


def progress_of(query: Any) -> list[object]:
    """What a streaming query reports about itself, its source and its sink."""
    return [query, query.status, query.explain, query._jsq.explainInternal(True), *(progress.json for progress in query.recentProgress)]


@secured
@pytest.mark.filterwarnings("ignore::pyclient.foreign_options.OptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_all_that_spark_reads_and_writes_goes_by_a_login_and_shows_no_secret(
    spark: SparkSession, kafka_cluster: LocalCluster, topic: str, function: Callable[[str], str], way: Callable[..., Options], tmp_path: Path,
) -> None:
    listener = "MTLS" if way is by_certificate else "SASL_SSL"
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap(listener), **way(kafka_cluster, function)}
    shown = Shown(options)

    def rows(source: str) -> list[str]:
        frame = spark.read.format("pyclient").options(**options).option("subscribe", source).load()
        shown.add("the plan of a batch", *plans(frame), repr(frame), frame)
        return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())

    def stream(source: str) -> DataFrame:
        frame = spark.readStream.format("pyclient").options(**options).options(subscribe=source, startingOffsets="earliest").load()
        shown.add("the plan of a stream", frame._jdf.queryExecution().toString(), frame)
        return frame.select("value")

    def ended(writer: Any) -> None:
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(LIMIT_S)
        shown.add("a query", *progress_of(query))

    spark.sql("SELECT 'a' AS value UNION ALL SELECT 'b'").write.format("pyclient").options(**options).option("topic", topic).mode("append").save()
    assert rows(topic) == ["a", "b"]
    sink = KafkaSink(f"{topic}-by-sink", {name.removeprefix("kafka."): value for name, value in options.items()})
    frame = stream(topic)
    if way in STREAMED:
        by_format = frame.writeStream.format("pyclient").options(**options).option("topic", f"{topic}-by-format")
        ended(by_format.option("checkpointLocation", str(tmp_path / "format")))
        assert rows(f"{topic}-by-format") == ["a", "b"]
        ended(frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "sink")))
        assert rows(f"{topic}-by-sink") == ["a", "b"]
        shown.add("checkpoints", files(tmp_path / "format"), files(tmp_path / "sink"))

    shown.add("executions", executions(spark))
    shown.add("objects", *objects(options, sink))
    assert shown.hold_no_secret()


def objects(options: Options, sink: KafkaSink) -> Iterator[str]:
    """Our own objects, as errors and debuggers show them."""
    source, sinks = SourceOptions.parse({**options, "subscribe": "t"}), SinkOptions.parse(options)
    made = PyclientDataSource({**options, "subscribe": "t"})
    schema = made.schema()
    yield from map(repr, (source, sinks, made, sink, sink._options, made.reader(schema), made.streamReader(schema)))
    yield from map(str, (source.for_batch(), source.for_stream(), producers._kept))


def test_no_option_with_a_secret_stands_in_a_plan_under_any_of_its_names(spark: SparkSession) -> None:
    """Spark hides what it takes for a secret by its name; `register` adds the names that it does not know."""
    secrets = {option.name for option in ConsumerConfig.fields() if option.secret and option.name != "sasl_token_provider"}
    given = {f"kafka.{spelled}": f"socks5://a:{MARKER}@proxy:1" if secret == "proxy_url" else MARKER for secret in secrets for name in names_of(secret) - {"sasl_jaas_config"}
             for spelled in (name, name.replace("_", "."))}
    assert {"kafka.ssl.keystore.key", "kafka.ssl_key_pem", "kafka.sasl.plain.password"} <= set(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = spark.readStream.format("pyclient").options(**given, **{"kafka.bootstrap.servers": "localhost:9092"}).option("subscribe", "t").load()
    assert MARKER not in frame._jdf.queryExecution().toString()
    listed = ", ".join(f"'{name}' '{value}'" for name, value in given.items())
    command = spark.sql(f"CREATE TEMPORARY VIEW secured USING pyclient OPTIONS ('kafka.bootstrap.servers' 'localhost:9092', 'subscribe' 't', {listed})")
    assert MARKER not in "\n".join(plans(command)) + executions(spark)
    register(spark)  # again, which adds nothing
    assert spark.conf.get("spark.sql.redaction.options.regex") == f"(?i)url|{HIDDEN_IN_PLANS}"


# ---- what is refused ------------------------------------------------------------------------------------------------


def scram(cluster: LocalCluster, password: str) -> Options:
    return {"kafka.bootstrap.servers": cluster.bootstrap("SASL_SSL"), "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.plain.username": "alice", "kafka.sasl.plain.password": password,
            "kafka.ssl.truststore.location": cluster.credentials.ca.path}


@secured
@pytest.mark.parametrize("action", ["read", "write", "stream", "sink"])
def test_a_wrong_password_fails_a_job_at_once_and_is_not_shown(
    spark: SparkSession, kafka_cluster: LocalCluster, topic: str, action: str, tmp_path: Path,
) -> None:
    options = scram(kafka_cluster, f"wrong {MARKER}")

    def run() -> None:
        frame = spark.sql("SELECT 'a' AS value")
        if action == "read":
            spark.read.format("pyclient").options(**options).option("subscribe", topic).load().collect()
        elif action == "write":
            frame.write.format("pyclient").options(**options).option("topic", topic).mode("append").save()
        elif action == "sink":
            KafkaSink(topic, {name.removeprefix("kafka."): value for name, value in options.items()})(frame, 0)
        else:
            started = spark.readStream.format("pyclient").options(**options).option("subscribe", topic).load()
            query = started.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
            query.awaitTermination(LIMIT_S)

    with pytest.raises(Exception, match=r"SaslAuthenticationError: (?!row).*refused the login by SCRAM-SHA-512") as caught:
        run()
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + executions(spark) + files(tmp_path)
    assert MARKER not in text


def test_an_ssl_context_does_not_travel_and_is_refused_with_the_way_out() -> None:
    context = ssl.create_default_context()
    given: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "security_protocol": "SSL", "ssl_context": context}
    with pytest.raises(ConfigurationError, match=r"ssl_context is an object \(SSLContext\).*cannot be pickled: name files.*ssl_truststore_location") as caught:
        KafkaSink("t", **given)
    assert caught.value.option == "ssl_context"
    with pytest.raises(ConfigurationError, match="ssl_context"), shared_producer(**given):
        pass
    for parse in (SinkOptions.parse, SourceOptions.parse):
        for name in ("kafka.ssl.context", "kafka.ssl_context"):
            with pytest.raises(ConfigurationError, match=r"kafka\.ssl\.context cannot be set here: .*kafka\.ssl\.truststore\.location"):
                parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", name: str(context)} if parse == SourceOptions.parse
                      else {"kafka.bootstrap.servers": "localhost:9092", name: str(context)})


class Holder:
    """A token provider that holds what cannot be sent, and a secret."""

    def __init__(self) -> None:
        self.lock = ssl.create_default_context()

    def __repr__(self) -> str:
        return MARKER

    def __call__(self) -> str:
        return MARKER


def test_a_function_that_cannot_be_sent_is_named_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl_token_provider is an object \(Holder\).*'package\.module:function'") as caught:
        KafkaSink("t", bootstrap_servers="localhost:9092", sasl_token_provider=Holder())
    assert MARKER not in "".join(traceback.format_exception(caught.value))


def test_a_function_of_the_program_itself_travels_with_a_sink() -> None:
    token = "abc"
    sink = KafkaSink("t", bootstrap_servers="localhost:9092", sasl_token_provider=lambda: token)
    assert cloudpickle.loads(cloudpickle.dumps(sink))._options.client["sasl_token_provider"]() == "abc"  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("given", [lambda: "abc", len, functools.partial(max, "abc"), Holder().__call__, Holder], ids=["lambda", "builtin", "partial", "method", "class"])
@pytest.mark.parametrize("name", ["kafka.sasl.token.provider", "kafka.sasl_token_provider"])
def test_a_function_among_texts_is_refused_with_the_way_out(given: object, name: str) -> None:
    text = object.__repr__(given) if isinstance(given, Holder) else str(given)
    with pytest.raises(ConfigurationError, match=r"was an object, of which Spark passes on the text only: .*'package\.module:function'") as caught:
        SinkOptions.parse({"kafka.bootstrap.servers": "localhost:9092", name: text})
    assert isinstance(caught.value, KafkaError)


def test_librdkafkas_callback_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.oauth\.cb cannot be set here: give kafka\.sasl\.token\.provider="):
        SinkOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "kafka.oauth_cb": "f"})
