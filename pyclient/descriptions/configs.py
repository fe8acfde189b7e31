"""Configs of topics, brokers, groups and client metrics: what they belong to, their values and how they are changed."""
from __future__ import annotations

import enum
from typing import NamedTuple

from pyclient.descriptions import KafkaEnum

ConfigValue = str | int | float | bool
"""A value to set: True is written as ``true``, numbers as decimal digits."""


class ResourceType(enum.IntEnum):
    """What has configs, by Kafka's number."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One owner of configs. `topic`, `broker`, `broker_defaults` … make one by its kind."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node: int) -> ConfigResource:
        """One broker, by its node id."""
        return cls(ResourceType.BROKER, str(node))

    @classmethod
    def broker_defaults(cls) -> ConfigResource:
        """The dynamic defaults of all brokers."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker_logger(cls, node: int) -> ConfigResource:
        """The loggers of a broker, whose values are log levels (KIP-412)."""
        return cls(ResourceType.BROKER_LOGGER, str(node))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """A group of the KIP-848 protocol; brokers of Kafka 4.0 and later."""
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription to clients' metrics (KIP-714)."""
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


class ConfigSource(KafkaEnum):
    """Where a config's value comes from, by Kafka's number; UNKNOWN is one that this client does not know."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_BROKER_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(KafkaEnum):
    """The type of a config's value, by Kafka's number; UNKNOWN on brokers before 2.6."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSynonym(NamedTuple):
    """A config that could have set the value, under its own name; the first of a list did."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A config's value. ``value`` is None when it is unset, and when it is ``sensitive``: brokers do not return those.

    ``synonyms`` and ``documentation`` are filled when asked for.
    """

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default of Kafka, set nowhere."""
        return self.source is ConfigSource.DEFAULT


class ConfigOperation(enum.IntEnum):
    """How a config changes, by Kafka's number (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one config other than setting a value: `delete`, `append` and `subtract` make one.

    ``repr`` does not show the value, which may be a secret: ``sasl.jaas.config`` and keystores' passwords are configs.
    """

    operation: ConfigOperation
    value: ConfigValue | None = None

    def __repr__(self) -> str:
        return f"ConfigChange({self.operation.name}{'' if self.value is None else ', ***'})"

    @classmethod
    def delete(cls) -> ConfigChange:
        """Remove the value: the default is in force again."""
        return cls(ConfigOperation.DELETE)

    @classmethod
    def append(cls, value: ConfigValue) -> ConfigChange:
        """Add to a list; several are separated by commas. What is there already is not added twice."""
        return cls(ConfigOperation.APPEND, value)

    @classmethod
    def subtract(cls, value: ConfigValue) -> ConfigChange:
        """Take out of a list; several are separated by commas."""
        return cls(ConfigOperation.SUBTRACT, value)
