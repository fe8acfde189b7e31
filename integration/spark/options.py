"""Spark's option names and what they ask of us: checked, typed, or refused with the way out. Independent of brokers.

Names arrive in lower case; messages show them as Spark's documentation writes them. Nothing is ignored in silence:
what Spark's own source accepts and means nothing here is logged, once in a process. The clients' options are loaded
where they are checked: a process that reads declares none of the producer.
"""
from __future__ import annotations

import difflib
import functools
import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

from pyclient.errors import ConfigurationError, UnknownOptionError
from pyclient.foreign_options import names_of
from pyclient.integration.spark.offsets import EARLIEST, LATEST, Offsets, parse_offsets, parse_partitions
from pyclient.records import TopicPartition

if TYPE_CHECKING:
    HIDDEN_IN_PLANS: str
    """What Spark's plans must not show; made when first used, from the options of all clients."""

log = logging.getLogger(__name__)
T = TypeVar("T")

FETCH_WAIT_MS: Final = "20"
"""A kept consumer that has read a partition to its end asks for more; the next task's request waits behind that."""
DEFAULTS: Final = {"auto.offset.reset": "none", "allow.auto.create.topics": "false", "max.poll.records": "50000", "fetch.max.wait.ms": FETCH_WAIT_MS}
CLIENT: Final = "kafka."
SERVERS: Final = "kafka.bootstrap.servers"

NAMED: Final = (
    "give kafka.sasl.token.provider='package.module:function', which every task can import and whose module PYCLIENT_ALLOW_IMPORTS names in the "
    "driver's environment, or the options of a token endpoint (kafka.sasl.oauthbearer.token.endpoint.url …)"
)
FILES: Final = (
    "an ssl.SSLContext does not travel to tasks; name files that are on every machine (kafka.ssl.truststore.location, "
    "kafka.ssl.keystore.location), or give PEM texts (kafka.ssl.truststore.certificates …)"
)
_OBJECT: Final = re.compile(r"(functools\.partial\()?<(.* at 0x[0-9a-f]+|class '.*'|(built-in|bound) .*)>.*", re.DOTALL)
"""How objects look that were given where Spark takes texts."""
_NO_GROUP: Final = "this source keeps positions in Spark's checkpoint and joins no consumer group"
_BYTES: Final = "keys and values are columns of bytes: decode them with Spark's functions, such as CAST(value AS STRING)"
_WHOLE: Final = "give the columns key and value as strings or bytes, made with Spark's functions"

REFUSED_BY_SOURCE: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": "startingOffsets says where a new query begins; later its checkpoint does",
    "kafka.enable.auto.commit": f"{_NO_GROUP}: leave it out",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.interceptor.classes": "change records with Spark's functions",
    "kafka.ssl.context": FILES,
    "kafka.oauth.cb": NAMED,
}
IGNORED_BY_SOURCE: Final[Mapping[str, str]] = {
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchOffset.numRetries": "look-ups are repeated for kafka.default.api.timeout.ms",
    "fetchOffset.retryIntervalMs": "the pause before a look-up is repeated is kafka.retry.backoff.ms",
}
"""What Spark's own source accepts and this one needs not, with the reason or what to set instead."""
REFUSED_BY_SINK: Final[Mapping[str, str]] = {
    "kafka.key.serializer": _WHOLE,
    "kafka.value.serializer": _WHOLE,
    "kafka.interceptor.classes": "change records with Spark's functions",
    "kafka.ssl.context": FILES,
    "kafka.oauth.cb": NAMED,
    "kafka.transactional.id": "this format delivers at least once: for exactly-once give KafkaSink(delivery='exactly-once') to foreachBatch",
}
SOURCE_NAMES: Final = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "kafkaConsumer.pollTimeoutMs",
)
SINK_NAMES: Final = ("topic", "includeHeaders")
SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself puts among a sink's."""
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""A batch ignores them, as Spark's own source does."""
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def __getattr__(name: str) -> Any:
    if name != "HIDDEN_IN_PLANS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _hidden_in_plans()
    return value


def _hidden_in_plans() -> str:
    """Every name of an option that holds a secret, as a regular expression of Java's."""
    from pyclient.config import ConsumerConfig, ProducerConfig

    secrets = {option.name for option in (*ConsumerConfig.fields(), *ProducerConfig.fields()) if option.secret}
    names = {name for secret in secrets for name in names_of(secret)}
    listed = "|".join(name.replace("_", "[._]") for name in sorted(names))
    return f"(?i)kafka[.]({listed})"


