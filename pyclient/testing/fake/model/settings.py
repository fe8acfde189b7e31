"""Settings of a fake cluster: broker settings by Kafka's names, and a few of the model's own."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from pyclient.errors import ConfigurationError

MIB: Final = 1024 * 1024
POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")


@attrs.frozen(kw_only=True)
class Settings:
    """Defaults are a real broker's, except where those would make tests wait."""

    num_partitions: int = 1
    default_replication_factor: int = 3
    """At most the number of brokers is taken."""
    min_insync_replicas: int = 1
    auto_create_topics_enable: bool = True
    unclean_leader_election_enable: bool = False
    message_max_bytes: int = MIB + 12
    log_message_timestamp_type: str = "CreateTime"
    log_message_timestamp_before_max_ms: int = 2**63 - 1
    log_message_timestamp_after_max_ms: int = 3_600_000
    producer_id_expiration_ms: int = 86_400_000
    """After how long without a record a partition forgets a producer."""
    producer_id_expiration_check_interval_ms: int = 600_000
    """How often it looks for such producers."""
    transaction_max_timeout_ms: int = 900_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    """A real broker's is 3000."""
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    """Session timeout in KIP-848 groups."""
    group_consumer_heartbeat_interval_ms: int = 500
    """Heartbeat interval in KIP-848 groups; a real broker's is 5000."""
    group_consumer_assignment_interval_ms: int = 0
    """Shortest time between two target assignments; a real broker's is 1000 since 4.3."""
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: str = attrs.field(default="bidirectional", validator=attrs.validators.in_(POLICIES))
    """Allowed online conversions of groups: also "upgrade", "downgrade", "disabled"."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    """Of the topic of offsets, of which the model has the names only: in DescribeTransactions."""
    offset_metadata_max_bytes: int = 4096
    max_incremental_fetch_session_cache_slots: int = 1000
    fetch_max_bytes: int = 55 * MIB
    broker_rack: str = ""
    """Rack of the brokers; ``{node}`` in it becomes the broker's id."""
    replica_selector_class: str = ""
    """Any rack-aware selector makes leaders send consumers to a replica in their rack (KIP-392)."""
    replica_lag_time_max_ms: int = 30_000
    log_retention_bytes: int = 64 * MIB
    """Per partition; older batches are deleted, so that memory stays bounded."""
    replica_lag_ms: float = 0.0
    """How long a follower takes to fetch what its leader has. The model's own."""
    failure_detection_ms: float = 0.0
    """How long the controller takes to notice that a broker is gone. The model's own."""
    regex_refresh_min_ms: float = 0.0
    """Shortest time between two resolutions of a group's patterns; a real broker's is 10 s. The model's own."""
    sasl_enabled_mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    """Offered by a cluster with users; a real broker's default is GSSAPI, which the model lacks."""
    connections_max_reauth_ms: int = 0
    """After how long a login must be renewed (KIP-368); 0: never."""
    connection_failed_authentication_delay_ms: int = 0
    """Delay of the answer to a failed login; a real broker's is 100."""
    coordinator_load_ms: float = 0.0
    """How long a new coordinator answers COORDINATOR_LOAD_IN_PROGRESS. The model's own."""
    transaction_marker_ms: float = 0.0
    """How long a coordinator takes from the end of a transaction to its markers. The model's own."""

    def rack_of(self, broker: int) -> str | None:
        """The rack of this broker."""
        return self.broker_rack.replace("{node}", str(broker)) or None

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Self:
        """From Kafka's dotted names or these; text is converted.

        Raises:
            ConfigurationError: an unknown name, or a value that cannot be converted.
        """
        fields = {each.name: each for each in attrs.fields(cls)}
        given: dict[str, Any] = {}
        for name, value in config.items():
            known = fields.get(name.replace(".", "_"))
            if known is None:
                raise ConfigurationError(
                    f"{name!r} is no setting of a fake cluster; known are {', '.join(sorted(fields))}", option=name)
            given[known.name] = _converted(name, value, type(known.default))
        try:
            return cls(**given)
        except ValueError as error:
            raise ConfigurationError(str(error.args[0]), option=str(error.args[1].name)) from None


def _converted(name: str, value: object, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        return kind(value)
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(f"{name}={value!r} is no {kind.__name__}", option=name) from None
