"""The settings a topic can have: their types, bounds and defaults, as Kafka 4.3 has them."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from pyclient.testing.fake.model.settings import Settings

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Types, as DescribeConfigs numbers them."""
TOPIC, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = 1, 3, 4, 5
"""Where a value comes from, as DescribeConfigs numbers it."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""Operations of IncrementalAlterConfigs."""
TYPE_NAMES: Final = {INT: "INT", LONG: "LONG", DOUBLE: "DOUBLE"}
BITS: Final = {INT: 32, LONG: 64}
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class InvalidConfigError(ValueError):
    """An invalid topic setting; the text is a broker's."""


@attrs.frozen
class Setting:
    """One setting; *broker* is the broker's setting that gives its default."""

    name: str
    kind: int
    default: str
    broker: str | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, value: str) -> None:
        """Raises InvalidConfigError for a value of the wrong type or out of bounds."""
        if self.kind == BOOLEAN and value.strip().lower() not in ("true", "false"):
            raise self._wrong(value, "Expected value to be either true or false")
        if self.kind in TYPE_NAMES:
            self._check_number(value)
        wrong = [each for each in (_items(value) if self.kind == LIST else [value]) if self.choices and each not in self.choices]
        if wrong:
            raise self._wrong(wrong[0], f"String must be one of: {', '.join(self.choices)}")

    def _check_number(self, value: str) -> None:
        try:
            number = float(value) if self.kind == DOUBLE else int(value)
        except ValueError:
            number = None
        if number is None or (self.kind in BITS and not -(1 << BITS[self.kind] - 1) <= number < 1 << BITS[self.kind] - 1):
            raise self._wrong(value, f"Not a number of type {TYPE_NAMES[self.kind]}")
        if self.low is not None and number < self.low:
            raise self._wrong(number, f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise self._wrong(number, f"Value must be no more than {self.high}")

    def _wrong(self, value: object, reason: str) -> InvalidConfigError:
        return InvalidConfigError(f"Invalid value {value} for configuration {self.name}: {reason}")


def _items(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]


SETTINGS: Final[Mapping[str, Setting]] = {each.name: each for each in (
    Setting("cleanup.policy", LIST, "delete", "log.cleanup.policy", choices=("compact", "delete")),
    Setting("compression.gzip.level", INT, "-1", "compression.gzip.level"),
    Setting("compression.lz4.level", INT, "9", "compression.lz4.level", 1, 17),
    Setting("compression.type", STRING, "producer", "compression.type", choices=CODECS),
    Setting("compression.zstd.level", INT, "3", "compression.zstd.level", -131072, 22),
    Setting("delete.retention.ms", LONG, "86400000", "log.cleaner.delete.retention.ms", 0),
    Setting("file.delete.delay.ms", LONG, "60000", "log.segment.delete.delay.ms", 0),
    Setting("flush.messages", LONG, str(LONG_MAX), "log.flush.interval.messages", 1),
    Setting("flush.ms", LONG, str(LONG_MAX), None, 0),
    Setting("follower.replication.throttled.replicas", LIST, ""),
    Setting("index.interval.bytes", INT, "4096", "log.index.interval.bytes", 0),
    Setting("leader.replication.throttled.replicas", LIST, ""),
    Setting("local.retention.bytes", LONG, "-2", "log.local.retention.bytes", -2),
    Setting("local.retention.ms", LONG, "-2", "log.local.retention.ms", -2),
    Setting("max.compaction.lag.ms", LONG, str(LONG_MAX), "log.cleaner.max.compaction.lag.ms", 1),
    Setting("max.message.bytes", INT, "1048588", "message.max.bytes", 0),
    Setting("message.timestamp.after.max.ms", LONG, "3600000", "log.message.timestamp.after.max.ms", 0),
    Setting("message.timestamp.before.max.ms", LONG, str(LONG_MAX), "log.message.timestamp.before.max.ms", 0),
    Setting("message.timestamp.type", STRING, "CreateTime", "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")),
    Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", 0, 1),
    Setting("min.compaction.lag.ms", LONG, "0", "log.cleaner.min.compaction.lag.ms", 0),
    Setting("min.insync.replicas", INT, "1", "min.insync.replicas", 1),
    Setting("preallocate", BOOLEAN, "false", "log.preallocate"),
    Setting("remote.log.copy.disable", BOOLEAN, "false"),
    Setting("remote.log.delete.on.disable", BOOLEAN, "false"),
    Setting("remote.storage.enable", BOOLEAN, "false"),
    Setting("retention.bytes", LONG, "-1", "log.retention.bytes"),
    Setting("retention.ms", LONG, "604800000", None, -1),
    Setting("segment.bytes", INT, "1073741824", "log.segment.bytes", 1048576),
    Setting("segment.index.bytes", INT, "10485760", "log.index.size.max.bytes", 4),
    Setting("segment.jitter.ms", LONG, "0", None, 0),
    Setting("segment.ms", LONG, "604800000", None, 1),
    Setting("unclean.leader.election.enable", BOOLEAN, "false", "unclean.leader.election.enable"),
)}
FROM_BROKER: Final = {
    "log.message.timestamp.type": "log_message_timestamp_type",
    "log.message.timestamp.before.max.ms": "log_message_timestamp_before_max_ms",
    "log.message.timestamp.after.max.ms": "log_message_timestamp_after_max_ms",
    "message.max.bytes": "message_max_bytes",
    "min.insync.replicas": "min_insync_replicas", "unclean.leader.election.enable": "unclean_leader_election_enable",
}
"""The broker's settings that the model knows, too."""


