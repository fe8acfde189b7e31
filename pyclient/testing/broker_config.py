"""Settings of a test broker: small, quick to fail over, addressed by its node id.

Pure: names and values in, lines out. Knows neither processes nor containers.
"""
from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Final, TypeAlias

Config: TypeAlias = Mapping[str, object]

# What LocalCluster decides itself: another value would make the brokers unreachable for it.
OWNED: Final = frozenset({
    "process.roles", "node.id", "broker.id", "listeners", "log.dir", "log.dirs", "controller.quorum.voters",
    "controller.quorum.bootstrap.servers", "controller.listener.names", "inter.broker.listener.name",
})

INTERNAL_TOPICS: Final = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


def normalized(config: Config) -> dict[str, str]:
    """Kafka's dotted names and texts; ``num_partitions=3`` is taken for ``num.partitions``.

    Raises:
        ValueError: an option belongs to the cluster itself.
    """
    named = {name if "." in name else name.replace("_", "."): _text(value) for name, value in config.items()}
    if clash := sorted(OWNED & named.keys()):
        raise ValueError(
            f"{', '.join(clash)} cannot be set: LocalCluster chooses addresses, roles and folders of its brokers. Leave "
            "it out; for a cluster with its own addresses, start it yourself and set PYCLIENT_BOOTSTRAP."
        )
    return named


def shared_config(brokers: int) -> dict[str, str]:
    """Settings of all brokers of a cluster, before the user's."""
    factor = min(brokers, 3)
    config = {
        "num.partitions": "1",
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(min(factor, 2)),
        "group.initial.rebalance.delay.ms": "0",
        # a killed broker may register again only when its session has ended: 9 s with the default
        "broker.session.timeout.ms": "1500" if brokers == 1 else "2000",
        "broker.heartbeat.interval.ms": "250" if brokers == 1 else "300",
    }
    for topic in INTERNAL_TOPICS:
        config |= {f"{topic}.num.partitions": "1", f"{topic}.replication.factor": str(factor)}
    for topic in INTERNAL_TOPICS[1:]:
        config[f"{topic}.min.isr"] = str(min(factor, 2))
    return config | (_QUICK_QUORUM if brokers > 1 else {})


_QUICK_QUORUM: Final = {
    "replica.lag.time.max.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
}


def render_properties(config: Mapping[str, str]) -> str:
    """The text of a ``.properties`` file."""
    return "".join(f"{name}={one_line(value)}\n" for name, value in config.items())


def for_node(value: str, node_id: int) -> str:
    """A setting as one broker has it: ``{node}`` in it becomes the broker's id, as in ``broker.rack=rack-{node}``."""
    return value.replace("{node}", str(node_id))


def one_line(value: str) -> str:
    """*value* with its line ends escaped, so that PEM certificates can be given as they are."""
    return value.strip().replace("\n", "\\n")


def new_cluster_id() -> str:
    """A random id as Kafka writes it: a UUID in URL-safe base 64 without padding."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not drawn.startswith("-"):  # the tools would take it for an option
            return drawn


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