@attrs.frozen
class Bound:
    """Where reading begins or ends: offsets by partition, a time, or otherwise the start or end of the log."""

    otherwise: int
    offsets: Offsets | None = None
    times: Offsets | None = None
    time: int | None = None
    """One time for all partitions, in ms since the epoch."""

    @property
    def moves(self) -> bool:
        """Whether it depends on when it is looked up: the end of a log does."""
        named = LATEST in (self.offsets or {}).values()
        return named or (self.offsets is None and self.otherwise == LATEST)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """What a reading query asked for."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    starting: Bound | None = None
    ending: Bound | None = None
    late_start_is_latest: bool = False
    """What a start by time means where no record is that late: the end, or an error."""
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    """A batch waits until so many new offsets are there, for at most *max_delay*."""
    max_delay: float = 900.0
    """In seconds."""
    min_partitions: int | None = None
    max_records: int | None = None
    include_headers: bool = False
    poll_timeout: float = 120.0
    client: Mapping[str, Any] = attrs.field(repr=False)
    """Checked where the query begins, so clients get them as keywords: tasks need not allow imports again."""
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check everything that holds for batches and streams alike.

        Raises:
            ConfigurationError: an option is unknown, malformed, refused, or contradicts another one.
        """
        from pyclient.config import ConsumerConfig

        given = _Given(options, SOURCE_NAMES, REFUSED_BY_SOURCE, IGNORED_BY_SOURCE)
        parsed = cls(
            **_subscription(given),
            starting=_bound(given, "starting", EARLIEST),
            ending=_bound(given, "ending", LATEST),
            late_start_is_latest=given.word("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest",
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            max_offsets=given.count("maxOffsetsPerTrigger"),
            min_offsets=given.count("minOffsetsPerTrigger"),
            max_delay=given.duration("maxTriggerDelay", default=900.0),
            min_partitions=given.count("minPartitions"),
            max_records=given.count("maxRecordsPerPartition"),
            include_headers=given.truth("includeHeaders", default=False),
            poll_timeout=(given.count("kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
            client=with_defaults(given.client(), DEFAULTS),
            given=given.names,
        )
        ConsumerConfig.parse(parsed.client)
        return parsed

    def for_batch(self) -> Self:
        """The same for one batch: from the earliest offset to the latest unless said otherwise."""
        for name in STREAM_ONLY:
            if name in self.given:
                _warn_ignored(name, "it is for streams; a batch reads up to endingOffsets in parts of maxRecordsPerPartition")
        starting, ending = self.starting or Bound(EARLIEST), self.ending or Bound(LATEST)
        if starting.moves:
            raise ConfigurationError("startingOffsets of a batch cannot be latest (-1): it would read nothing", option="startingOffsets")
        if ending.otherwise == EARLIEST or EARLIEST in (ending.offsets or {}).values():
            raise ConfigurationError("endingOffsets cannot be earliest (-2): it would read nothing", option="endingOffsets")
        return attrs.evolve(self, starting=starting, ending=ending)

    def for_stream(self) -> Self:
        """The same for a stream: a new query begins at the latest offset unless said otherwise."""
        for name in BATCH_ONLY:
            if name in self.given:
                raise ConfigurationError(
                    f"{name} is for batches, a stream has no end: leave it out, or use spark.read or trigger(availableNow=True)",
                    option=name)
        self._check_batch_size()
        return attrs.evolve(self, starting=self.starting or Bound(LATEST), ending=None)

    def _check_batch_size(self) -> None:
        if self.min_offsets is None and "maxTriggerDelay" in self.given:
            raise ConfigurationError("maxTriggerDelay says how long a batch waits for minOffsetsPerTrigger: set that, or leave both out", option="maxTriggerDelay")
        if self.min_offsets is not None and self.max_offsets is not None and self.min_offsets > self.max_offsets:
            raise ConfigurationError(f"minOffsetsPerTrigger={self.min_offsets} is more than maxOffsetsPerTrigger={self.max_offsets}: no batch can have both",
                                     option="minOffsetsPerTrigger")


@attrs.frozen(kw_only=True)
class SinkOptions:
    """What a writing query asked for."""

    topic: str | None = None
    include_headers: bool = True
    client: Mapping[str, Any] = attrs.field(repr=False)
    """Checked where the query begins, so clients get them as keywords: tasks need not allow imports again."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of ``format("pyclient")`` for writing.

        Raises:
            ConfigurationError: an option is unknown, malformed or refused.
        """
        from pyclient.config import ProducerConfig

        own = {name: value for name, value in options.items() if name.lower() not in SPARKS_OWN}
        given = _Given(own, SINK_NAMES, REFUSED_BY_SINK)
        parsed = cls(topic=given.text("topic"), include_headers=given.truth("includeHeaders", default=True), client=given.client())
        ProducerConfig.parse(parsed.client)
        return parsed


class _Given:
    """The options as given, by Spark's names; each is taken with its type."""

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...], refused: Mapping[str, str],
                 ignored: Mapping[str, str] = MappingProxyType({})) -> None:
        spelled = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        self._client: dict[str, str] = {}
        for key, value in options.items():
            name = key.lower()
            _refuse(name, refused)
            if option := _named(name, ignored):
                _warn_ignored(option, ignored[option])
            elif name.startswith(CLIENT):
                _refuse_object(name, value)
                self._client[name.removeprefix(CLIENT)] = value
            elif name in spelled:
                self._values[spelled[name]] = value
            else:
                raise _unknown(key, (*names, SERVERS))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def client(self) -> dict[str, str]:
        if not self._client.get("bootstrap.servers", "").strip():
            raise ConfigurationError(f'{SERVERS} is missing: .option("{SERVERS}", "host:9092") says where Kafka is', option=SERVERS)
        return self._client

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise ConfigurationError(f"{name} is empty: leave it out, or give it a value", option=name)
        return None if value is None else value.strip()

    def count(self, name: str) -> int | None:
        return self._convert(name, _positive, "expected a whole number from 1 on")

    def truth(self, name: str, *, default: bool) -> bool:
        found = self._convert(name, lambda text: {"true": True, "false": False}[text.lower()], "expected true or false")
        return default if found is None else found

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        expected = f"expected {' or '.join(words)}"
        return self._convert(name, lambda text: {word: word for word in words}[text.lower()], expected) or default

    def time(self, name: str) -> int | None:
        return self._convert(name, _time, "expected milliseconds since 1970")

    def duration(self, name: str, *, default: float) -> float:
        """Seconds, from a text in Spark's form."""
        return self._convert(name, _seconds, "expected a time such as 30s, 15m or 500ms (a number alone is milliseconds)") or default

    def _convert(self, name: str, convert: Callable[[str], T], expected: str) -> T | None:
        text = self.text(name)
        try:
            return None if text is None else convert(text)
        except (KeyError, ValueError):
            raise ConfigurationError(f"{name} = {text!r} is not allowed: {expected}", option=name) from None


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


_UNITS: Final = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([1-9]\d*)\s*([a-z]*)", text.lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2]]


def _time(text: str) -> int:
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def with_defaults(client: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """The options of a consumer, and of *defaults* those that none of them sets, however it spells them."""
    from pyclient.config import ConsumerConfig  # here: a writer does without

    known = ConsumerConfig.parse(None, client).given
    return {**{name: value for name, value in defaults.items() if name.replace(".", "_") not in known}, **client}


def _subscription(given: _Given) -> dict[str, Any]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given.names]
    if len(ways) != 1:
        raise ConfigurationError(
            f"exactly one of subscribe, subscribePattern and assign says what to read; given: {', '.join(ways) or 'none'}",
            option=(ways or ["subscribe"])[0])
    text = given.text(ways[0]) or ""
    if ways[0] == "assign":
        return {"partitions": parse_partitions("assign", text)}
    if ways[0] == "subscribePattern":
        return {"pattern": _pattern(text)}
    topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
    if not topics:
        raise ConfigurationError(f"subscribe = {text!r} names no topic: write them with commas between", option="subscribe")
    return {"topics": topics}


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigurationError(
            f"subscribePattern = {text!r} is no regular expression of Python's: {error}", option="subscribePattern") from None
    return text


def _bound(given: _Given, side: str, by_time_otherwise: int) -> Bound | None:
    """The most exact of the three options of one side, as Spark ranks them."""
    time = given.time(f"{side}Timestamp")
    times = given.text(f"{side}OffsetsByTimestamp")
    if time is not None:
        return Bound(by_time_otherwise, time=time)
    if times is not None:
        return Bound(by_time_otherwise, times=parse_offsets(f"{side}OffsetsByTimestamp", times))
    text = given.text(f"{side}Offsets")
    if text is None:
        return None
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Bound(words[text.lower()])
    return Bound(by_time_otherwise, offsets=parse_offsets(f"{side}Offsets", text, lowest=EARLIEST))


def _refuse_object(name: str, value: str) -> None:
    if _OBJECT.fullmatch(value):
        instead = NAMED if name.replace("_", ".") == "kafka.sasl.token.provider" else "give its name, or 'package.module:Class'"
        raise ConfigurationError(f"{name} was an object, of which Spark passes on the text only: {instead}", option=name)


def _refuse(name: str, refused: Mapping[str, str]) -> None:
    if option := _named(name, refused):
        raise ConfigurationError(f"{option} cannot be set here: {refused[option]}", option=option)


def _named(name: str, table: Mapping[str, str]) -> str | None:
    """The option of *table* that *name* means, with dots or underscores."""
    return next((option for option in table if name.replace("_", ".") == option.lower()), None)


@functools.cache
def _warn_ignored(option: str, why: str) -> None:
    log.warning("%s has no effect in this source: %s", option, why)


def _unknown(key: str, names: tuple[str, ...]) -> UnknownOptionError:
    alike = difflib.get_close_matches(key.lower(), [name.lower() for name in (*names, f"{CLIENT}{key}")], n=1)
    nearest = [name for name in names if name.lower() in alike]
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(names)}, and Kafka's own options after 'kafka.'"
    return UnknownOptionError(f"{key!r} is no option here: {hint}", option=key, nearest=nearest)