class Effective(NamedTuple):
    """The value a topic has, and those it would have without it, nearest first."""

    setting: Setting
    value: str
    source: int
    synonyms: tuple[tuple[str, str, int], ...]


def check(config: Mapping[str, str | None]) -> None:
    """Raises InvalidConfigError when a topic cannot have these settings."""
    for name, value in config.items():
        if value is None:
            raise InvalidConfigError(f"Null value not supported for topic configs: {name}")
    for name, value in config.items():
        if name not in SETTINGS:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
        SETTINGS[name].check(str(value))


def altered(config: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]) -> dict[str, str]:
    """The settings after each change: a name, an operation and a value.

    Raises:
        InvalidConfigError: a list operation on something else than a list, or a value the topic cannot have.
    """
    after = dict(config)
    for name, operation, value in changes:
        if operation == DELETE:
            after.pop(name, None)
        elif operation == SET:
            after[name] = str(value)
        else:
            after[name] = _with_items(name, after.get(name), operation, str(value))
    check(after)
    return after


def _with_items(name: str, now: str | None, operation: int, value: str) -> str:
    setting = SETTINGS.get(name)
    if setting is None or setting.kind != LIST:
        raise InvalidConfigError(f"Can't {'APPEND' if operation == APPEND else 'SUBTRACT'} to key {name} because its type is not LIST.")
    items, named = _items(setting.default if now is None else now), _items(value)
    if operation == APPEND:
        return ",".join([*items, *(each for each in named if each not in items)])
    return ",".join(each for each in items if each not in named)


def effective(config: Mapping[str, str], settings: Settings, *, eligible_leaders: bool = True) -> list[Effective]:
    """All settings of a topic, by name. With *eligible_leaders* (KIP-966) the cluster sets the default of one."""
    return [_effective(each, config.get(each.name), settings, eligible_leaders=eligible_leaders) for each in SETTINGS.values()]


def _effective(setting: Setting, own: str | None, settings: Settings, *, eligible_leaders: bool) -> Effective:
    synonyms = [(setting.name, own, TOPIC)] if own is not None else []
    field = FROM_BROKER.get(setting.broker or "")
    value = text(getattr(settings, field)) if field is not None else setting.default
    if eligible_leaders and setting.name == "min.insync.replicas":
        synonyms.append((setting.name, value, DYNAMIC_DEFAULT))
    if value != setting.default:
        synonyms.append((str(setting.broker), value, STATIC_BROKER))
    if setting.broker is not None:
        synonyms.append((setting.broker, setting.default, DEFAULT))
    _, chosen, source = synonyms[0] if synonyms else ("", setting.default, DEFAULT)
    return Effective(setting, chosen, source, tuple(synonyms))


def text(value: object) -> str:
    """As Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
