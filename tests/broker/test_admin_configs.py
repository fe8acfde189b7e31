"""Configs of topics and brokers, on a real broker."""
from __future__ import annotations

import asyncio

import pytest

from pyclient import Admin, AsyncAdmin, NewTopic
from pyclient.admin import ConfigChange, ConfigResource, ConfigSource, ConfigType, ResourceType
from pyclient.errors import BrokerNotAvailableError, InvalidConfigurationError, PartialFailureError, UnknownTopicOrPartitionError, UnsupportedVersionError
from pyclient.testing import LocalCluster
from tests.waiting import eventually


def test_configs_of_a_topic_are_set_appended_subtracted_and_deleted(kafka_cluster: LocalCluster, topic: str) -> None:
    resource = ConfigResource.topic(topic)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, configs={"cleanup.policy": "delete"})])

        def value(name: str) -> str | None:
            return admin.describe_configs([resource], names=[name])[resource][name].value

        eventually(lambda: topic in admin.list_topics())
        admin.alter_configs({resource: {"retention.ms": 3_600_000, "preallocate": True, "cleanup.policy": ConfigChange.append("compact")}})
        eventually(lambda: (value("retention.ms"), value("preallocate"), value("cleanup.policy")) == ("3600000", "true", "delete,compact"))
        admin.alter_configs({resource: {"retention.ms": ConfigChange.delete(), "cleanup.policy": ConfigChange.subtract("delete")}})
        eventually(lambda: value("cleanup.policy") == "compact")
        entry = admin.describe_configs([resource], synonyms=True, documentation=True)[resource]["retention.ms"]
        assert entry.is_default or entry.source is ConfigSource.STATIC_BROKER
        assert entry.type is ConfigType.LONG
        assert "retention" in (entry.documentation or "")
        preallocate = admin.describe_configs([resource], names=["preallocate"], synonyms=True)[resource]["preallocate"]
        assert [each.source for each in preallocate.synonyms] == [ConfigSource.TOPIC, ConfigSource.DEFAULT]


def test_each_resource_has_its_own_outcome_and_a_wrong_value_changes_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    there, nowhere = ConfigResource.topic(topic), ConfigResource.topic(f"{topic}-nowhere")
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([topic])
        eventually(lambda: topic in admin.list_topics())
        with pytest.raises(PartialFailureError) as failed:
            admin.describe_configs([there, nowhere])
        assert isinstance(failed.value.errors[nowhere], UnknownTopicOrPartitionError)
        assert "retention.ms" in failed.value.results[there]
        with pytest.raises(InvalidConfigurationError, match="retention.ms"):
            admin.alter_configs({there: {"retention.ms": "soon", "segment.ms": 70_000}})
        admin.alter_configs({there: {"retention.ms": 5}}, validate_only=True)
        entries = admin.describe_configs([there], names=["retention.ms", "segment.ms"])[there]
        assert all(entry.source is not ConfigSource.TOPIC for entry in entries.values())


def test_configs_of_a_broker_are_those_it_runs_with_and_loggers_are_changed_at_it(kafka_cluster: LocalCluster) -> None:
    broker, loggers, absent = ConfigResource.broker(1), ConfigResource.broker_logger(1), ConfigResource.broker(77)

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
            found = await admin.describe_configs([broker, loggers])
            assert found[broker]["node.id"].value == "1"
            assert found[broker]["node.id"].read_only
            assert found[loggers]["root"].source is ConfigSource.BROKER_LOGGER
            await admin.alter_configs({loggers: {"kafka.request.logger": "ERROR"}})
            with pytest.raises(BrokerNotAvailableError, match="77"):
                await admin.describe_configs([absent])

    asyncio.run(main())


def test_a_broker_of_3_9_refuses_configs_of_groups_by_their_release_and_describes_the_topic_beside_them(topic: str) -> None:
    orders, group = ConfigResource.topic(topic), ConfigResource.group(topic)
    with LocalCluster(version="3.9.1") as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([topic])
        eventually(lambda: topic in admin.list_topics())
        with pytest.raises(PartialFailureError) as described:
            admin.describe_configs([group, orders])
        assert "retention.ms" in described.value.results[orders]
        with pytest.raises(PartialFailureError) as altered:
            admin.alter_configs({group: {"consumer.session.timeout.ms": 50_000}, orders: {"retention.ms": 7}})
        assert list(altered.value.results) == [orders]
        for errors in (described.value.errors, altered.value.errors):
            assert isinstance(errors[group], UnsupportedVersionError)
            assert "Brokers of Kafka 4.0 or newer" in str(errors[group])


def test_resources_with_configs_are_listed_by_type(kafka_cluster: LocalCluster, topic: str) -> None:
    mine, metrics = ConfigResource.topic(topic), ConfigResource.client_metrics(topic)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([topic])
        admin.alter_configs({metrics: {"interval.ms": 60000}})
        eventually(lambda: {mine, metrics} <= set(admin.list_config_resources()))
        assert ConfigResource.broker(1) in admin.list_config_resources([ResourceType.BROKER])
        assert {each.type for each in admin.list_config_resources([ResourceType.CLIENT_METRICS])} == {ResourceType.CLIENT_METRICS}
        admin.alter_configs({metrics: {"interval.ms": ConfigChange.delete()}})
